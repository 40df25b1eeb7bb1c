//! What is measured beside the pool's own statistics.

use hdrhistogram::Histogram;

/// Latencies up to a day are told apart.
const LONGEST: u64 = 86_400_000_000_000;

/// Counts and peaks of one run.
#[derive(Debug)]
pub(crate) struct Meter {
    latencies: Histogram<u64>,
    /// I/Os that were leased, and how many of them had to wait for a region, and for how long.
    pub(crate) leases: u64,
    pub(crate) waits: u64,
    pub(crate) waited_ns: u128,
    pub(crate) bytes: u64,
    released: u64,
    dead: u64,
    pinned: u64,
    pub(crate) stale_peak: u64,
    pub(crate) pinned_peak: u64,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self {
            latencies: latency_histogram(),
            leases: 0,
            waits: 0,
            waited_ns: 0,
            bytes: 0,
            released: 0,
            dead: 0,
            pinned: 0,
            stale_peak: 0,
            pinned_peak: 0,
        }
    }

    /// An I/O that arrived at `arrived` has a region now.
    pub(super) fn leased(&mut self, arrived: u64, now: u64, bytes: u64) {
        let waited = now.saturating_sub(arrived);
        self.leases += 1;
        self.waits += u64::from(waited > 0);
        self.waited_ns += u128::from(waited);
        self.bytes += bytes;
        self.pinned += bytes;
        self.pinned_peak = self.pinned_peak.max(self.pinned);
    }

    pub(super) fn released(&mut self, arrived: u64, now: u64) {
        self.latencies
            .saturating_record(now.saturating_sub(arrived));
        self.released += 1;
        self.stale_peak = self.stale_peak.max(self.released - self.dead);
    }

    /// The key of a buffer of `bytes` bytes is dead.
    pub(super) fn died(&mut self, bytes: u64) {
        self.dead += 1;
        self.pinned = self.pinned.saturating_sub(bytes);
    }

    /// The latency that `percent` of all I/Os do not exceed, in µs.
    pub(crate) fn latency_us(&self, percent: f64) -> f64 {
        self.latencies.value_at_percentile(percent) as f64 / 1e3
    }
}

#[expect(
    clippy::expect_used,
    reason = "the bounds are constants, and every run makes one"
)]
fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("1 < LONGEST and 3 digits are in range")
}
