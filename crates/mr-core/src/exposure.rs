//! How long keys stay alive after release: the measure that every policy is held to.

use crate::Time;
use crate::pool::slot::{Mapping, StaleSum};
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
    exposures: Histogram<u64>,
    run: Run,
}

/// Exposures that fall into the same bucket one after the other, as in a batch they mostly do: they
/// are counted here, and go into the histogram together.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    low: u64,
    high: u64,
    count: u64,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            key_nanos: 0,
            byte_nanos: 0,
            longest_nanos: 0,
            exposures: duration_histogram(),
            run: Run::default(),
        }
    }

    /// Records that the key of `mapping` is dead since `dead`; [`close`](Self::close) must count
    /// it, too.
    pub(crate) fn record<M>(&mut self, mapping: &Mapping<M>, dead: Time) {
        let nanos = dead.as_nanos().saturating_sub(mapping.released.as_nanos());
        self.longest_nanos = self.longest_nanos.max(nanos);
        if nanos < self.run.low || nanos > self.run.high {
            self.end_run();
            let exposures = &self.exposures;
            self.run = Run {
                low: exposures.lowest_equivalent(nanos),
                high: exposures.highest_equivalent(nanos),
                count: 0,
            };
        }
        self.run.count += 1;
    }

    fn end_run(&mut self) {
        if self.run.count > 0 {
            self.exposures
                .saturating_record_n(self.run.low, self.run.count);
            self.run.count = 0;
        }
    }

    /// Adds the exposures of all that `sum` stands for to the integrals, in one go.
    pub(crate) fn close(&mut self, sum: &StaleSum, dead: Time) {
        self.key_nanos += sum.key_nanos(dead);
        self.byte_nanos += sum.byte_nanos(dead);
    }

    /// Adds what another ledger holds.
    pub(crate) fn merge(&mut self, other: &mut Self) {
        other.end_run();
        self.key_nanos += other.key_nanos;
        self.byte_nanos += other.byte_nanos;
        self.longest_nanos = self.longest_nanos.max(other.longest_nanos);
        // Both have the same bounds, so the sum always fits.
        let _ = self.exposures.add(&other.exposures);
    }

    pub(crate) fn into_exposures(self) -> Durations {
        Durations(self.exposures)
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
    fn durations_saturate_at_a_day() {
        let mut durations = Durations::new();
        durations.record(Duration::from_secs(1_000_000));
        durations.record(Duration::ZERO);
        assert_eq!(durations.count(), 2);
        assert!(durations.max() >= Duration::from_secs(86_000));
        assert!(durations.buckets().count() == 2);
    }
}
