//! From the queue of a connection to the fabric.

use crate::proto::connection::{Connection, Head, OPENING};
use crate::proto::outgoing::OpStage;
use crate::proto::socket::MessageFate;
use crate::proto::{Core, Event, Frame, Greeting, LinkId, LinkState, OpKind, Transmission, seq};
use crate::wire::{Ext, ExtArea, Flags, HEADER_LEN, Header, MAP_LEN, PROBE_PORT};
use bytes::Bytes;
use mr_core::Time;

/// Frames and bytes that one call fetches at most, but for the fragments of one congestion map.
const MAX_FRAMES: usize = 64;
const MAX_BYTES: usize = 1 << 20;

/// How often a sender whose buffer is half full asks for an acknowledgement while it sends as much as
/// the buffer holds. The kernel asks with each message, and has no use for most of the answers.
const ASKS_PER_BUFFER: usize = 8;

impl Core {
    /// Moves what is to be sent now to `into`, in order. Says whether that was all; if not, call
    /// again when the fabric has taken it.
    pub fn transmit(&mut self, now: Time, link: LinkId, into: &mut Vec<Transmission>) -> bool {
        let Some(index) = self.open_link(link) else {
            return true;
        };
        let mut bytes = 0;
        while into.len() < MAX_FRAMES && bytes < MAX_BYTES {
            let Some(len) = self.next_transmission(now, index, into) else {
                break;
            };
            bytes += len;
        }
        let conn = &mut self.conns[index];
        // One that has its own request is no matter of what it comes between.
        let between = conn.own_ack || (conn.head.is_none() && conn.map_rest.is_empty());
        if conn.can_ack() && between && into.len() < MAX_FRAMES {
            self.counters.ib_ack_sent += 1;
            let header = Header {
                ack: conn.acknowledgement(),
                credit: conn.credits.spend(),
                ..Header::default()
            };
            conn.ack_due = false;
            conn.ack_at = None;
            conn.ack_under_way = conn.own_ack;
            conn.push(into, &header, Bytes::new(), false);
            if let Some(Transmission::Frame(frame)) = into.last_mut() {
                frame.ack = true;
            }
        }
        let more = self.conns[index].can_send();
        if !more {
            self.counters.send_queue_empty += 1;
        }
        !more
    }

    /// The fabric cannot take more for now, or can again.
    pub fn set_blocked(&mut self, link: LinkId, blocked: bool) {
        let Some(index) = self.open_link(link) else {
            return;
        };
        let was = std::mem::replace(&mut self.conns[index].blocked, blocked);
        if blocked && !was {
            self.counters.send_delayed_retry += 1;
        }
        if was && !blocked {
            self.wants_transmit(index as u32);
        }
    }

    /// The work request of an acknowledgement has ended: where links have one, the next may go.
    pub fn ack_ended(&mut self, link: LinkId) {
        let Some(index) = self.open_link(link) else {
            return;
        };
        self.conns[index].ack_under_way = false;
        if self.conns[index].ack_due {
            self.wants_transmit(index as u32);
        }
    }

    pub(crate) fn wants_transmit(&mut self, index: u32) {
        let conn = &self.conns[index as usize];
        if !conn.can_send() {
            if conn.ack_due && conn.ack_under_way {
                self.counters.ib_ack_send_delayed += 1;
            }
            return;
        }
        let link = conn.link();
        let last = self.events.last();
        if !matches!(last, Some(Event::Transmit(other)) if *other == link) {
            self.events.push(Event::Transmit(link));
        }
    }

