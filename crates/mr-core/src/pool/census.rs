//! Counting: statistics by value, gathered list by list.

use crate::exposure::Ledger;
use crate::pool::core::{Core, earlier};
use crate::pool::shard::{Tally, count};
use crate::pool::slot::StaleSum;
use crate::stats::{Exposure, Load, PoolStats, RegionCounts};
use crate::{DmaBuffer, MrBackend, Time};
use std::sync::atomic::Ordering;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Where all regions are.
    pub(crate) fn regions(&self) -> RegionCounts {
        let mut counts = RegionCounts {
            clean: count(self.depot.regions()),
            in_flush: self.gate.in_flush(),
            quarantined: self.quarantine.lock().wards().regions,
            freed: self.freed.load(Ordering::Relaxed),
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
        // The dead before the released: what dies in between is then still counted as alive,
        // never as a key that was dead before it was released.
        let mut dead = Ledger::new();
        for ledger in &self.ledgers {
            dead.merge(&ledger.lock());
        }
        let now = self.now();
        let mut tally = Tally::default();
        let mut oldest = None;
        for shard in &self.shards {
            let shard = shard.lock();
            tally.merge(&shard.tally);
            oldest = earlier(oldest, shard.glance().oldest);
        }
        let flushes = self.gate.record();
        let wards = self.quarantine.lock().wards();
        let refused = self.refused.load(Ordering::Relaxed);
        let (unclaimed, unclaimed_dropped) = {
            let unclaimed = self.unclaimed.lock();
            (count(unclaimed.len()), unclaimed.dropped())
        };
        PoolStats {
            regions: self.regions(),
            leases: tally.out.saturating_sub(refused),
            waits: self.waits.load(Ordering::Relaxed),
            depleted: self.exhausted.load(Ordering::Relaxed),
            refused,
            reused: tally.reused,
            worn: tally.worn,
            tag_wraps: tally.tag_wraps,
            leased: Load {
                keys: tally.out.saturating_sub(tally.back),
                bytes: tally.bytes_out.saturating_sub(tally.bytes_back),
            },
            peak_leased: Load {
                keys: tally.peak_leased,
                bytes: tally.peak_leased_bytes,
            },
            flushes: flushes.flushes,
            flushed_regions: flushes.regions,
            largest_flush: flushes.largest,
            flush_durations: flushes.durations,
            stale: Load {
                keys: tally.released.keys - dead.dead.keys,
                bytes: tally.released.bytes - dead.dead.bytes,
            },
            peak_stale: Load {
                keys: flushes.peak_stale,
                bytes: flushes.peak_stale_bytes,
            },
            exposure: exposure(dead, &tally.released, oldest, now),
            quarantines: wards.ever,
            leaked: wards.leaked,
            unclaimed,
            unclaimed_dropped,
        }
    }
}

fn exposure(dead: Ledger, released: &StaleSum, oldest: Option<Time>, now: Time) -> Exposure {
    let mut alive = *released;
    alive.remove(&dead.dead);
    Exposure {
        longest: dead.longest,
        oldest: oldest.map(|oldest| now.since(oldest)),
        key_seconds: (dead.key_nanos + alive.key_nanos(now)) as f64 / 1e9,
        byte_seconds: (dead.byte_nanos + alive.byte_nanos(now)) as f64 / 1e9,
        ended: dead.into_exposures(),
    }
}
