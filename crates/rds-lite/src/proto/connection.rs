//! One connection: everything between two addresses.

use crate::proto::credits::Credits;
use crate::proto::outgoing::Outgoing;
use crate::proto::{Buf, Config, LinkId, LinkState, Path, SockId, seq};
use crate::wire::{CongestionMap, ExtArea, Flags, Header, Version};
use bytes::Bytes;
use mr_core::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// What a fabric's links are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkKind {
    /// Payload bytes per frame; a longer message is cut.
    pub fragment: usize,
    /// How two sides tell each other who they are.
    pub greeting: Greeting,
    /// Whether every peer acknowledges. If not, those do that put checksums on their headers; what
    /// goes to the others counts as arrived when the fabric says that the peer's side of it has it.
    pub always_acks: bool,
    /// Messages between two that ask for an acknowledgement, unless the host says otherwise.
    pub packets_per_ack: u32,
    /// Whether the fabric moves memory.
    pub rdma: bool,
    /// Whether the fabric holds [fenced](crate::proto::Frame::fence) frames back until the reads
    /// before them have ended. If not, whatever follows such a read waits for its end here.
    pub fences: bool,
    /// Receive buffers of a link, each for one frame: what credits are granted of. A buffer is free
    /// again when its frame has been handed over. 0 where the fabric has no such thing.
    pub receive_ring: u32,
    /// Whether an acknowledgement alone has a work request of its own, which waits for no room. Then only
    /// one at a time is under way: the link says when [it has ended](crate::proto::Core::ack_ended), and
    /// the next one carries the number of that moment.
    pub own_ack: bool,
    /// Whether only the side with the smaller address dials; a dial of the other is a request to be
    /// dialled.
    pub smaller_dials: bool,
}

impl LinkKind {
    /// The number of the first message. Where no generation tells a new host from the one before, as to a kernel
    /// over InfiniBand, the first number of all is that of the opening.
    pub(crate) const fn first_number(&self) -> u64 {
        match self.greeting {
            Greeting::Probe => OPENING,
            Greeting::Connect => OPENING + 1,
        }
    }
}

/// The first number of all.
pub(crate) const OPENING: u64 = 1;

/// How two sides tell each other who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// With a probe on each link, before anything else.
    Probe,
    /// With what a dial and its answer carry.
    Connect,
}

/// A message of which not all fragments have arrived.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) header: Header,
    pub(crate) buf: Buf,
    pub(crate) got: usize,
    /// When the next fragment must be here.
    pub(crate) by: Time,
}

impl Partial {
    /// Whether a fragment with this header belongs to the message. Acknowledgement, credit and
    /// checksum may differ.
    pub(crate) fn takes(&self, header: &Header) -> bool {
        let identity = |header: &Header| {
            let ports = (header.sport, header.dport);
            (header.sequence, header.len, ports)
        };
        identity(&self.header) == identity(header)
    }
}

/// The message under way: its place in the queue is the first.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) sent: usize,
    pub(crate) flags: Flags,
    pub(crate) fence: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) index: u32,
    pub(crate) path: Path,
    pub(crate) state: LinkState,
    pub(crate) incarnation: u64,
    /// What it was when the place was another peer's.
    pub(crate) links_before: u64,
    /// Who this host is to the peer.
    pub(crate) generation: u32,
    /// Since when there is no link, if there is none.
    pub(crate) down_since: Time,
    /// Whether it was this side that dialled.
    pub(crate) dialling: bool,
    /// The version that the next dial proposes, and the one that is spoken.
    pub(crate) proposed: Version,
    pub(crate) version: Version,
    /// When the latest link was made.
    pub(crate) opened_at: Time,

    // Sending.
    pub(crate) next_tx: u64,
    pub(crate) queue: VecDeque<Outgoing>,
    pub(crate) unacked: VecDeque<Outgoing>,
    pub(crate) head: Option<Head>,
    /// An RDMA read that must end before anything else is sent.
    pub(crate) fence: Option<u64>,
    /// The next message is to be fenced by the fabric.
    pub(crate) fence_next: bool,
    /// What the peer has granted for the link to come.
    pub(crate) granted: u32,
    pub(crate) credits: Credits,
    /// The fabric takes no more for now.
    pub(crate) blocked: bool,
    /// Bytes of all frames of this link.
    pub(crate) stream: u64,
    pub(crate) packet_budget: u32,
    pub(crate) byte_budget: u64,
    /// What messages are charged since the last that asked for an acknowledgement.
    pub(crate) unasked: usize,
    pub(crate) acked: u64,
    /// The highest number that has left this host.
    pub(crate) last_tx: u64,
    pub(crate) probe_due: bool,
    pub(crate) pongs: usize,
    pub(crate) map_due: bool,
    /// What is left of a congestion map under way.
    pub(crate) map_rest: Bytes,

    // Receiving.
    pub(crate) next_rx: u64,
    pub(crate) last_rx: u64,
    /// Whether anything numbered has arrived on this link.
    pub(crate) heard: bool,
    pub(crate) partial: Option<Partial>,
    pub(crate) ack_due: bool,
    /// As the fabric is: an acknowledgement has a work request of its own.
    pub(crate) own_ack: bool,
    /// That request is under way.
    pub(crate) ack_under_way: bool,
    pub(crate) shedding: bool,
    /// The socket whose messages are shed; `None` while the whole host has no room.
    pub(crate) shed_for: Option<SockId>,
    pub(crate) peer_generation: Option<u32>,
    pub(crate) peer_acks: bool,
    pub(crate) peer_map: CongestionMap,
    pub(crate) waiters: Vec<(SockId, u16)>,

    // Deadlines.
    pub(crate) dial_at: Option<Time>,
    pub(crate) greet_by: Option<Time>,
    pub(crate) ack_at: Option<Time>,
    pub(crate) ack_by: Option<Time>,
    pub(crate) look_at: Option<Time>,
    pub(crate) map_at: Option<Time>,
    pub(crate) shed_until: Option<Time>,
    pub(crate) backoff: Option<Duration>,
    pub(crate) attempts: u32,
    pub(crate) ack_tries: u32,
    pub(crate) map_pause: Duration,
}

