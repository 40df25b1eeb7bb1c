//! What memory is filled with.

use super::{Messages, Sizes};
use std::hash::{DefaultHasher, Hasher};

/// So many bytes, which depend on `seed`.
#[must_use]
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let messages = Messages {
        seed,
        first: seed,
        count: 1,
        sizes: Sizes::Cycle(vec![len]),
    };
    messages.write(seed, &mut bytes);
    bytes
}

/// A number that other bytes do not have. The same in all processes of one build.
#[must_use]
pub fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
