//! RDMA operations on one loan, several at a time, that can be told apart and verified.

use super::content;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Operations at the same time, at most.
const MOST_DEPTH: u64 = 64;

/// Bytes of a part of the memory, at most.
const MOST_PART: usize = 1 << 20;

/// How far the ends of ragged parts are from those of whole ones, at most.
const RAGGED: usize = 16;

/// Operations on memory that is divided into parts. One after the other the parts are written, then read
/// back, then written anew, and so on. A message with its token is behind each; another one follows when all
/// have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// What the peer has lent.
    pub cookie: u64,
    /// Parts of the memory: at least the depth, so that what is read has been written.
    pub parts: u64,
    /// Bytes of a part.
    pub part: usize,
    /// Operations begin and end at odd places within their parts.
    pub ragged: bool,
    /// Operations.
    pub count: u64,
    /// Operations at the same time.
    pub depth: u64,
    /// Token of the first operation; the next is 1 more.
    pub first: u64,
}

/// How operations have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streamed {
    /// So many were begun; with a closed socket some have no end.
    pub begun: u64,
    /// So many have ended well.
    pub succeeded: u64,
    /// The peer's HCA has refused so many.
    pub refused: u64,
    /// The connection was lost under so many.
    pub dropped: u64,
}

impl Streamed {
    /// Whether all that were begun have ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.begun == self.succeeded + self.refused + self.dropped
    }
}

/// What has come behind operations. Nothing came twice, or in another order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Messages.
    pub messages: u64,
    /// Messages of the first operation and those behind it, without a gap.
    pub prefix: u64,
    /// The one behind all others was there.
    pub end: bool,
}

impl Stream {
    /// Whether it is one: parts that are not too long, and enough of them.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.depth > 0
            && self.depth <= MOST_DEPTH
            && self.depth <= self.parts
            && self.part > RAGGED
            && self.part <= MOST_PART
    }

    /// Bytes of the memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts as usize * self.part
    }

    /// Whether it has no memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What operation `nth` names itself; behind the last, the end.
    #[must_use]
    pub const fn token(&self, nth: u64) -> u64 {
        self.first.wrapping_add(nth)
    }

    /// Whether operation `nth` writes.
    #[must_use]
    pub const fn writes(&self, nth: u64) -> bool {
        (nth / self.parts).is_multiple_of(2)
    }

    /// Which bytes operation `nth` moves.
    #[must_use]
    pub fn range(&self, nth: u64) -> Range<usize> {
        let whole = (nth % self.parts) as usize * self.part;
        let whole = whole..whole + self.part;
        if !self.ragged {
            return whole;
        }
        // The same for a write and the read of it.
        let pair = (nth / (2 * self.parts) + nth % self.parts) as usize;
        whole.start + pair % RAGGED..whole.end - pair * 5 % RAGGED
    }

    /// What operation `nth` writes, or reads.
    #[must_use]
    pub fn bytes(&self, nth: u64) -> Vec<u8> {
        let written = if self.writes(nth) {
            nth
        } else {
            nth - self.parts
        };
        content(self.token(written), self.range(nth).len())
    }

    /// Makes of memory what `count` operations make of it.
    pub fn apply(&self, count: u64, memory: &mut [u8]) {
        for nth in (0..count).filter(|&nth| self.writes(nth)) {
            if let Some(part) = memory.get_mut(self.range(nth)) {
                part.copy_from_slice(&self.bytes(nth));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream {
        cookie: 0,
        parts: 16,
        part: 1000,
        ragged: true,
        count: 200,
        depth: 8,
        first: 77 << 32,
    };

    #[test]
    fn reads_are_of_what_was_written_and_parts_are_apart() {
        assert!(STREAM.is_sound());
        for nth in 0..STREAM.count {
            let range = STREAM.range(nth);
            assert_eq!(range.start / 1000, (range.end - 1) / 1000, "{range:?}");
            assert!(range.len() > 1000 - 2 * RAGGED && range.end <= STREAM.len());
            if !STREAM.writes(nth) {
                assert_eq!(range, STREAM.range(nth - 16));
                assert_eq!(STREAM.bytes(nth), STREAM.bytes(nth - 16));
            }
            if nth >= 32 {
                assert_ne!(STREAM.bytes(nth), STREAM.bytes(nth - 32));
            }
        }
        let mut memory = vec![0; STREAM.len()];
        STREAM.apply(16 + 3, &mut memory);
        let mut after = memory.clone();
        STREAM.apply(32, &mut after);
        assert_eq!(memory, after, "reads change nothing");
        STREAM.apply(33, &mut after);
        assert_ne!(memory[..1000], after[..1000]);
        assert_eq!(memory[1000..], after[1000..]);
    }

    #[test]
    fn what_could_not_be_verified_is_not_sound() {
        for stream in [
            Stream {
                depth: 17,
                ..STREAM
            },
            Stream { depth: 0, ..STREAM },
            Stream {
                depth: 65,
                parts: 65,
                ..STREAM
            },
            Stream {
                part: RAGGED,
                ..STREAM
            },
            Stream {
                part: MOST_PART + 1,
                ..STREAM
            },
        ] {
            assert!(!stream.is_sound(), "{stream:?}");
        }
    }
}