impl Connection {
    pub(crate) fn new(index: u32, path: Path, kind: &LinkKind, config: &Config) -> Self {
        Self {
            index,
            path,
            state: LinkState::Down,
            incarnation: 0,
            links_before: 0,
            generation: 0,
            down_since: Time::ZERO,
            dialling: false,
            proposed: config.version,
            version: config.version,
            opened_at: Time::ZERO,
            next_tx: kind.first_number(),
            queue: VecDeque::new(),
            unacked: VecDeque::new(),
            head: None,
            fence: None,
            fence_next: false,
            granted: 0,
            credits: Credits::default(),
            blocked: false,
            stream: 0,
            packet_budget: config.max_unacked_packets.unwrap_or(kind.packets_per_ack),
            byte_budget: config.max_unacked_bytes,
            unasked: 0,
            acked: 0,
            last_tx: 0,
            probe_due: false,
            pongs: 0,
            map_due: false,
            map_rest: Bytes::new(),
            next_rx: 0,
            last_rx: 0,
            heard: false,
            partial: None,
            ack_due: false,
            own_ack: kind.own_ack,
            ack_under_way: false,
            shedding: false,
            shed_for: None,
            peer_generation: None,
            peer_acks: kind.always_acks,
            peer_map: CongestionMap::new(),
            waiters: Vec::new(),
            dial_at: None,
            greet_by: None,
            ack_at: None,
            ack_by: None,
            look_at: None,
            map_at: None,
            shed_until: None,
            backoff: None,
            attempts: 0,
            ack_tries: 0,
            map_pause: config.map_refresh,
        }
    }

    pub(crate) const fn link(&self) -> LinkId {
        LinkId {
            conn: self.index,
            incarnation: self.incarnation,
        }
    }

    /// What is to be acknowledged: the last number that has arrived. To a peer of which nothing tells
    /// whether it is still the one that was, as a kernel, not before it has sent something on this link:
    /// a new one would take the number for one of its own, and hear no lower one afterwards.
    pub(crate) const fn acknowledgement(&self) -> u64 {
        if self.heard || self.peer_generation.is_some() {
            self.last_rx
        } else {
            0
        }
    }

    /// Whether a peer that does not say its generation has to be told where this host's numbers begin.
    pub(crate) const fn wants_opening(&self) -> bool {
        self.peer_generation.is_none() && self.acked == 0
    }

    pub(crate) fn take_seq(&mut self) -> u64 {
        let seq = self.next_tx;
        self.next_tx = seq::next(seq);
        seq
    }

    /// Queues an empty message that no socket waits for.
    pub(crate) fn queue_answer(&mut self, sport: u16, dport: u16, ext: ExtArea) {
        let seq = self.take_seq();
        self.pongs += 1;
        self.queue
            .push_back(Outgoing::answer(seq, sport, dport, ext));
    }

    /// Whether there is any use for a link.
    pub(crate) fn is_needed(&self) -> bool {
        !self.queue.is_empty() || !self.unacked.is_empty()
    }

    /// Whether something could be sent now.
    pub(crate) fn can_send(&self) -> bool {
        let waits = self.fence.is_some() || self.queue.is_empty();
        let held = self.blocked || !self.credits.allow();
        match self.state {
            LinkState::Greeting => self.probe_due,
            LinkState::Up => {
                let control = self.map_due || !self.map_rest.is_empty();
                self.can_ack() || (!held && (control || self.probe_due || !waits))
            }
            _ => false,
        }
    }

    /// Whether an acknowledgement is due that could be sent alone now, if nothing it could ride on is
    /// under way.
    pub(crate) fn can_ack(&self) -> bool {
        let held = self.blocked && !self.own_ack;
        self.ack_due && !self.ack_under_way && !held && self.credits.allow()
    }

    /// The earliest of all deadlines.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let all = [
            self.dial_at,
            self.greet_by,
            self.ack_at,
            self.ack_by,
            self.look_at,
            self.map_at,
            self.shed_until,
            self.partial.as_ref().map(|partial| partial.by),
        ];
        all.into_iter().flatten().min()
    }

    /// Puts a message that has been sent where its acknowledgement finds it.
    pub(crate) fn keep_unacked(&mut self, message: Outgoing) {
        let place = self
            .unacked
            .iter()
            .rposition(|other| seq::before(other.seq, message.seq));
        self.unacked.insert(place.map_or(0, |at| at + 1), message);
    }

    /// Forgets what belonged to the link that was.
    pub(crate) fn forget_link(&mut self) {
        self.head = None;
        self.fence = None;
        self.fence_next = false;
        self.blocked = false;
        self.stream = 0;
        self.probe_due = false;
        self.map_due = false;
        self.map_rest = Bytes::new();
        self.heard = false;
        self.partial = None;
        self.ack_due = false;
        self.ack_under_way = false;
        self.shedding = false;
        self.shed_for = None;
        self.greet_by = None;
        self.ack_at = None;
        self.ack_by = None;
        self.look_at = None;
        self.ack_tries = 0;
        self.map_at = None;
        self.shed_until = None;
    }
}
