//! What was measured, and what follows from it.

use super::Plan;
use crate::row::{Latency, MeanMax};
use serde::Serialize;

/// A kind of memory management, without RDMA writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Registration and deregistration for each I/O, of memory from the heap.
    Registration,
    /// The same of memory of an arena, which is registered already and may lie in large pages.
    RegistrationArena,
    /// The backend's map and invalidation, one by one, each waited for.
    OneByOne,
    /// Maps, each waited for; then invalidations in batches.
    Waited,
    /// Maps with a request behind each in one doorbell, and no wait; then invalidations in batches.
    Chained,
    /// A chain of maps in one doorbell, and then a chain of invalidations: what the work requests
    /// themselves cost.
    Chains,
    /// The requests alone, which have to be sent anyway.
    Request,
    /// As `Waited`, by leases of a pool and a flush.
    PoolWaited,
    /// As `Chained`, by leases of a pool and a flush.
    PoolChained,
}

impl Step {
    /// What it is called in a table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Registration => "registration + deregistration per I/O",
            Self::RegistrationArena => "the same of an arena's memory",
            Self::OneByOne => "bare: map and invalidation one by one",
            Self::Waited => "bare: maps waited for, invalidation in batches",
            Self::Chained => "bare: map chained with request, invalidation in batches",
            Self::Chains => "bare: a chain of maps, a chain of invalidations",
            Self::Request => "request alone",
            Self::PoolWaited => "pool: maps waited for, flush",
            Self::PoolChained => "pool: map chained with request, flush",
        }
    }
}

/// One batch of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Wall time of the maps (and requests), in ns.
    pub map_ns: u64,
    /// Wall time of the invalidations, in ns.
    pub invalidate_ns: u64,
    /// CPU time of the process, in ns.
    pub cpu_ns: u64,
}

impl Sample {
    /// Wall time of both, in ns.
    pub const fn wall_ns(&self) -> u64 {
        self.map_ns + self.invalidate_ns
    }
}

/// All rounds of one kind. Those of several kinds that were measured together have the same length.
#[derive(Clone, Debug)]
pub struct Series {
    /// The kind.
    pub step: Step,
    /// A sample per round.
    pub samples: Vec<Sample>,
}

/// One kind of memory management per I/O: medians, in µs.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Alone {
    /// The kind.
    pub step: Step,
    /// Wall time.
    pub wall_us_per_io: f64,
    /// A quarter of the rounds took less.
    pub wall_us_quartile_low: f64,
    /// A quarter of the rounds took more.
    pub wall_us_quartile_high: f64,
    /// The maps' part.
    pub map_us_per_io: f64,
    /// The invalidations' part.
    pub invalidate_us_per_io: f64,
    /// CPU time of the process, the peer included.
    pub cpu_us_per_io: f64,
}

/// How many times as much wall time registration and deregistration per I/O take, and what the pool
/// adds. Each is the median of what the rounds say for themselves; `None` if it was not measured.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Ratios {
    /// Against the backend one by one.
    pub one_by_one: Option<f64>,
    /// Against maps waited for and batches.
    pub waited: Option<f64>,
    /// The same through the pool.
    pub pool_waited: Option<f64>,
    /// Against a chain of maps and a chain of invalidations.
    pub chains: Option<f64>,
    /// Against chained maps and batches, without the requests.
    pub chained: Option<f64>,
    /// The same through the pool.
    pub pool_chained: Option<f64>,
    /// The pool's own time over that of the bare calls, maps waited for.
    pub pool_share_waited: Option<f64>,
    /// The pool's own time over that of the bare chain: bind, request, invalidation.
    pub pool_share_chained: Option<f64>,
    /// The same without the requests.
    pub pool_share_chained_alone: Option<f64>,
}

