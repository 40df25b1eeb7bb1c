//! Why there is no connection.

use crate::{Errno, Error};
use std::fmt;

/// Why a peer rejected a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// Its application did not want it. The private data may say more.
    Application,
    /// Nobody listens there.
    NobodyListens,
    /// It still has an earlier connection of this kind.
    Stale,
    /// Another reason, by the number of the InfiniBand specification.
    Other(u32),
}

impl RejectReason {
    pub(crate) const fn from_raw(status: i32) -> Self {
        match status {
            8 => Self::NobodyListens,
            10 => Self::Stale,
            28 => Self::Application,
            other => Self::Other(other.unsigned_abs()),
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application => f.write_str("its application did not want it"),
            Self::NobodyListens => f.write_str("nobody listens at the port"),
            Self::Stale => f.write_str("it still has an earlier connection"),
            Self::Other(reason) => write!(f, "reason {reason}"),
        }
    }
}

/// Why a dial led to no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The peer is there and does not want it.
    #[error("the peer rejected the connection: {reason}")]
    Rejected {
        /// Why.
        reason: RejectReason,
        /// What it says to that, padded.
        private_data: Vec<u8>,
    },
    /// There is no way to the peer, or nobody at its end.
    #[error("the peer cannot be reached ({0}): is it up, and in the same network?")]
    Unreachable(Errno),
    /// There was no answer in time.
    #[error("no answer of the peer in time")]
    TimedOut,
    /// The waker was woken.
    #[error("the dial was cancelled")]
    Cancelled,
    /// Something failed at this end.
    #[error(transparent)]
    Failed(#[from] Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_what_it_is() {
        let text = |status| RejectReason::from_raw(status).to_string();
        assert_eq!(text(8), "nobody listens at the port");
        assert_eq!(text(28), "its application did not want it");
        assert_eq!(text(-9), "reason 9");
    }
}