    /// One frame or operation, in order of precedence. Returns its payload bytes.
    fn next_transmission(
        &mut self,
        now: Time,
        index: usize,
        into: &mut Vec<Transmission>,
    ) -> Option<usize> {
        let conn = &mut self.conns[index];
        if conn.probe_due {
            conn.probe_due = false;
            let probe = match self.kind.greeting {
                Greeting::Probe => conn.probe(),
                Greeting::Connect => self.opening(index),
            };
            self.conns[index].push(into, &probe, Bytes::new(), false);
            return Some(0);
        }
        if conn.state != LinkState::Up || conn.blocked || !conn.credits.allow() {
            return None;
        }
        if conn.head.is_some() {
            return self.next_fragment(now, index, into);
        }
        if conn.map_due || !conn.map_rest.is_empty() {
            return Some(self.map_fragment(index, into));
        }
        if conn.fence.is_some() {
            return None;
        }
        self.skip_acked(index);
        let conn = &mut self.conns[index];
        let first = conn.queue.front_mut()?;
        if let OpStage::Queued(..) = &first.op
            && let OpStage::Queued(work, fence) = std::mem::replace(&mut first.op, OpStage::None)
        {
            first.op = OpStage::Posted(work.op);
            if fence && self.kind.fences {
                conn.fence_next = true;
            } else if fence {
                conn.fence = Some(work.op);
            }
            let len = match &work.kind {
                OpKind::Write(buffers) => buffers.bytes(),
                OpKind::Read(_) | OpKind::Atomic(_) => 0,
            };
            into.push(Transmission::Rdma(*work));
            return Some(len);
        }
        self.begin_message(index);
        self.next_fragment(now, index, into)
    }

    /// Drops messages that were to be sent again and have arrived after all.
    fn skip_acked(&mut self, index: usize) {
        loop {
            let conn = &mut self.conns[index];
            let acked = conn.acked;
            let arrived = conn
                .queue
                .pop_front_if(|first| first.again && seq::covers(acked, first.seq));
            let Some(message) = arrived else {
                return;
            };
            self.counters.send_drop_acked += 1;
            self.settle(message, MessageFate::Arrived);
        }
    }

    /// Decides what flags the next message carries.
    fn begin_message(&mut self, index: usize) {
        let packets = self.config.max_unacked_packets;
        let packets = packets.unwrap_or(self.kind.packets_per_ack);
        let bytes = self.config.max_unacked_bytes;
        let conn = &mut self.conns[index];
        let Some(first) = conn.queue.front() else {
            return;
        };
        let half_full = first.sock.and_then(|sock| self.sockets.get(sock));
        conn.unasked += first.charge();
        let unasked = conn.unasked;
        let half_full = half_full.is_some_and(|state| {
            let eighth = state.send_buffer / ASKS_PER_BUFFER;
            state.out_bytes >= state.send_buffer / 2 && unasked >= eighth
        });
        let len = first.payload.len() as u64;
        let has_op = !matches!(first.op, OpStage::None);
        let spent = conn.packet_budget == 0 || conn.byte_budget < len;
        let mut flags = Flags::empty();
        if spent || half_full || first.again || has_op {
            flags |= Flags::ACK_REQUIRED;
            conn.unasked = 0;
            conn.packet_budget = packets;
            conn.byte_budget = bytes;
            self.counters.send_ack_required += 1;
        } else {
            conn.packet_budget -= 1;
            conn.byte_budget -= len;
        }
        if first.again {
            flags |= Flags::RETRANSMITTED;
            self.counters.lite_retransmitted += 1;
        }
        if seq::before(conn.last_tx, first.seq) || conn.last_tx == 0 {
            conn.last_tx = first.seq;
        }
        let fence = std::mem::take(&mut conn.fence_next);
        conn.head = Some(Head {
            sent: 0,
            flags,
            fence,
        });
    }

