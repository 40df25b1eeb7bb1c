//! What can be wrong with what a task sees.

use super::HEADER;
use crate::proto::Status;
use std::net::{IpAddr, SocketAddr};

/// Something that must not happen: the run has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A message from somebody else.
    #[error("a message from {0}, which has no part in this")]
    Stranger(SocketAddr),
    /// A message that is none of the load.
    #[error("a message of {0} without a header of {HEADER} bytes")]
    NoHeader(SocketAddr),
    /// A message that is longer or shorter than was agreed.
    #[error("message {seq} of {from} has {len} bytes rather than {agreed}")]
    Length {
        /// Its number.
        seq: u32,
        /// Who sent it.
        from: SocketAddr,
        /// What it has.
        len: usize,
        /// What it should have.
        agreed: usize,
    },
    /// A payload that is not what was sent.
    #[error("message {seq} of {from} was changed")]
    Changed {
        /// Its number.
        seq: u32,
        /// Who sent it.
        from: SocketAddr,
    },
    /// A request out of order.
    #[error("request {seq} of {from} rather than {expected}")]
    Order {
        /// Its number.
        seq: u32,
        /// Who sent it.
        from: SocketAddr,
        /// The next number.
        expected: u32,
    },
    /// More requests under way than were agreed, or other memory.
    #[error("request {seq} of {from} is more than was agreed: {what}")]
    Beyond {
        /// Its number.
        seq: u32,
        /// Who sent it.
        from: SocketAddr,
        /// What is.
        what: &'static str,
    },
    /// An answer to nothing.
    #[error("an answer of {from} to nothing: {seq}")]
    Unasked {
        /// Its number.
        seq: u32,
        /// Who sent it.
        from: SocketAddr,
    },
    /// Memory that was lent holds something else than what should be in there.
    #[error("memory behind cookie {0:#x} holds something else than was written")]
    Memory(u64),
    /// A read has brought something else than what was lent.
    #[error("RDMA read {0} brought something else")]
    Read(u64),
    /// An operation has failed.
    #[error("RDMA operation {token} ended with {status:?}")]
    Operation {
        /// Its name.
        token: u64,
        /// How.
        status: Status,
    },
    /// A message may not have arrived.
    #[error("a message to {to} was lost: {reason}")]
    Lost {
        /// Where to.
        to: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The other host begins anew.
    #[error("{0} has begun anew")]
    Restarted(IpAddr),
    /// What the socket says.
    #[error(transparent)]
    Socket(Box<dyn std::error::Error + Send + Sync>),
}

impl Fault {
    /// What the socket says.
    pub fn socket(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Socket(error.into())
    }
}
