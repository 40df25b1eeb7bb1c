//! Counting: statistics by value, gathered list by list.

use crate::exposure::Ledger;
use crate::pool::core::{Core, earlier};
use crate::pool::shard::{Tally, count};
use crate::pool::slot::StaleSum;
use crate::stats::{Exposure, Load, PoolStats, RegionCounts};
use crate::sync::atomic::Ordering;
use crate::{DmaBuffer, MrBackend, Time};
use std::time::Duration;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Where all regions are.
    pub(crate) fn regions(&self) -> RegionCounts {
        let mut counts = RegionCounts {
            clean: count(self.depot.regions()),
            in_flush: self.gate.in_flush().regions,
            quarantined: self.quarantine.lock().wards().regions,
            freed: self.freed.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            leased: self.leased(),
            ..RegionCounts::default()
        };
        for shard in &self.shards {
            let glance = shard.lock().glance();
            counts.clean += glance.clean;
            counts.reusable += glance.reusable;
            counts.worn += glance.worn;
        }
        counts
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.settle_all();
        let mut ledger = Ledger::new();
        let now = self.now();
        let mut tally = Tally::default();
        let wards = self.quarantine.lock().wards();
        let in_flush = self.gate.in_flush();
        let mut oldest = earlier(wards.oldest, in_flush.oldest);
        let (mut alive, superseded) = self.abroad.all();
        oldest = earlier(oldest, superseded);
        alive.merge(&in_flush.sum);
        alive.merge(&wards.sum);
        for shard in &self.shards {
            let shard = shard.lock();
            tally.merge(&shard.tally);
            ledger.merge(&shard.ledger);
            let glance = shard.glance();
            alive.merge(&glance.sum);
            oldest = earlier(oldest, glance.oldest);
        }
        let flushes = self.gate.record();
        let refused = self.refused.load(Ordering::Relaxed);
        PoolStats {
            regions: self.regions(),
            leases: tally.out.saturating_sub(tally.unmapped),
            waits: self.waits.load(Ordering::Relaxed),
            depleted: self.exhausted.load(Ordering::Relaxed),
            refused,
            reused: tally.reused,
            worn: tally.worn,
            tag_wraps: self.tag_wraps.load(Ordering::Relaxed),
            leased: Load {
                keys: u64::try_from(tally.leased.now()).unwrap_or(0),
                bytes: u64::try_from(tally.leased_bytes.now()).unwrap_or(0),
            },
            peak_leased: Load {
                keys: u64::try_from(tally.leased.peak()).unwrap_or(0),
                bytes: u64::try_from(tally.leased_bytes.peak()).unwrap_or(0),
            },
            flushes: flushes.flushes,
            flushed_regions: flushes.regions,
            largest_flush: flushes.largest,
            flush_durations: flushes.durations,
            stale: Load {
                keys: alive.keys,
                bytes: alive.bytes,
            },
            peak_stale: Load {
                keys: flushes.peak_stale,
                bytes: flushes.peak_stale_bytes,
            },
            exposure: exposure(ledger, &alive, oldest, now),
            quarantines: wards.ever,
            leaked: wards.leaked,
            unclaimed: count(self.unclaimed.count()),
            unclaimed_dropped: self.unclaimed.dropped(),
        }
    }
}

fn exposure(ledger: Ledger, alive: &StaleSum, oldest: Option<Time>, now: Time) -> Exposure {
    Exposure {
        longest: Duration::from_nanos(ledger.longest_nanos),
        oldest: oldest.map(|oldest| now.since(oldest)),
        key_seconds: (ledger.key_nanos + alive.key_nanos(now)) as f64 / 1e9,
        byte_seconds: (ledger.byte_nanos + alive.byte_nanos(now)) as f64 / 1e9,
        ended: ledger.into_exposures(),
    }
}
