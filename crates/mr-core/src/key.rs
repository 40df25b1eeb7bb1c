//! Keys: what a peer presents to touch memory, and what the local HCA presents.

use std::fmt;

/// The low 8 bits of a key: the part that changes from map to map.
///
/// Advancing wraps from 255 to 0 and never touches the index, so a region's tag never restarts
/// and a key value comes back only after 256 maps of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyTag(u8);

impl KeyTag {
    /// How many tags there are: 256.
    pub const COUNT: u32 = 1 << 8;

    /// A tag of this value.
    pub const fn new(value: u8) -> Self {
        Self(value)
    }

    /// The tag's value.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The tag of the next mapping.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);

        impl $name {
            /// The key with this 24-bit index and tag. Bits of `index` above the 24th are dropped.
            pub const fn new(index: u32, tag: KeyTag) -> Self {
                Self(index << 8 | tag.0 as u32)
            }

            /// The key with these 32 bits, as they stand on the wire.
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// The 32 bits of the key, as they stand on the wire.
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// The upper 24 bits: which table entry the key names.
            pub const fn index(self) -> u32 {
                self.0 >> 8
            }

            /// The low 8 bits: which mapping of that entry the key names.
            pub const fn tag(self) -> KeyTag {
                KeyTag(self.0 as u8)
            }

            /// The same index with another tag.
            #[must_use]
            pub const fn with_tag(self, tag: KeyTag) -> Self {
                Self(self.0 & !0xff | tag.0 as u32)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#010x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#010x}", self.0)
            }
        }
    };
}

key! {
    /// A key for a peer (rkey): whoever presents it may touch the mapped memory.
    ///
    /// It does not convert to or from a [`LocalKey`]; on hardware where the two happen to be
    /// equal a mix-up would work, and fail on the next machine.
    ///
    /// ```compile_fail
    /// # use mr_core::{LocalKey, RemoteKey};
    /// fn wants_remote(_: RemoteKey) {}
    /// wants_remote(LocalKey::from_bits(1));
    /// ```
    RemoteKey
}

key! {
    /// A key for the local HCA (lkey): goes into this host's own work requests.
    LocalKey
}

/// Both keys of one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// For this host's own work requests.
    pub local: LocalKey,
    /// For the peer.
    pub remote: RemoteKey,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_wraps_without_touching_the_index() {
        for bits in [0, 0xff, 0x1234_56ff, u32::MAX, 0xffff_ff00] {
            let mut key = RemoteKey::from_bits(bits);
            for _ in 0..KeyTag::COUNT {
                let next = key.with_tag(key.tag().next());
                assert_eq!(next.index(), key.index());
                assert_ne!(next, key);
                key = next;
            }
            assert_eq!(key.bits(), bits, "a key comes back after exactly 256 maps");
            assert_eq!(RemoteKey::new(key.index(), key.tag()), key);
        }
    }
}