/// One policy under the load: the columns of [`Row`](crate::row::Row) that can be measured, each
/// the median of the rounds.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// The backend.
    pub backend: String,
    /// The policy, as text.
    pub policy: String,
    /// I/Os of a round.
    pub ios: u64,
    /// Length of a round in seconds.
    pub elapsed_s: f64,
    /// Flushes in a round.
    pub flushes: f64,
    /// Flushes per second.
    pub flushes_per_s: f64,
    /// Regions per flush, in the mean.
    pub regions_per_flush: f64,
    /// CPU time of maps, releases and flushes per I/O, in µs, of the flusher's thread too. On a
    /// software device the HCA's part is in it.
    pub cpu_us_per_io: f64,
    /// CPU time of the whole process per I/O, in µs, the peer and its RDMA write included.
    pub process_cpu_us_per_io: f64,
    /// How long lease and release hold up the caller per I/O, in µs.
    pub caller_us_per_io: f64,
    /// Payload in 10⁶ bytes per second.
    pub throughput_mb_s: f64,
    /// From arrival to the release of the lease, in µs.
    pub latency_us: Latency,
    /// Leases that had to wait for a region.
    pub waits: f64,
    /// How long keys stay alive after release, in seconds.
    pub exposure_s: MeanMax,
    /// Stale keys, integrated over time.
    pub key_seconds: f64,
    /// CPU time per I/O of registration and deregistration per I/O, over that of this: 2 means that
    /// this costs half.
    pub registration_ratio: f64,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Measurement {
    /// What was asked.
    pub plan: Plan,
    /// The device.
    pub device: String,
    /// Whether the CPU is the HCA.
    pub software: bool,
    /// Memory management alone.
    pub alone: Vec<Alone>,
    /// What follows from it.
    pub ratios: Ratios,
    /// The load; the first is registration and deregistration per I/O.
    pub rows: Vec<Measured>,
}

impl Alone {
    /// From the rounds of one kind, of `batch` I/Os each.
    pub fn new(series: &Series, batch: u32) -> Self {
        let per_io = |percent, value: fn(&Sample) -> u64| {
            let values = series.samples.iter().map(|sample| value(sample) as f64);
            quantile(values, percent) / 1e3 / f64::from(batch)
        };
        Self {
            step: series.step,
            wall_us_per_io: per_io(0.5, Sample::wall_ns),
            wall_us_quartile_low: per_io(0.25, Sample::wall_ns),
            wall_us_quartile_high: per_io(0.75, Sample::wall_ns),
            map_us_per_io: per_io(0.5, |sample| sample.map_ns),
            invalidate_us_per_io: per_io(0.5, |sample| sample.invalidate_ns),
            cpu_us_per_io: per_io(0.5, |sample| sample.cpu_ns),
        }
    }
}

impl Ratios {
    /// From kinds that were measured together.
    pub fn new(all: &[Series]) -> Self {
        let walls = |step| {
            let series = all.iter().find(|series| series.step == step)?;
            let walls = series.samples.iter().map(|sample| sample.wall_ns() as f64);
            Some(walls.collect::<Vec<_>>())
        };
        let registration = walls(Step::Registration);
        let request = walls(Step::Request);
        let waited = walls(Step::Waited);
        let chained = walls(Step::Chained);
        let pool_waited = walls(Step::PoolWaited);
        let pool_chained = walls(Step::PoolChained);
        let chained_alone = by_round(&chained, &request, |whole, request| whole - request);
        let pool_alone = by_round(&pool_chained, &request, |whole, request| whole - request);
        let pool_own = by_round(&pool_chained, &chained, |pool, bare| pool - bare);
        let against = |other: &Option<Vec<f64>>| over(&registration, other);
        Self {
            one_by_one: against(&walls(Step::OneByOne)),
            waited: against(&waited),
            pool_waited: against(&pool_waited),
            chains: against(&walls(Step::Chains)),
            chained: against(&chained_alone),
            pool_chained: against(&pool_alone),
            pool_share_waited: over(&pool_waited, &waited).map(|share| share - 1.0),
            pool_share_chained: over(&pool_own, &chained),
            pool_share_chained_alone: over(&pool_own, &chained_alone),
        }
    }
}

