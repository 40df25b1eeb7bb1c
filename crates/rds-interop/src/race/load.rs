//! What is asked and answered.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Requests without an answer at the same time.
    pub depth: usize,
    /// Bytes of each request and of each answer.
    pub message: usize,
    /// Bytes that the answerer writes to the asker's memory ahead of each answer; 0: none.
    pub rdma: usize,
}

impl Load {
    /// The most that an agent accepts.
    pub(super) const MOST: Self = Self {
        depth: 64,
        message: 64 << 10,
        rdma: 1 << 20,
    };

    /// Whether it stays within [`MOST`](Self::MOST), and messages have room for a [`Note`].
    pub(super) const fn is_sane(self) -> bool {
        let rdma = self.rdma == 0 || self.rdma >= 2 * STAMP;
        rdma && self.depth >= 1
            && self.depth <= Self::MOST.depth
            && self.message >= Note::LEN
            && self.message <= Self::MOST.message
            && self.rdma <= Self::MOST.rdma
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rdma {
            0 => write!(f, "messages of {}", Bytes(self.message))?,
            rdma => write!(f, "RDMA of {}", Bytes(rdma))?,
        }
        write!(f, ", depth {}", self.depth)
    }
}

struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => {
                write!(f, "{} MiB", bytes >> 20)
            }
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => {
                write!(f, "{} KiB", bytes >> 10)
            }
            bytes => write!(f, "{bytes} B"),
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// An answer, to get warm.
    WarmUp = 0,
    /// An answer that counts.
    Answer = 1,
    /// An answer, and no more after it.
    Last = 2,
}

/// The begin of each request, and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// Which request.
    pub(super) number: u64,
    /// In which place of the asker's it waits for its answer.
    pub(super) slot: u32,
    pub(super) wish: Wish,
}

impl Note {
    pub(super) const LEN: usize = 16;

    /// Writes it to the begin of a message.
    pub(super) fn write(self, message: &mut [u8]) {
        if let Some(begin) = message.first_chunk_mut::<{ Self::LEN }>() {
            begin[..8].copy_from_slice(&self.number.to_be_bytes());
            begin[8..12].copy_from_slice(&self.slot.to_be_bytes());
            begin[12..].copy_from_slice(&(self.wish as u32).to_be_bytes());
        }
    }

    /// Reads the begin of a message.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let (number, rest) = message.split_first_chunk()?;
        let (slot, rest) = rest.split_first_chunk()?;
        let wish = match u32::from_be_bytes(*rest.first_chunk()?) {
            0 => Wish::WarmUp,
            1 => Wish::Answer,
            2 => Wish::Last,
            _ => return None,
        };
        Some(Self {
            number: u64::from_be_bytes(*number),
            slot: u32::from_be_bytes(*slot),
            wish,
        })
    }
}

/// Bytes of a stamp, which is at both ends of what is written by RDMA: the number of its request.
pub(super) const STAMP: usize = size_of::<u64>();

/// Stamps memory that is to be written to the asker's.
pub(super) fn stamp(memory: &mut [u8], number: u64) {
    if let Some(begin) = memory.first_chunk_mut() {
        *begin = number.to_ne_bytes();
    }
    if let Some(end) = memory.last_chunk_mut() {
        *end = number.to_ne_bytes();
    }
}

/// The stamps of memory.
pub(super) fn stamps(memory: &[u8]) -> Option<[u64; 2]> {
    let ends = [*memory.first_chunk()?, *memory.last_chunk()?];
    Some(ends.map(u64::from_ne_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_and_damage_is_seen() {
        for wish in [Wish::WarmUp, Wish::Answer, Wish::Last] {
            let note = Note {
                number: 1 << 40 | 7,
                slot: 3,
                wish,
            };
            let mut message = [9; 20];
            note.write(&mut message);
            assert_eq!(Note::read(&message), Some(note));
            assert_eq!(message[16..], [9; 4]);
            assert_eq!(Note::read(&message[..15]), None);
            message[15] = 3;
            assert_eq!(Note::read(&message), None);
        }
    }

    #[test]
    fn stamps_are_at_both_ends() {
        let mut memory = [0; 100];
        stamp(&mut memory, 77);
        assert_eq!(stamps(&memory), Some([77, 77]));
        memory[99] ^= 1;
        assert_ne!(stamps(&memory), Some([77, 77]));
        assert_eq!(stamps(&memory[..7]), None);
    }

    #[test]
    fn loads_are_bounded_and_have_names() {
        let load = |depth, message, rdma| Load {
            depth,
            message,
            rdma,
        };
        assert!(load(8, 1024, 1 << 20).is_sane());
        for bad in [
            load(0, 1024, 0),
            load(65, 1024, 0),
            load(1, 15, 0),
            load(1, 70_000, 0),
            load(1, 64, 15),
            load(1, 64, (1 << 20) + 1),
        ] {
            assert!(!bad.is_sane(), "{bad:?}");
        }
        let shown = load(8, 1024, 0).to_string();
        assert_eq!(shown, "messages of 1 KiB, depth 8");
        let shown = load(8, 256, 65_536).to_string();
        assert_eq!(shown, "RDMA of 64 KiB, depth 8");
    }
}
