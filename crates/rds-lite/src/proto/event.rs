//! What the core wants done, and what it is told.

pub use crate::proto::slots::SockId;
use crate::rdma::{Buffers, Cookie, Leased};
use crate::wire::HEADER_LEN;
use bytes::Bytes;
use std::fmt;
use std::net::IpAddr;

/// A pair of addresses: what a connection is between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// The address on this host.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
}

impl Path {
    /// The same pair, seen from the peer.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}", self.local, self.remote)
    }
}

/// One link of a connection. Whatever names a former link is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId {
    pub(crate) conn: u32,
    pub(crate) incarnation: u64,
}

/// What the core wants of its driver.
#[derive(Debug)]
pub enum Event {
    /// Make a link, and say these bytes to the peer if the fabric can. The answer is
    /// [`Core::opened`](crate::proto::Core::opened),
    /// [`Core::rejected`](crate::proto::Core::rejected) or [`Core::lost`](crate::proto::Core::lost).
    Dial(LinkId, Path, Vec<u8>),
    /// Let go of this link; nothing is expected any more.
    Drop(LinkId, DropReason),
    /// Fetch what is to be sent: [`Core::transmit`](crate::proto::Core::transmit).
    Transmit(LinkId),
    /// Ask the fabric how much of this link has arrived: [`Core::arrived`](crate::proto::Core::arrived).
    Look(LinkId),
    /// A socket has something to be received.
    Readable(SockId),
    /// A socket may send again.
    Writable(SockId),
    /// Release this region; its peer has used it.
    Release(SockId, Cookie, Box<dyn Leased>),
    /// Kill this key, then say so: [`Core::key_dead`](crate::proto::Core::key_dead). Messages to the
    /// socket are held until then.
    Invalidate(SockId, Cookie, Box<dyn Leased>),
}

/// Why a link is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum DropReason {
    /// A header was damaged.
    #[error("a header was damaged")]
    BadHeader,
    /// A fragment does not belong to the message begun.
    #[error("a fragment belongs to another message")]
    BadFragment,
    /// The peer did not acknowledge in time.
    #[error("the peer did not acknowledge in time")]
    AckTimeout,
    /// The peer did not greet in time.
    #[error("the peer did not greet in time")]
    GreetTimeout,
    /// Of a message that was begun nothing more came in time.
    #[error("a message was begun and not finished in time")]
    Unfinished,
    /// Messages were shed for want of buffers; a new link brings them again.
    #[error("messages were shed for want of receive buffers")]
    Shed,
    /// The peer speaks no version that this side does, or is somebody else.
    #[error("the peer speaks another version, or has another address than was dialled")]
    Incompatible,
    /// The peer has made another link.
    #[error("the peer has made another link")]
    Replaced,
    /// The host shuts down.
    #[error("the host shuts down")]
    Closed,
}

/// A frame to be sent: a header, and the payload behind it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The header.
    pub header: [u8; HEADER_LEN],
    /// The payload of this fragment.
    pub payload: Bytes,
    /// It must not arrive before the RDMA reads in front of it have ended. Only where the fabric
    /// [can](crate::proto::LinkKind::fences).
    pub fence: bool,
    /// It is an acknowledgement and nothing else: where the fabric has [a request for
    /// it](crate::proto::LinkKind::own_ack), it may overtake what waits for room.
    pub ack: bool,
}

/// What goes to the fabric, in this order.
#[derive(Debug)]
pub enum Transmission {
    /// A frame.
    Frame(Frame),
    /// An RDMA operation. What follows may overtake a read.
    Rdma(RdmaWork),
}

/// An RDMA operation on memory of the peer.
///
/// The fabric owns the local buffers until it answers with exactly one [`RdmaDone`], also if the link
/// is lost.
#[derive(Debug)]
pub struct RdmaWork {
    /// Names the operation in the answer.
    pub op: u64,
    /// What to do.
    pub kind: OpKind,
    /// The peer's key.
    pub rkey: u32,
    /// Where to begin behind the key.
    pub offset: u64,
}

/// What an RDMA operation does, with its local buffers.
#[derive(Debug)]
pub enum OpKind {
    /// Writes the buffers to the peer, one behind the other.
    Write(Buffers),
    /// Fills the buffers from the peer, one after the other.
    Read(Buffers),
    /// Changes 8 bytes of the peer and fetches what they were.
    Atomic(AtomicOp),
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds.
    FetchAdd {
        /// What to add, wrapping.
        add: u64,
    },
    /// Stores a value if another is there.
    CompareSwap {
        /// What must be there.
        compare: u64,
        /// What is stored then.
        swap: u64,
    },
}

/// The end of an RDMA operation.
#[derive(Debug)]
pub struct RdmaDone {
    /// Which operation.
    pub op: u64,
    /// How it ended.
    pub status: DoneStatus,
    /// The local buffers; for an atomic operation the 8 bytes that were there, in the byte
    /// order of the host.
    pub buffers: Buffers,
}

impl RdmaWork {
    /// The end of this operation, with its buffers.
    pub fn end(self, status: DoneStatus) -> RdmaDone {
        let buffers = match self.kind {
            OpKind::Write(buffers) | OpKind::Read(buffers) => buffers,
            OpKind::Atomic(_) => Buffers::none(),
        };
        RdmaDone {
            op: self.op,
            status,
            buffers,
        }
    }
}

impl OpKind {
    /// Bytes that it moves.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Write(buffers) | Self::Read(buffers) => buffers.bytes(),
            Self::Atomic(_) => 8,
        }
    }
}

/// How an RDMA operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneStatus {
    /// Done.
    Success,
    /// The peer's HCA refused it.
    Refused,
    /// The link was lost; whether the operation took place is not known.
    Flushed,
    /// Something else went wrong.
    Failed,
}
