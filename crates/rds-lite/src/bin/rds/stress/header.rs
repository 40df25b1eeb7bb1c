//! What every message of the load begins with: the header of rds-stress, and its pattern.

/// Bytes of the header.
pub(super) const HEADER: usize = 63;

/// Whether a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Answer,
}

/// What the answerer does to the asker's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rdma {
    None,
    Read,
    Write,
}

/// The header, as far as it is used here; the other fields of rds-stress are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) seq: u32,
    /// Which of the asker's requests under way.
    pub(super) index: u16,
    pub(super) kind: Kind,
    pub(super) rdma: Rdma,
    pub(super) pattern: u64,
    pub(super) cookie: u64,
    pub(super) rdma_bytes: u32,
}

impl Header {
    /// Writes the header to the front of `to`.
    pub(super) fn encode(&self, to: &mut [u8]) {
        to[..HEADER].fill(0);
        to[0..4].copy_from_slice(&self.seq.to_be_bytes());
        to[16..18].copy_from_slice(&self.index.to_be_bytes());
        to[18] = match self.kind {
            Kind::Request => 1,
            Kind::Answer => 2,
        };
        to[19] = match self.rdma {
            Rdma::None => 0,
            Rdma::Read => 1,
            Rdma::Write => 2,
        };
        to[36..44].copy_from_slice(&self.pattern.to_be_bytes());
        to[44..52].copy_from_slice(&self.cookie.to_be_bytes());
        to[52..56].copy_from_slice(&self.rdma_bytes.to_be_bytes());
    }

    /// The header in front of `from`, if it is one.
    pub(super) fn decode(from: &[u8]) -> Option<Self> {
        let from = from.get(..HEADER)?;
        Some(Self {
            seq: u32::from_be_bytes(from[0..4].try_into().ok()?),
            index: u16::from_be_bytes(from[16..18].try_into().ok()?),
            kind: match from[18] {
                1 => Kind::Request,
                2 => Kind::Answer,
                _ => return None,
            },
            rdma: match from[19] {
                0 => Rdma::None,
                1 => Rdma::Read,
                2 => Rdma::Write,
                _ => return None,
            },
            pattern: u64::from_be_bytes(from[36..44].try_into().ok()?),
            cookie: u64::from_be_bytes(from[44..52].try_into().ok()?),
            rdma_bytes: u32::from_be_bytes(from[52..56].try_into().ok()?),
        })
    }
}

/// The bytes behind the header: the generator of rds-stress.
pub(super) fn filler(len: usize) -> Vec<u8> {
    let mut key = 11_u8;
    let next = |at: usize| {
        key = key
            .wrapping_add(3)
            .wrapping_mul(41)
            .wrapping_add((at >> 8) as u8);
        key
    };
    (0..len).map(next).collect()
}

/// Bytes of a pattern; what is divided begins with a whole one in each piece.
pub(super) const PIECE: usize = 8;

/// The lengths of `count` buffers for `len` bytes, as even as patterns allow.
pub(super) fn divide(len: usize, count: usize) -> impl Iterator<Item = usize> {
    let patterns = len.div_ceil(PIECE);
    let start = move |index: usize| (patterns * index / count * PIECE).min(len);
    (0..count).map(move |index| start(index + 1) - start(index))
}

/// Fills memory with a pattern that tells one operation from another.
pub(super) fn fill(buffer: &mut [u8], pattern: u64) {
    for chunk in buffer.chunks_mut(PIECE) {
        chunk.copy_from_slice(&pattern.to_be_bytes()[..chunk.len()]);
    }
}

/// Whether memory is filled with the pattern.
pub(super) fn is_filled(buffer: &[u8], pattern: u64) -> bool {
    let bytes = pattern.to_be_bytes();
    buffer
        .chunks(PIECE)
        .all(|chunk| chunk == &bytes[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let header = Header {
            seq: 7,
            index: 3,
            kind: Kind::Request,
            rdma: Rdma::Write,
            pattern: 0x0102_0304_0506_0708,
            cookie: u64::MAX - 1,
            rdma_bytes: 1 << 20,
        };
        let mut bytes = [0xff; HEADER];
        header.encode(&mut bytes);
        assert_eq!(Header::decode(&bytes), Some(header));
        assert_eq!(Header::decode(&bytes[1..]), None);
        assert_eq!(Header::decode(&[0; HEADER]), None);
    }

    #[test]
    fn all_bytes_are_divided_and_every_buffer_begins_with_a_pattern() {
        for (len, count) in [(1, 1), (16, 2), (100, 12), (16 << 10, 512), (1 << 20, 7)] {
            let lengths: Vec<_> = divide(len, count).collect();
            assert_eq!((lengths.len(), lengths.iter().sum::<usize>()), (count, len));
            let (last, others) = lengths.split_last().unwrap();
            assert!(*last > 0 && others.iter().all(|&len| len > 0 && len % PIECE == 0));
        }
    }

    #[test]
    fn a_pattern_is_recognised() {
        let mut buffer = [0; 21];
        fill(&mut buffer, 0x1122_3344_5566_7788);
        assert!(is_filled(&buffer, 0x1122_3344_5566_7788));
        buffer[20] ^= 1;
        assert!(!is_filled(&buffer, 0x1122_3344_5566_7788));
        // The first numbers of the generator: 41 * (11 + 3), 41 * (62 + 3), ...
        assert_eq!(filler(3), [62, 105, 76]);
    }
}