impl Measured {
    /// The medians of rounds of one policy; `None` without a round.
    pub fn median(rounds: &[Self]) -> Option<Self> {
        let first = rounds.first()?;
        let median = |value: fn(&Self) -> f64| quantile(rounds.iter().map(value), 0.5);
        Some(Self {
            backend: first.backend.clone(),
            policy: first.policy.clone(),
            ios: first.ios,
            elapsed_s: median(|row| row.elapsed_s),
            flushes: median(|row| row.flushes),
            flushes_per_s: median(|row| row.flushes_per_s),
            regions_per_flush: median(|row| row.regions_per_flush),
            cpu_us_per_io: median(|row| row.cpu_us_per_io),
            process_cpu_us_per_io: median(|row| row.process_cpu_us_per_io),
            caller_us_per_io: median(|row| row.caller_us_per_io),
            throughput_mb_s: median(|row| row.throughput_mb_s),
            latency_us: Latency {
                p50: median(|row| row.latency_us.p50),
                p99: median(|row| row.latency_us.p99),
                p999: median(|row| row.latency_us.p999),
            },
            waits: median(|row| row.waits),
            exposure_s: MeanMax {
                mean: median(|row| row.exposure_s.mean),
                max: median(|row| row.exposure_s.max),
            },
            key_seconds: median(|row| row.key_seconds),
            registration_ratio: median(|row| row.registration_ratio),
        })
    }
}

fn by_round(
    first: &Option<Vec<f64>>,
    second: &Option<Vec<f64>>,
    of: impl Fn(f64, f64) -> f64,
) -> Option<Vec<f64>> {
    let pairs = first.as_ref()?.iter().zip(second.as_ref()?);
    Some(pairs.map(|(&first, &second)| of(first, second)).collect())
}

/// The median of one over the other, round by round; `None` if the median of the other is not above
/// zero, as a difference of two times that are too close may be.
fn over(first: &Option<Vec<f64>>, second: &Option<Vec<f64>>) -> Option<f64> {
    let below = quantile(second.as_ref()?.iter().copied(), 0.5);
    let ratios = by_round(first, second, |first, second| first / second)?;
    (below > 0.0 && !ratios.is_empty()).then(|| quantile(ratios.into_iter(), 0.5))
}

/// The value below which `part` (0 to 1) of all are, in between two if need be; 0 of none.
fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    let place = part * last as f64;
    let low = place.floor() as usize;
    let high = (low + 1).min(last);
    values[low] + (values[high] - values[low]) * (place - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(step: Step, walls: &[u64]) -> Series {
        let sample = |&wall| Sample {
            map_ns: wall / 2,
            invalidate_ns: wall - wall / 2,
            cpu_ns: 2 * wall,
        };
        Series {
            step,
            samples: walls.iter().map(sample).collect(),
        }
    }

    #[test]
    fn quantiles_lie_in_between() {
        let of = |part| quantile([4.0, 1.0, 3.0, 2.0].into_iter(), part);
        assert_eq!((of(0.0), of(0.5), of(1.0)), (1.0, 2.5, 4.0));
        assert_eq!(quantile(std::iter::empty(), 0.5), 0.0);
    }

    /// One round that was disturbed changes nothing, and the request is not counted.
    #[test]
    fn ratios_are_medians_of_rounds() {
        let all = [
            series(Step::Registration, &[800, 80_000, 800]),
            series(Step::Chained, &[200, 200, 90_000]),
            series(Step::Request, &[100, 100, 100]),
            series(Step::PoolChained, &[210, 210, 91_000]),
        ];
        let ratios = Ratios::new(&all);
        assert_eq!(ratios.chained, Some(8.0));
        assert!((ratios.pool_chained.unwrap() - 800.0 / 110.0).abs() < 1e-9);
        assert!((ratios.pool_share_chained.unwrap() - 0.05).abs() < 1e-9);
        assert!((ratios.pool_share_chained_alone.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!((ratios.waited, ratios.pool_share_waited), (None, None));
    }

    #[test]
    fn a_difference_that_is_lost_in_noise_makes_no_ratio() {
        let all = [
            series(Step::Registration, &[800]),
            series(Step::Chained, &[90]),
            series(Step::Request, &[100]),
        ];
        assert_eq!(Ratios::new(&all).chained, None);
    }

    #[test]
    fn times_are_per_io_in_us() {
        let alone = Alone::new(&series(Step::Waited, &[8000, 4000, 6000]), 2);
        assert_eq!(alone.wall_us_per_io, 3.0);
        assert_eq!(
            (alone.wall_us_quartile_low, alone.wall_us_quartile_high),
            (2.5, 3.5)
        );
        assert_eq!((alone.map_us_per_io, alone.cpu_us_per_io), (1.5, 6.0));
    }
}
