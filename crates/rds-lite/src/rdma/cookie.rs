//! What names memory to a peer.

use mr_core::RemoteKey;
use std::fmt;

bitflags::bitflags! {
    /// What becomes of a region.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MrFlags: u8 {
        /// Release it when the peer says that it has used it.
        const USE_ONCE = 1;
        /// Kill the key when it is released, rather than when the policy gets to it.
        const INVALIDATE = 2;
    }
}

/// Memory of another host: a key, and where the memory begins behind it.
///
/// Goes to the peer in a message (in its RDMA_DEST extension header, or in the payload as 64 bits:
/// the key low, the offset high).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cookie(u64);

impl Cookie {
    /// The cookie of this key and offset.
    pub const fn new(key: RemoteKey, offset: u32) -> Self {
        Self((offset as u64) << 32 | key.bits() as u64)
    }

    /// The cookie with these 64 bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The 64 bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The key.
    pub const fn key(self) -> RemoteKey {
        RemoteKey::from_bits(self.0 as u32)
    }

    /// Where the memory begins behind the key.
    pub const fn offset(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({}+{})", self.key(), self.offset())
    }
}
