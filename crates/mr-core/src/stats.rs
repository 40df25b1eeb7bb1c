//! What a pool has done and what it holds, by value.

use crate::exposure::Durations;
use std::time::Duration;

/// Counters since the pool was built, and gauges of this moment.
///
/// Gauges are gathered list by list, so while other threads lease and release they may be off by
/// what moved meanwhile; none is ever negative. Gathering takes some µs, plus 100 µs or so for the
/// histograms, and holds up no lease for longer than one list takes to be looked at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// Where the regions are.
    pub regions: RegionCounts,
    /// Leases given.
    pub leases: u64,
    /// Leases that found no region, or too much stale, and had to help with a flush or wait.
    pub waits: u64,
    /// Leases refused since no region could be had in time.
    pub depleted: u64,
    /// Leases refused since the backend could not map the buffer.
    pub refused: u64,
    /// Leases that mapped a region again before it was invalidated.
    pub reused: u64,
    /// Releases after which a region had to wait for a flush.
    pub worn: u64,
    /// Times that a region's tag went from 255 to 0: from then on its key values repeat.
    pub tag_wraps: u64,
    /// Leases right now.
    pub leased: Load,
    /// Most leases at once: exact while each region is released by the thread that leased it, and
    /// else never less than the truth.
    pub peak_leased: Load,
    /// Flushes that took at least one region.
    pub flushes: u64,
    /// Regions that flushes have taken.
    pub flushed_regions: u64,
    /// Most regions that one flush has taken.
    pub largest_flush: u32,
    /// From the begin to the end of each flush.
    pub flush_durations: Durations,
    /// Released keys that may be honoured right now, and the bytes they reach.
    pub stale: Load,
    /// Most stale keys that a flush has found, and most bytes.
    pub peak_stale: Load,
    /// How long released keys stayed alive.
    pub exposure: Exposure,
    /// Regions that have gone to quarantine so far; one that fails again counts again.
    pub quarantines: u64,
    /// Regions in quarantine that are not tried again; their memory is leaked.
    pub leaked: u32,
    /// Buffers that wait to be reclaimed.
    pub unclaimed: u32,
    /// Buffers dropped since too many waited to be reclaimed.
    pub unclaimed_dropped: u64,
}

impl PoolStats {
    /// Regions per flush, in the mean; 0 before the first.
    pub fn regions_per_flush(&self) -> f64 {
        if self.flushes == 0 {
            0.0
        } else {
            self.flushed_regions as f64 / self.flushes as f64
        }
    }
}

/// A number of keys, and the bytes that they reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Keys.
    pub keys: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Where the regions of a pool are. Their sum is the capacity, exactly so while nothing moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionCounts {
    /// No key of them is honoured.
    pub clean: u32,
    /// Under a lease.
    pub leased: u32,
    /// Stale, and may be mapped again first.
    pub reusable: u32,
    /// Stale, and waiting for a flush.
    pub worn: u32,
    /// In the flush under way.
    pub in_flush: u32,
    /// In quarantine.
    pub quarantined: u32,
    /// Freed by a shutdown.
    pub freed: u32,
    /// Gone in a call of the backend that was to free them, and panicked.
    pub lost: u32,
}

impl RegionCounts {
    /// All of them.
    pub const fn total(&self) -> u32 {
        self.clean
            + self.leased
            + self.reusable
            + self.worn
            + self.in_flush
            + self.quarantined
            + self.freed
            + self.lost
    }
}

/// How long released keys stay alive: from the release to the end of the flush that killed them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exposure {
    /// The exposures of all keys that have died.
    pub ended: Durations,
    /// The longest of them, exactly.
    pub longest: Duration,
    /// The age of the key that has been stale for longest right now. Never less than the truth.
    pub oldest: Option<Duration>,
    /// The integral of stale keys over time, the present ones included: key-seconds.
    pub key_seconds: f64,
    /// The integral of the bytes that they reach: byte-seconds.
    pub byte_seconds: f64,
}
