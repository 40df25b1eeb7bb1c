//! One answer: what a policy costs and exposes under a load on a preset.

use crate::sim::outcome::Outcome;
use mr_core::{Exposure, PoolStats};
use mr_mock::Preset;
use mr_policies::Policy;
use serde::Serialize;

/// What one run has measured. Times are virtual.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The preset.
    pub preset: String,
    /// The policy, as text.
    pub policy: String,
    /// I/Os completed.
    pub ios: u64,
    /// Length of the run in seconds.
    pub elapsed_s: f64,
    /// Flushes.
    pub flushes: u64,
    /// Flushes per second.
    pub flushes_per_s: f64,
    /// Regions per flush, in the mean.
    pub regions_per_flush: f64,
    /// Look-ups per I/O that the MPT or MTT cache could not answer.
    pub tpt_misses_per_io: f64,
    /// Time of the HCA's engine per I/O, in µs: packets, misses, work requests, stalls.
    pub hca_us_per_io: f64,
    /// CPU time per I/O, in µs: maps and invalidations.
    pub cpu_us_per_io: f64,
    /// Time of the HCA's command interface per I/O, in µs: SYNC_TPT.
    pub command_us_per_io: f64,
    /// The three together: what an I/O costs.
    pub cost_us_per_io: f64,
    /// The part of the time in which a flush was under way.
    pub flush_load: f64,
    /// Payload in 10⁶ bytes per second.
    pub throughput_mb_s: f64,
    /// From arrival to the release of the lease, in µs.
    pub latency_us: Latency,
    /// Leases that had to wait for a region.
    pub waits: u64,
    /// How long those waited in the mean, in µs.
    pub wait_us_mean: f64,
    /// Stale keys.
    pub stale_keys: MeanMax,
    /// How long keys stay alive after release, in seconds; those still alive at the end count with
    /// the age that they have.
    pub exposure_s: MeanMax,
    /// The exposure that 99 % of the keys do not exceed, in seconds.
    pub exposure_p99_s: f64,
    /// Stale keys, integrated over time.
    pub key_seconds: f64,
    /// Bytes behind stale keys, integrated over time.
    pub byte_seconds: f64,
    /// The most bytes that leases and stale keys held at once.
    pub pinned_bytes_peak: u64,
    /// Whether no other policy on this preset is better in `cost_us_per_io` and no worse in mean
    /// exposure, or the other way round.
    pub pareto: bool,
}

/// Percentiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99 % do not exceed it.
    pub p99: f64,
    /// 99.9 % do not exceed it.
    pub p999: f64,
}

/// Mean and maximum.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MeanMax {
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub max: f64,
}

impl Row {
    /// `exposure` is that of all keys, those included that were alive at the end.
    pub(crate) fn new(
        preset: &Preset,
        policy: &Policy,
        outcome: Outcome,
        stats: &PoolStats,
        exposure: &Exposure,
    ) -> Self {
        let Outcome {
            elapsed,
            meter,
            costs,
            flushing,
        } = outcome;
        let elapsed_s = elapsed as f64 / 1e9;
        let ios = meter.leases.max(1) as f64;
        let us_per_io = |nanos: u64| nanos as f64 / 1e3 / ios;
        Self {
            preset: preset.name.clone(),
            policy: policy.to_string(),
            ios: meter.leases,
            elapsed_s,
            flushes: stats.flushes,
            flushes_per_s: stats.flushes as f64 / elapsed_s,
            regions_per_flush: stats.regions_per_flush(),
            tpt_misses_per_io: (costs.mpt_misses + costs.mtt_misses) as f64 / ios,
            hca_us_per_io: us_per_io(costs.hca_ns),
            cpu_us_per_io: us_per_io(costs.cpu_ns),
            command_us_per_io: us_per_io(costs.command_ns),
            cost_us_per_io: us_per_io(costs.hca_ns + costs.cpu_ns + costs.command_ns),
            flush_load: flushing as f64 / elapsed as f64,
            throughput_mb_s: meter.bytes as f64 / 1e6 / elapsed_s,
            latency_us: Latency {
                p50: meter.latency_us(50.0),
                p99: meter.latency_us(99.0),
                p999: meter.latency_us(99.9),
            },
            waits: meter.waits,
            wait_us_mean: meter.waited_ns as f64 / 1e3 / meter.waits.max(1) as f64,
            stale_keys: MeanMax {
                mean: exposure.key_seconds / elapsed_s,
                max: meter.stale_peak as f64,
            },
            exposure_s: MeanMax {
                mean: exposure.key_seconds / ios,
                max: exposure.longest.as_secs_f64(),
            },
            exposure_p99_s: exposure.ended.percentile(99.0).as_secs_f64(),
            key_seconds: exposure.key_seconds,
            byte_seconds: exposure.byte_seconds,
            pinned_bytes_peak: meter.pinned_peak,
            pareto: false,
        }
    }
}

/// Marks the rows that no other row of the same preset beats.
pub(crate) fn mark_pareto(rows: &mut [Row]) {
    let presets: Vec<_> = rows.iter().map(|row| row.preset.clone()).collect();
    let mut rows: Vec<_> = rows.iter_mut().collect();
    mark_pareto_within(&mut rows, &presets);
}

/// Marks the rows that no other row with the same key beats; there is a key per row.
pub(crate) fn mark_pareto_within<K: PartialEq>(rows: &mut [&mut Row], keys: &[K]) {
    let points: Vec<_> = rows
        .iter()
        .map(|row| (row.cost_us_per_io, row.exposure_s.mean))
        .collect();
    for (place, row) in rows.iter_mut().enumerate() {
        let (cost, exposure) = points[place];
        let beats = |&(other_cost, other_exposure): &(f64, f64)| {
            other_cost <= cost
                && other_exposure <= exposure
                && (other_cost < cost || other_exposure < exposure)
        };
        let mut rivals = points.iter().zip(keys);
        row.pareto = !rivals.any(|(point, key)| *key == keys[place] && beats(point));
    }
}
