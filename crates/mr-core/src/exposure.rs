//! How long keys stay alive after release: the measure that every policy is held to.

use crate::Time;
use crate::pool::slot::StaleSum;
use hdrhistogram::Histogram;
use std::time::Duration;

/// The longest duration that a histogram tells apart: a day. Anything longer counts as a day.
const LONGEST: u64 = 86_400_000_000_000;

/// A record of the keys that have died, kept by whoever kills them.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) key_nanos: u128,
    pub(crate) byte_nanos: u128,
    pub(crate) longest_nanos: u64,
    exposures: Buckets,
}

/// Counts of durations by their uppermost 8 bits: what a histogram of two digits tells apart, in a
/// form in which it costs next to nothing to count one. It takes 47 KiB.
#[derive(Clone, Debug)]
struct Buckets(Box<[u64; BUCKETS]>);

const BUCKETS: usize = Buckets::place(LONGEST) + 1;

/// Where the bits of a floating point number begin that say which bucket it belongs to: exponent,
/// and the 7 bits below the highest.
const FIRST_BIT: u32 = f64::MANTISSA_DIGITS - 1 - 7;

/// These bits of 1, less 1: bucket 0 is for no time at all.
const BELOW_ONE: u64 = (1.0_f64.to_bits() >> FIRST_BIT) - 1;

impl Buckets {
    fn new() -> Self {
        Self(Box::new([0; BUCKETS]))
    }

    /// Anything longer than a day counts as a day.
    #[inline]
    fn count(&mut self, nanos: u64) {
        self.0[Self::place(nanos).min(BUCKETS - 1)] += 1;
    }

    /// Which bucket. A duration has 63 bits, which last for 292 years.
    #[inline]
    const fn place(nanos: u64) -> usize {
        let bits = (nanos as i64 as f64).to_bits();
        (bits >> FIRST_BIT).saturating_sub(BELOW_ONE) as usize
    }

    /// The shortest duration of the bucket at `place`.
    fn shortest(place: usize) -> u64 {
        match place {
            0 => 0,
            place => f64::from_bits((place as u64 + BELOW_ONE) << FIRST_BIT) as u64,
        }
    }

    fn merge(&mut self, other: &Self) {
        for (mine, others) in self.0.iter_mut().zip(other.0.iter()) {
            *mine += others;
        }
    }

    fn into_histogram(self) -> Histogram<u64> {
        let mut histogram = duration_histogram();
        let counted = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        for (place, &count) in counted {
            histogram.saturating_record_n(Self::shortest(place), count);
        }
        histogram
    }
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            key_nanos: 0,
            byte_nanos: 0,
            longest_nanos: 0,
            exposures: Buckets::new(),
        }
    }

    /// Records that a key that was released at `released` is dead since `dead`;
    /// [`close`](Self::close) must count it, too.
    #[inline]
    pub(crate) fn record(&mut self, released: Time, dead: Time) {
        let nanos = dead.as_nanos().saturating_sub(released.as_nanos());
        self.longest_nanos = self.longest_nanos.max(nanos);
        self.exposures.count(nanos);
    }

    /// Adds the exposures of all that `sum` stands for to the integrals, in one go.
    pub(crate) fn close(&mut self, sum: &StaleSum, dead: Time) {
        self.key_nanos += sum.key_nanos(dead);
        self.byte_nanos += sum.byte_nanos(dead);
    }

    /// Adds what another ledger holds.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.key_nanos += other.key_nanos;
        self.byte_nanos += other.byte_nanos;
        self.longest_nanos = self.longest_nanos.max(other.longest_nanos);
        self.exposures.merge(&other.exposures);
    }

    pub(crate) fn into_exposures(self) -> Durations {
        Durations(self.exposures.into_histogram())
    }
}

/// A histogram of durations, exact to 1 %, from 1 ns to a day.
#[derive(Clone, Debug)]
pub struct Durations(Histogram<u64>);

impl Durations {
    pub(crate) fn new() -> Self {
        Self(duration_histogram())
    }

    pub(crate) fn record(&mut self, duration: Duration) {
        self.0
            .saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The mean; zero if nothing was recorded.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    /// The duration that `percent` of all (0 to 100) do not exceed; zero if nothing was recorded.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// The longest; zero if nothing was recorded.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// The recorded durations in ascending order, each with how often it was recorded.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.0.iter_recorded().map(|step| {
            (
                Duration::from_nanos(step.value_iterated_to()),
                step.count_at_value(),
            )
        })
    }
}

#[expect(
    clippy::expect_used,
    reason = "the bounds are constants, and a test makes one"
)]
fn duration_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 2).expect("1 < LONGEST and 2 digits are in range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_what_the_histogram_does_not_tell_apart() {
        let histogram = duration_histogram();
        for bits in 0..46 {
            let low = 1_u64 << bits;
            for nanos in [low, low + 1, low + low / 2, 2 * low - 1] {
                let place = Buckets::place(nanos);
                assert_eq!(Buckets::shortest(place), histogram.lowest_equivalent(nanos));
                let next = Buckets::place(histogram.next_non_equivalent(nanos));
                // Below 128 there are more buckets than durations.
                assert!(next == place + 1 || next > place && nanos < 128);
            }
        }
    }

    #[test]
    fn what_buckets_count_the_histogram_holds() {
        let mut buckets = Buckets::new();
        for nanos in [0, 1, 255, 256, 257, 258, 1_000_000, LONGEST, u64::MAX] {
            buckets.count(nanos);
        }
        buckets.merge(&buckets.clone());
        let histogram = buckets.into_histogram();
        assert_eq!(histogram.len(), 18);
        assert_eq!(histogram.count_at(256), 4);
        assert_eq!(histogram.count_at(LONGEST), 4);
        assert_eq!((histogram.min(), histogram.count_at(0)), (0, 2));
    }

    #[test]
    fn durations_saturate_at_a_day() {
        let mut durations = Durations::new();
        durations.record(Duration::from_secs(1_000_000));
        durations.record(Duration::ZERO);
        assert_eq!(durations.count(), 2);
        assert!(durations.max() >= Duration::from_secs(86_000));
        assert!(durations.buckets().count() == 2);
    }
}
