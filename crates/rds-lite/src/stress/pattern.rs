//! What messages and memory are filled with.

/// The bytes behind the header: the generator of rds-stress.
#[must_use]
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
pub fn divide(len: usize, count: usize) -> impl Iterator<Item = usize> {
    let patterns = len.div_ceil(PIECE);
    let start = move |index: usize| (patterns * index / count * PIECE).min(len);
    (0..count).map(move |index| start(index + 1) - start(index))
}

/// Fills memory with a pattern that tells one operation from another.
pub fn fill(buffer: &mut [u8], pattern: u64) {
    for chunk in buffer.chunks_mut(PIECE) {
        chunk.copy_from_slice(&pattern.to_be_bytes()[..chunk.len()]);
    }
}

/// Whether memory is filled with the pattern.
#[must_use]
pub fn is_filled(buffer: &[u8], pattern: u64) -> bool {
    let bytes = pattern.to_be_bytes();
    buffer
        .chunks(PIECE)
        .all(|chunk| chunk == &bytes[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

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
