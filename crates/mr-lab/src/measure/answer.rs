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
    /// The same, each call after an RDMA write of the peer: not in a loop of such calls, whose code and
    /// data are in the processor's caches.
    RegistrationCold,
    /// The backend's map and invalidation, one by one, each waited for.
    OneByOne,
    /// The same, each after an RDMA write.
    Cold,
    /// Maps, each waited for; then invalidations in batches.
    Waited,
    /// Maps in chains, each chain waited for; then invalidations in batches.
    Chains,
    /// Maps with a request behind each in one doorbell, and no wait; then invalidations in batches.
    Chained,
    /// The requests of those alone, which have to be sent anyway.
    Request,
    /// Maps with a request behind each in chains, and no wait; then invalidations in batches.
    Batched,
    /// The requests of those alone, in chains.
    Requests,
    /// RDMA writes of the peer to memory that is mapped all the time.
    Write,
    /// As `Waited`, by leases of a pool and a flush.
    PoolWaited,
    /// As `Chains`, by leases of a pool and a flush.
    PoolChains,
    /// As `Chained`, by leases of a pool and a flush.
    PoolChained,
    /// As `Batched`, by leases of a pool and a flush.
    PoolBatched,
}

impl Step {
    /// What it is called in a table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Registration => "registration + deregistration per I/O",
            Self::RegistrationArena => "the same of an arena's memory",
            Self::RegistrationCold => "the same, each after an RDMA write",
            Self::OneByOne => "bare: map and invalidation one by one",
            Self::Cold => "the same, each after an RDMA write",
            Self::Waited => "bare: maps waited for, invalidation in batches",
            Self::Chains => "bare: chains of maps, invalidation in batches",
            Self::Chained => "bare: map chained with request, invalidation in batches",
            Self::Request => "request alone",
            Self::Batched => "bare: chains of maps with requests, invalidation in batches",
            Self::Requests => "chains of requests alone",
            Self::Write => "RDMA write of the peer alone",
            Self::PoolWaited => "pool: maps waited for, flush",
            Self::PoolChains => "pool: batches of leases, flush",
            Self::PoolChained => "pool: map chained with request, flush",
            Self::PoolBatched => "pool: batches of leases with requests, flush",
        }
    }
}

/// One batch of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// I/Os of the batch.
    pub ios: u32,
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
    /// Against chains of maps and batches.
    pub chains: Option<f64>,
    /// The same through the pool.
    pub pool_chains: Option<f64>,
    /// Against chained maps and batches, without the requests.
    pub chained: Option<f64>,
    /// The same through the pool.
    pub pool_chained: Option<f64>,
    /// Against chains of maps with requests and batches, without the requests.
    pub batched: Option<f64>,
    /// The same through the pool.
    pub pool_batched: Option<f64>,
    /// The pool's own time over that of the bare calls, maps waited for.
    pub pool_share_waited: Option<f64>,
    /// The same, of chains.
    pub pool_share_chains: Option<f64>,
    /// The pool's own time over that of the bare calls: bind, request, invalidation.
    pub pool_share_chained: Option<f64>,
    /// The same without the requests.
    pub pool_share_chained_alone: Option<f64>,
    /// The pool's own time over that of the bare chains of bind, request, and of invalidation.
    pub pool_share_batched: Option<f64>,
    /// The same without the requests.
    pub pool_share_batched_alone: Option<f64>,
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
    /// software device the HCA's part is in it. The requests are not: what they take alone, under the
    /// same load, was subtracted.
    pub cpu_us_per_io: f64,
    /// A quarter of the rounds took less.
    pub cpu_us_quartile_low: f64,
    /// A quarter of the rounds took more.
    pub cpu_us_quartile_high: f64,
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
    /// this costs half. `None` if what is left of this without the requests is lost in noise.
    pub registration_ratio: Option<f64>,
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
    /// CPU time of a request under the load, in µs; `None` if there are none.
    pub request_cpu_us: Option<f64>,
    /// The load; the first is registration and deregistration per I/O.
    pub rows: Vec<Measured>,
}

