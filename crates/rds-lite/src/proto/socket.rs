//! What the core knows of a bound socket.

use crate::proto::Buf;
use crate::proto::outgoing::OVERHEAD;
use crate::rdma::{Buffers, Cookie, RegionTable};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// Who sent it.
    pub from: SocketAddr,
    /// Its payload.
    pub payload: Buf,
    /// Memory of the sender that this host may use.
    pub cookie: Option<Cookie>,
}

/// Something to know that is not a message.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notification {
    /// An RDMA operation has ended.
    Rdma {
        /// What the operation was named.
        token: u64,
        /// How it ended.
        status: Status,
        /// The local buffers, by ownership. For an atomic operation the 8 bytes that were there, in
        /// the byte order of the host.
        buffers: Buffers,
    },
    /// A message may not have arrived and will not be sent again.
    SendFailed {
        /// Where to.
        to: SocketAddr,
        /// What [`Socket::send_to`](crate::Socket::send_to) returned for it.
        id: u64,
        /// Why.
        reason: FailReason,
    },
    /// A peer host has begun anew. What it had acknowledged and its applications had not taken is
    /// lost; what it had not acknowledged is reported one by one. One that has had to forget this host for
    /// [other peers](crate::proto::Config::max_connections) appears so, too, and has lost nothing.
    PeerRestarted(IpAddr),
    /// A destination that refused a message of this socket takes messages again.
    Uncongested(SocketAddr),
}

/// How an RDMA operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// It was done, and its message has arrived.
    Success,
    /// The peer's HCA refused it.
    RemoteError,
    /// It was taken back before it began.
    Canceled,
    /// The link was lost; it may or may not have been done, and is not done again.
    Dropped,
    /// The fabric failed.
    OtherError,
}

/// Why a message will not be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailReason {
    /// The sender has taken it back.
    Canceled,
    /// It was for a socket of the same host, whose receive budget was used up.
    NoBuffer,
    /// The peer has begun anew, or has forgotten this host.
    PeerRestarted,
}

/// An RDMA operation that has not been reported.
#[derive(Debug)]
pub(crate) struct OpRecord {
    pub(crate) sock: super::SockId,
    pub(crate) token: u64,
    pub(crate) notify: bool,
    /// What the fabric said.
    pub(crate) done: Option<(super::DoneStatus, Buffers)>,
    /// What became of the message that goes with it.
    pub(crate) message: MessageFate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageFate {
    Pending,
    Arrived,
    Lost,
}

/// What may be received, in order: some of it waits for a key to die.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) message: Received,
    /// Not to be seen before this many keys of the socket have died.
    pub(crate) after_deaths: u64,
}

/// A socket.
#[derive(Debug)]
pub(crate) struct SocketState {
    pub(crate) addr: SocketAddr,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) queued_bytes: usize,
    /// What the messages in the queue take up of the receive budget.
    pub(crate) queued_room: usize,
    pub(crate) congested: bool,
    pub(crate) notes: VecDeque<Notification>,
    pub(crate) out_bytes: usize,
    pub(crate) out_messages: usize,
    pub(crate) regions: RegionTable,
    /// Keys to be dead before messages behind them are seen: how many were, and which are not.
    pub(crate) deaths_wanted: u64,
    pub(crate) dying: VecDeque<(Cookie, bool)>,
    pub(crate) deaths: u64,
    pub(crate) send_buffer: usize,
    pub(crate) receive_buffer: usize,
}

impl SocketState {
    pub(crate) fn new(addr: SocketAddr, send_buffer: usize, receive_buffer: usize) -> Self {
        Self {
            addr,
            queue: VecDeque::new(),
            queued_bytes: 0,
            queued_room: 0,
            congested: false,
            notes: VecDeque::new(),
            out_bytes: 0,
            out_messages: 0,
            regions: RegionTable::default(),
            deaths_wanted: 0,
            dying: VecDeque::new(),
            deaths: 0,
            send_buffer,
            receive_buffer,
        }
    }

    /// Whether a message of any length would be admitted: the kernel's rule.
    pub(crate) fn has_room(&self, max_queued: usize) -> bool {
        self.out_bytes < self.send_buffer && self.out_messages < max_queued
    }

    /// Whether its peers go on although it is congested, beyond what may have been on its way.
    pub(crate) fn is_overrun(&self) -> bool {
        self.congested && self.queued_room / 2 > self.receive_buffer
    }

    pub(crate) fn push(&mut self, message: Received) {
        self.queued_bytes += message.payload.len() + OVERHEAD;
        self.queued_room += message.payload.room();
        self.queue.push_back(Queued {
            message,
            after_deaths: self.deaths_wanted,
        });
    }

    /// The next message that may be seen.
    pub(crate) fn pop(&mut self) -> Option<Received> {
        if !self.has_message() {
            return None;
        }
        let queued = self.queue.pop_front()?;
        self.queued_bytes -= queued.message.payload.len() + OVERHEAD;
        self.queued_room -= queued.message.payload.room();
        Some(queued.message)
    }

    pub(crate) fn has_message(&self) -> bool {
        let first = self.queue.front();
        first.is_some_and(|queued| queued.after_deaths <= self.deaths)
    }

    pub(crate) fn is_readable(&self) -> bool {
        !self.notes.is_empty() || self.has_message()
    }

    /// Holds whatever arrives from now on until the key of `cookie` is dead.
    pub(crate) fn await_death(&mut self, cookie: Cookie) {
        self.deaths_wanted += 1;
        self.dying.push_back((cookie, false));
    }

    /// The key of `cookie` is dead. Deaths count in the order in which they were awaited.
    pub(crate) fn note_death(&mut self, cookie: Cookie) {
        let waiting = self
            .dying
            .iter_mut()
            .find(|entry| entry.0 == cookie && !entry.1);
        if let Some(entry) = waiting {
            entry.1 = true;
        }
        while self.dying.front().is_some_and(|entry| entry.1) {
            self.dying.pop_front();
            self.deaths += 1;
        }
    }
}
