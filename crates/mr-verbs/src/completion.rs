//! How a work request ended.

use crate::sys::RawCompletion;
use std::fmt;

/// How a work request ended. The numbers are those of libibverbs, which tools print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// It was done.
    Success,
    /// The queue pair was in error, and it was not done.
    Flushed,
    /// A window was not bound.
    WindowBind,
    /// The peer's HCA refused the key, the range or the operation.
    RemoteAccess,
    /// The peer's HCA did not understand the request; an invalidation of a key that it does not
    /// know ends its receiver so.
    RemoteInvalidRequest,
    /// The peer did not answer.
    RetryExceeded,
    /// The peer had no receive buffer for too long.
    ReceiverNotReady,
    /// Any other failure, by its number.
    Other(u32),
}

impl Status {
    pub(crate) const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Success,
            5 => Self::Flushed,
            6 => Self::WindowBind,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            12 => Self::RetryExceeded,
            13 => Self::ReceiverNotReady,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("done"),
            Self::Flushed => f.write_str("flushed (status 5): the queue pair was in error"),
            Self::WindowBind => f.write_str("window not bound (status 6)"),
            Self::RemoteInvalidRequest => f.write_str("invalid request to the peer (status 9)"),
            Self::RemoteAccess => f.write_str("remote access error (status 10)"),
            Self::RetryExceeded => f.write_str("the peer did not answer (status 12)"),
            Self::ReceiverNotReady => f.write_str("the peer had no receive buffer (status 13)"),
            Self::Other(status) => write!(f, "failed with status {status}"),
        }
    }
}

/// A completion of a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) slot: u64,
    pub(crate) status: Status,
    pub(crate) bytes: u32,
    /// The key that the peer had our HCA invalidate.
    pub(crate) invalidated: Option<u32>,
}

impl Arrival {
    /// `kernel_flags`: the provider hands the kernel's flags through, as that of Soft-RoCE does.
    ///
    /// The kernel's flag of an invalidation is libibverbs' flag of a good checksum, so it counts
    /// nowhere else; and immediate data, which shares its place with the key and is what the peer
    /// wants it to be, never counts as a key.
    pub(crate) fn from_raw(raw: &RawCompletion, kernel_flags: bool) -> Self {
        let status = Status::from_raw(raw.status);
        let with_inv =
            raw.flags & WITH_INV != 0 || (kernel_flags && raw.flags & WITH_INV_OF_KERNEL != 0);
        let with_imm = raw.flags & WITH_IMM != 0;
        let invalidated = with_inv && !with_imm && status == Status::Success;
        Self {
            slot: raw.id,
            status,
            bytes: raw.bytes,
            invalidated: invalidated.then_some(raw.key),
        }
    }
}

/// `IBV_WC_WITH_IMM`, the same in the kernel.
const WITH_IMM: u32 = 1 << 1;
/// `IBV_WC_WITH_INV`.
const WITH_INV: u32 = 1 << 3;
/// The kernel's `IB_WC_WITH_INVALIDATE`.
const WITH_INV_OF_KERNEL: u32 = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(status: u32, flags: u32, kernel_flags: bool) -> Option<u32> {
        let raw = RawCompletion {
            id: 7,
            status,
            bytes: 3,
            flags,
            key: 0x1234,
        };
        Arrival::from_raw(&raw, kernel_flags).invalidated
    }

    #[test]
    fn each_provider_is_understood_by_its_own_flag() {
        for flags in [1 << 3, 0x9, 0xd] {
            assert_eq!(key(0, flags, false), Some(0x1234), "{flags:#x}");
            assert_eq!(key(0, flags, true), Some(0x1234), "{flags:#x}");
        }
        assert_eq!(
            key(0, 0x5, true),
            Some(0x1234),
            "what Soft-RoCE was seen to deliver"
        );
        assert_eq!(key(0, 0x5, false), None, "a good checksum");
    }

    #[test]
    fn nothing_else_is_an_invalidation() {
        for kernel_flags in [false, true] {
            for flags in [0, 1, 1 << 4, 1 << 1, 1 << 1 | 1 << 2, 1 << 1 | 1 << 3] {
                assert_eq!(key(0, flags, kernel_flags), None, "{flags:#x}");
            }
            assert_eq!(key(5, 1 << 3, kernel_flags), None, "nothing arrived");
        }
    }
}