impl Alone {
    /// From the rounds of one kind.
    pub fn new(series: &Series) -> Self {
        let per_io = |percent, value: fn(&Sample) -> u64| {
            let values = series.samples.iter();
            let values = values.map(|sample| value(sample) as f64 / f64::from(sample.ios));
            quantile(values, percent) / 1e3
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
            let walls = series.samples.iter();
            let walls = walls.map(|sample| sample.wall_ns() as f64 / f64::from(sample.ios));
            Some(walls.collect::<Vec<_>>())
        };
        let registration = walls(Step::Registration);
        let against = |other: &Option<Vec<f64>>| over(&registration, other);
        let plain = |bare, pool| Pair::new(walls(bare), walls(pool), None);
        let with = |bare, pool, request| Pair::new(walls(bare), walls(pool), walls(request));
        let waited = plain(Step::Waited, Step::PoolWaited);
        let chains = plain(Step::Chains, Step::PoolChains);
        let chained = with(Step::Chained, Step::PoolChained, Step::Request);
        let batched = with(Step::Batched, Step::PoolBatched, Step::Requests);
        Self {
            one_by_one: against(&walls(Step::OneByOne)),
            waited: against(&waited.bare),
            pool_waited: against(&waited.pool),
            chains: against(&chains.bare),
            pool_chains: against(&chains.pool),
            chained: against(&chained.bare),
            pool_chained: against(&chained.pool),
            batched: against(&batched.bare),
            pool_batched: against(&batched.pool),
            pool_share_waited: waited.share(),
            pool_share_chains: chains.share(),
            pool_share_chained: chained.share_with_requests(),
            pool_share_chained_alone: chained.share(),
            pool_share_batched: batched.share_with_requests(),
            pool_share_batched_alone: batched.share(),
        }
    }
}

/// A kind without the pool and with it, the requests taken off both.
struct Pair {
    bare: Option<Vec<f64>>,
    pool: Option<Vec<f64>>,
    /// The bare one with the requests.
    whole: Option<Vec<f64>>,
}

impl Pair {
    fn new(bare: Option<Vec<f64>>, pool: Option<Vec<f64>>, requests: Option<Vec<f64>>) -> Self {
        let less = |whole: &Option<Vec<f64>>| match &requests {
            Some(_) => by_round(whole, &requests, |whole, request| whole - request),
            None => whole.clone(),
        };
        Self {
            pool: less(&pool),
            bare: less(&bare),
            whole: bare,
        }
    }

    fn own(&self) -> Option<Vec<f64>> {
        by_round(&self.pool, &self.bare, |pool, bare| pool - bare)
    }

    fn share(&self) -> Option<f64> {
        over(&self.own(), &self.bare)
    }

    fn share_with_requests(&self) -> Option<f64> {
        over(&self.own(), &self.whole)
    }
}

impl Measured {
    /// Sets the ratio to this row of registration and deregistration.
    pub fn compare_with(&mut self, registration_us_per_io: f64) {
        let ratio = registration_us_per_io / self.cpu_us_per_io;
        self.registration_ratio = (self.cpu_us_per_io > 0.0).then_some(ratio);
    }

    /// The medians of rounds of one policy, compared with nothing yet; `None` without a round.
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
            cpu_us_quartile_low: quantile(rounds.iter().map(|row| row.cpu_us_per_io), 0.25),
            cpu_us_quartile_high: quantile(rounds.iter().map(|row| row.cpu_us_per_io), 0.75),
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
            registration_ratio: None,
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

/// The median of `values`; 0 of none.
#[cfg(feature = "verbs")]
pub(super) fn median(values: &[f64]) -> f64 {
    quantile(values.iter().copied(), 0.5)
}

/// The value below which `part` (0 to 1) of all are, in between two if need be; 0 of none.
pub(super) fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
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
            ios: 2,
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
        let alone = Alone::new(&series(Step::Waited, &[8000, 4000, 6000]));
        assert_eq!(alone.wall_us_per_io, 3.0);
        assert_eq!(
            (alone.wall_us_quartile_low, alone.wall_us_quartile_high),
            (2.5, 3.5)
        );
        assert_eq!((alone.map_us_per_io, alone.cpu_us_per_io), (1.5, 6.0));
    }
}
