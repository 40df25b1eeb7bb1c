//! A count with its peak.

/// How much there is, and the most that there ever was. Kept as the peak and the distance below it: the
/// peak changes only when the distance is used up, so that to count in or out is one addition.
///
/// A region may come back in another shard than it was taken from: then one shard counts below zero
/// and another never comes down. Only the sum over all shards says how much there is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauge {
    peak: i64,
    below: i64,
}

impl Gauge {
    #[inline]
    pub(crate) const fn add(&mut self, amount: u64) {
        self.below = self.below.wrapping_sub_unsigned(amount);
        if self.below < 0 {
            self.rise();
        }
    }

    #[cold]
    const fn rise(&mut self) {
        self.peak = self.peak.wrapping_sub(self.below);
        self.below = 0;
    }

    #[inline]
    pub(crate) const fn remove(&mut self, amount: u64) {
        self.below = self.below.wrapping_add_unsigned(amount);
    }

    pub(crate) const fn now(&self) -> i64 {
        self.peak.wrapping_sub(self.below)
    }

    pub(crate) const fn peak(&self) -> i64 {
        self.peak
    }

    pub(crate) const fn merge(&mut self, other: &Self) {
        self.peak = self.peak.wrapping_add(other.peak);
        self.below = self.below.wrapping_add(other.below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_knows_how_much_there_is_and_was() {
        let mut gauge = Gauge::default();
        let mut truth = (0_i64, 0_i64);
        for (amount, more) in [(5, true), (3, false), (2, true), (4, false), (9, true)] {
            if more {
                gauge.add(amount);
                truth.0 += amount as i64;
            } else {
                gauge.remove(amount);
                truth.0 -= amount as i64;
            }
            truth.1 = truth.1.max(truth.0);
            assert_eq!((gauge.now(), gauge.peak()), truth);
        }
    }

    #[test]
    fn what_is_taken_here_and_comes_back_there_sums_to_zero() {
        let (mut here, mut there) = (Gauge::default(), Gauge::default());
        here.add(7);
        there.remove(7);
        there.add(3);
        assert_eq!((here.now(), there.now()), (7, -4));
        here.merge(&there);
        assert_eq!(here.now(), 3);
        assert!(here.peak() >= 7);
    }
}
