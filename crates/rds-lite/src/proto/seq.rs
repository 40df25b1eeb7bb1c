//! Message numbers: they wrap, and 0 stands for none.

/// The number after `seq`.
pub(crate) const fn next(seq: u64) -> u64 {
    match seq.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Whether `a` comes before `b`: they are never half of all numbers apart.
pub(crate) const fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// Whether `ack` says that `seq` has arrived.
pub(crate) const fn covers(ack: u64, seq: u64) -> bool {
    ack != 0 && !before(ack, seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_around_nothing() {
        let mut seq = u64::MAX - 2;
        for _ in 0..6 {
            let next = next(seq);
            assert!(next != 0 && before(seq, next) && !before(next, seq));
            assert!(covers(next, seq) && covers(seq, seq) && !covers(seq, next));
            seq = next;
        }
        assert!(!covers(0, u64::MAX - 2) && !covers(0, 1));
        let half = 1 << 32;
        assert!(before(half - 2, half) && covers(half, half - 2));
    }
}