    fn next_fragment(
        &mut self,
        now: Time,
        index: usize,
        into: &mut Vec<Transmission>,
    ) -> Option<usize> {
        let fragment = self.kind.fragment;
        let conn = &mut self.conns[index];
        let ack = conn.acknowledgement();
        let head = conn.head.as_mut()?;
        let first = conn.queue.front()?;
        let end = first.payload.len().min(head.sent + fragment);
        let payload = first.payload.slice(head.sent..end);
        let header = Header {
            ack,
            flags: head.flags,
            credit: conn.credits.spend(),
            ..first.header()
        };
        if conn.ack_due {
            self.counters.ib_ack_send_piggybacked += 1;
        }
        conn.ack_due = false;
        conn.ack_at = None;
        head.sent = end;
        let fence = std::mem::take(&mut head.fence);
        let len = payload.len();
        let done = end == first.payload.len();
        conn.push(into, &header, payload, fence);
        if done {
            self.finish_message(now, index);
        }
        Some(len)
    }

    fn finish_message(&mut self, now: Time, index: usize) {
        let conn = &mut self.conns[index];
        let flags = conn.head.take().map(|head| head.flags);
        let Some(mut message) = conn.queue.pop_front() else {
            return;
        };
        message.end = conn.stream;
        if message.sock.is_none() {
            conn.pongs = conn.pongs.saturating_sub(1);
        }
        if conn.peer_acks {
            conn.keep_unacked(message);
            if conn.ack_by.is_none() {
                let by = now + self.config.ack_timeout;
                conn.ack_by = Some(by);
                self.arm(by);
            }
        } else {
            conn.keep_unacked(message);
            let soon = flags.is_some_and(|flags| flags.contains(Flags::ACK_REQUIRED));
            self.look_later(now, index, soon);
        }
    }

    /// The next piece of the congestion map of this side's address: unnumbered, to no port.
    fn map_fragment(&mut self, index: usize, into: &mut Vec<Transmission>) -> usize {
        let conn = &mut self.conns[index];
        if conn.map_rest.is_empty() {
            conn.map_due = false;
            let map = self.local_maps.get(&conn.path.local);
            conn.map_rest = match map {
                Some(map) => Bytes::copy_from_slice(map.bytes()),
                None => Bytes::from_static(&[0; MAP_LEN]),
            };
            self.counters.cong_update_queued += 1;
        }
        let len = conn.map_rest.len().min(self.kind.fragment);
        let payload = conn.map_rest.split_to(len);
        let header = Header {
            len: MAP_LEN as u32,
            flags: Flags::CONG_BITMAP,
            ack: conn.acknowledgement(),
            credit: conn.credits.spend(),
            ..Header::default()
        };
        conn.push(into, &header, payload, false);
        len
    }

    /// What a kernel over InfiniBand hears before anything else of this host, on each link until it has acknowledged
    /// it. It remembers what numbers this address has used, and takes a message with an old one for a
    /// repetition if it says that it is sent again, as this host's first may have to. This one never says so, and
    /// nobody is hurt if it comes twice: it is for a port that no socket can have.
    fn opening(&mut self, index: usize) -> Header {
        let conn = &mut self.conns[index];
        conn.last_tx = conn.last_tx.max(OPENING);
        Header {
            sequence: OPENING,
            sport: PROBE_PORT,
            dport: PROBE_PORT,
            flags: Flags::ACK_REQUIRED,
            credit: conn.credits.spend(),
            ..Header::default()
        }
    }
}

impl Connection {
    /// The greeting: who this side is. It acknowledges nothing: the peer may have begun anew, and
    /// would take the number for one of its own.
    fn probe(&self) -> Header {
        Header {
            sport: PROBE_PORT,
            ext: self.greeting(),
            ..Header::default()
        }
    }

    /// One path, and the boot generation.
    pub(crate) fn greeting(&self) -> ExtArea {
        let generation = Ext::GenNum(self.generation);
        ExtArea::EMPTY.with(Ext::NPaths(1)).with(generation)
    }

    fn push(&mut self, into: &mut Vec<Transmission>, header: &Header, payload: Bytes, fence: bool) {
        self.stream += (HEADER_LEN + payload.len()) as u64;
        into.push(Transmission::Frame(Frame {
            header: header.encode(),
            payload,
            fence,
            ack: false,
        }));
    }
}
