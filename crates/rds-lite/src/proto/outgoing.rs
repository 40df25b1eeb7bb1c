//! A message on its way out.

use crate::proto::{OpKind, SockId};
use crate::rdma::Cookie;
use crate::wire::{Ext, ExtArea, Header};
use bytes::Bytes;
use std::net::SocketAddr;

/// What is charged for a message beside its payload, so that empty ones are bounded, too.
pub(crate) const OVERHEAD: usize = 64;

/// A message to be sent.
#[derive(Debug, Default)]
pub struct Sending {
    /// The payload.
    pub payload: Bytes,
    /// A region of the sending socket, for the peer to use.
    pub cookie: Option<Cookie>,
    /// An RDMA operation that takes place before the message arrives.
    pub op: Option<Posted>,
}

/// An RDMA operation that goes with a message.
#[derive(Debug)]
pub struct Posted {
    /// What to do.
    pub kind: OpKind,
    /// The peer's memory.
    pub cookie: Cookie,
    /// Where to begin in it.
    pub offset: u64,
    /// Whether the message waits for a read to have ended.
    pub fence: bool,
    /// Whether success is reported, too. Failures are always, and so is whatever has fetched
    /// something.
    pub notify: bool,
    /// What the report shall name.
    pub token: u64,
}

impl Posted {
    /// Where it begins behind the key; `None` if it would begin or end beyond all addresses. The cookie
    /// may come from a peer, and be anything.
    pub(crate) fn begin(&self) -> Option<u64> {
        let begin = self.offset.checked_add(u64::from(self.cookie.offset()))?;
        begin.checked_add(self.kind.bytes() as u64)?;
        Some(begin)
    }
}

/// A message that was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no room at this moment: the socket, the host or its notifications are full.
    #[error("no room to queue the message: wait until the socket is writable")]
    WouldBlock,
    /// The destination has too much queued; other destinations are not affected.
    #[error("{0} is congested: wait until it says that it is not")]
    Congested(SocketAddr),
    /// The message or the operation is longer than 1 MiB, or than the send buffer.
    #[error("{len} bytes, and at most {most} can be sent at once")]
    TooLong {
        /// Bytes to be sent.
        len: usize,
        /// Bytes allowed.
        most: usize,
    },
    /// The operation has too many local buffers.
    #[error(
        "{count} local buffers, and an operation has at most {}: copy small ones together",
        crate::rdma::MAX_BUFFERS
    )]
    TooManyBuffers {
        /// Buffers given.
        count: usize,
    },
    /// The operation would begin or end beyond the last address there is.
    #[error("{offset} behind the memory that the cookie names is beyond all addresses")]
    BadOffset {
        /// Where it was to begin in the memory.
        offset: u64,
    },
    /// The destination cannot be one.
    #[error("{0} is no address to send to from this socket")]
    BadDestination(SocketAddr),
    /// No destination was given and none is set.
    #[error("no destination: connect the socket, or name one")]
    NotConnected,
    /// There are too many connections, and all of them are in use.
    #[error("{0} connections are in use, and no more are allowed: raise max_connections")]
    TooManyPeers(usize),
    /// The fabric moves no memory.
    #[error("there is no RDMA on the way to {0}: send the bytes in a message")]
    NoRdma(SocketAddr),
    /// The cookie is not of this socket, or its region has been released.
    #[error("this socket has no region with this cookie")]
    UnknownCookie,
    /// The wait took longer than the socket's send timeout.
    #[error("the message could not be queued in time")]
    TimedOut,
    /// The socket or its host is closed.
    #[error("the socket is closed")]
    Closed,
}

/// Where the RDMA operation of a message is.
#[derive(Debug)]
pub(crate) enum OpStage {
    /// The message has none.
    None,
    /// It has not been handed to the fabric.
    Queued(Box<crate::proto::RdmaWork>, bool),
    /// The fabric has it or has done it; this is its name.
    Posted(u64),
}

/// A message in a queue.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) sock: Option<SockId>,
    pub(crate) id: u64,
    pub(crate) seq: u64,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) payload: Bytes,
    pub(crate) ext: ExtArea,
    pub(crate) op: OpStage,
    pub(crate) again: bool,
    /// Where it ended among the bytes of the link that it was last sent on.
    pub(crate) end: u64,
}

impl Outgoing {
    pub(crate) fn charge(&self) -> usize {
        self.payload.len() + OVERHEAD
    }

    pub(crate) fn header(&self) -> Header {
        Header {
            sequence: self.seq,
            len: self.payload.len() as u32,
            sport: self.sport,
            dport: self.dport,
            ext: self.ext,
            ..Header::default()
        }
    }

    /// An empty message without a socket: the answer to a ping or to a probe.
    pub(crate) fn answer(seq: u64, sport: u16, dport: u16, ext: ExtArea) -> Self {
        Self {
            sock: None,
            id: 0,
            seq,
            sport,
            dport,
            payload: Bytes::new(),
            ext,
            op: OpStage::None,
            again: false,
            end: 0,
        }
    }
}

/// The extension headers of a message: at most one of the two, as in the kernel.
pub(crate) fn ext_of(sending: &Sending) -> ExtArea {
    match (&sending.op, sending.cookie) {
        (Some(op), _) => ExtArea::EMPTY.with(Ext::Rdma {
            rkey: op.cookie.key().bits(),
        }),
        (None, Some(cookie)) => ExtArea::EMPTY.with(Ext::RdmaDest {
            rkey: cookie.key().bits(),
            offset: cookie.offset(),
        }),
        (None, None) => ExtArea::EMPTY,
    }
}
