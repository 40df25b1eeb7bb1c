//! Memory management alone.

use super::rig::{Rig, request};
use super::way::Way;
use super::{ACCESS, cpu, device_error, order};
use crate::LabError;
use crate::measure::{Mechanism, Plan, Sample, Series, Step};
use mr_core::{DmaBuffer, Driver, MrBackend, Pool};
use mr_policies::UseOnce;
use mr_verbs::{ArenaBuffer, Bare, Error, RegistrationBackend};
use std::time::{Duration, Instant};

/// Longer than any run: keys die by the flush that is measured.
const LONG: Duration = Duration::from_secs(3600);

/// Regions of a round in which an RDMA write precedes each call.
const COLD: u32 = 8;

/// All that memory management is measured on.
pub(super) struct Bench<'r, B: MrBackend<Error = Error>> {
    plan: &'r Plan,
    rig: &'r Rig,
    waited: Way<B>,
    chained: Option<Way<B>>,
    /// Of ordinary memory, and of the arena's.
    registration: Bare<RegistrationBackend, Vec<u8>>,
    registration_arena: Bare<RegistrationBackend, ArenaBuffer>,
    bare: Bare<B, ArenaBuffer>,
    pool: Pool<B, ArenaBuffer>,
    /// Buffers for the pool.
    buffers: Vec<ArenaBuffer>,
}

impl<'r, B: MrBackend<Error = Error>> Bench<'r, B> {
    pub(super) fn new(
        plan: &'r Plan,
        rig: &'r Rig,
        make: impl Fn() -> Result<B, Error>,
        waited: Way<B>,
        chained: Option<Way<B>>,
    ) -> Result<Self, LabError> {
        let (batch, size) = (plan.batch as usize, plan.size as usize);
        let take = || {
            let buffers = (0..batch).map(|_| rig.arena.take(size));
            buffers.collect::<Result<Vec<_>, _>>().map_err(device_error)
        };
        // Touched one by one, as they would be by whoever fills them.
        let ordinary = (0..batch).map(|_| vec![1_u8; size]);
        let registration = || RegistrationBackend::new(&rig.domain);
        let backend = make().map_err(device_error)?;
        // A use, and then the flush: the pool neither flushes nor refuses on its own.
        let pool = Pool::builder(make().map_err(device_error)?, UseOnce)
            .capacity(plan.batch)
            .max_age(LONG)
            .configure(|config| {
                config.driver = Driver::Manual;
                config.max_stale_bytes = u64::MAX;
            })
            .build()
            .map_err(device_error)?;
        Ok(Self {
            plan,
            rig,
            waited,
            chained,
            registration: Bare::new(registration(), ordinary).map_err(device_error)?,
            registration_arena: Bare::new(registration(), take()?).map_err(device_error)?,
            bare: Bare::new(backend, take()?).map_err(device_error)?,
            pool,
            buffers: take()?,
        })
    }

    /// Measures each kind once a round. The first round warms up.
    pub(super) fn measure(mut self) -> Result<Vec<Series>, LabError> {
        let steps = self.steps();
        let mut all: Vec<Series> = steps
            .iter()
            .map(|&step| Series {
                step,
                samples: Vec::new(),
            })
            .collect();
        for round in 0..=self.plan.rounds {
            for place in order(steps.len(), round) {
                let step = steps[place];
                let failed = |error| LabError::Device(format!("{}: {error}", step.title()).into());
                let sample = self.sample(step).map_err(failed)?;
                if round > 0 {
                    all[place].samples.push(sample);
                }
            }
        }
        Ok(all)
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![
            Step::Registration,
            Step::RegistrationArena,
            Step::RegistrationCold,
            Step::OneByOne,
            Step::Cold,
            Step::Write,
            Step::Waited,
            Step::PoolWaited,
        ];
        if self.plan.backend == Mechanism::Mw2 {
            steps.extend([Step::Chains, Step::PoolChains]);
        }
        if self.chained.is_some() {
            steps.extend([
                Step::Chained,
                Step::PoolChained,
                Step::Request,
                Step::Batched,
                Step::PoolBatched,
                Step::Requests,
            ]);
        }
        steps
    }

    fn sample(&mut self, step: Step) -> Result<Sample, LabError> {
        let chained = self.chained.unwrap_or(self.waited);
        let (one, depth) = (1, self.plan.depth as usize);
        match step {
            Step::Registration => one_by_one(&mut self.registration, self.plan.batch),
            Step::RegistrationArena => one_by_one(&mut self.registration_arena, self.plan.batch),
            Step::RegistrationCold => cold(self.rig, &mut self.registration_arena, self.plan.batch),
            Step::OneByOne => one_by_one(&mut self.bare, self.plan.batch),
            Step::Cold => cold(self.rig, &mut self.bare, self.plan.batch),
            Step::Write => self.writes(),
            Step::Waited => self.bare_batch(self.waited, one),
            Step::Chains => self.bare_batch(self.waited, depth),
            Step::Chained => self.bare_batch(chained, one),
            Step::Batched => self.bare_batch(chained, depth),
            Step::Request => self.requests(one),
            Step::Requests => self.requests(depth),
            Step::PoolWaited => self.pool_batch(self.waited, one),
            Step::PoolChains => self.pool_batch(self.waited, depth),
            Step::PoolChained => self.pool_batch(chained, one),
            Step::PoolBatched => self.pool_batch(chained, depth),
        }
    }

    /// With so many maps at a time; one at a time has a call of its own.
    fn bare_batch(&mut self, way: Way<B>, depth: usize) -> Result<Sample, LabError> {
        let watch = Watch::start();
        let batch = self.plan.batch as usize;
        for first in (0..batch).step_by(depth) {
            if depth == 1 {
                way.map(&mut self.bare, first)?;
            } else {
                way.map_batch(&mut self.bare, first..batch.min(first + depth))?;
            }
        }
        self.hear_all(way.announces)?;
        let mapped = watch.wall_ns();
        self.bare.invalidate(0..batch).map_err(device_error)?;
        Ok(watch.sample(self.plan.batch, mapped))
    }

    fn pool_batch(&mut self, way: Way<B>, depth: usize) -> Result<Sample, LabError> {
        let watch = Watch::start();
        while !self.buffers.is_empty() {
            let rest = self.buffers.len().saturating_sub(depth);
            if depth == 1 {
                for buffer in self.buffers.drain(rest..) {
                    way.lease(&self.pool, buffer)?.release();
                }
            } else {
                way.lease_batch(&self.pool, self.buffers.split_off(rest))?;
            }
        }
        self.hear_all(way.announces)?;
        let mapped = watch.wall_ns();
        self.pool.flush().map_err(device_error)?;
        let batch = self.plan.batch as usize;
        let back = self.pool.reclaim(&mut self.buffers, batch);
        let sample = watch.sample(self.plan.batch, mapped);
        if back != batch {
            let what = format!("{back} of {batch} buffers came back from a flush");
            return Err(LabError::Device(what.into()));
        }
        Ok(sample)
    }

    /// As many as there are calls that come after one.
    fn writes(&self) -> Result<Sample, LabError> {
        let ios = self.plan.batch.min(COLD);
        let watch = Watch::start();
        (0..ios).try_for_each(|_| self.rig.write_elsewhere())?;
        let done = watch.wall_ns();
        Ok(watch.sample(ios, done))
    }

    /// With so many requests at a time.
    fn requests(&self, depth: usize) -> Result<Sample, LabError> {
        let watch = Watch::start();
        let batch = self.plan.batch as usize;
        for first in (0..batch).step_by(depth) {
            let chain = first..batch.min(first + depth);
            let chain: Vec<_> = chain.map(|key| request(key as u32)).collect();
            self.rig.ours.post(&chain).map_err(device_error)?;
        }
        self.hear_all(true)?;
        let done = watch.wall_ns();
        Ok(watch.sample(self.plan.batch, done))
    }

    /// Until the peer has heard all requests, so that all binds are done, too.
    fn hear_all(&self, announces: bool) -> Result<(), LabError> {
        let requests = if announces { self.plan.batch } else { 0 };
        (0..requests).try_for_each(|_| self.rig.hear().map(drop))
    }
}

fn one_by_one<B: MrBackend<Error = Error>, M: DmaBuffer>(
    bare: &mut Bare<B, M>,
    batch: u32,
) -> Result<Sample, LabError> {
    let watch = Watch::start();
    let mut mapping = 0;
    for place in 0..batch as usize {
        let before = watch.wall_ns();
        bare.map(place, ACCESS).map_err(device_error)?;
        mapping += watch.wall_ns() - before;
        bare.invalidate(place..place + 1).map_err(device_error)?;
    }
    Ok(watch.sample(batch, mapping))
}

/// One by one, with an RDMA write of the peer before each call that is measured: of some regions, for
/// it takes long.
fn cold<B: MrBackend<Error = Error>, M: DmaBuffer>(
    rig: &Rig,
    bare: &mut Bare<B, M>,
    batch: u32,
) -> Result<Sample, LabError> {
    let ios = batch.min(COLD);
    let mut sum = Sample {
        ios,
        ..Sample::default()
    };
    for place in 0..ios as usize {
        rig.write_elsewhere()?;
        let watch = Watch::start();
        bare.map(place, ACCESS).map_err(device_error)?;
        let map = watch.sample(1, watch.wall_ns());
        rig.write_elsewhere()?;
        let watch = Watch::start();
        bare.invalidate(place..place + 1).map_err(device_error)?;
        let invalidation = watch.sample(1, 0);
        sum.map_ns += map.map_ns;
        sum.invalidate_ns += invalidation.invalidate_ns;
        sum.cpu_ns += map.cpu_ns + invalidation.cpu_ns;
    }
    Ok(sum)
}

/// A stop watch.
struct Watch {
    started: Instant,
    cpu: u64,
}

impl Watch {
    fn start() -> Self {
        Self {
            cpu: cpu::of_process(),
            started: Instant::now(),
        }
    }

    fn wall_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Of so many I/Os, `map_ns` of the time were maps.
    fn sample(&self, ios: u32, map_ns: u64) -> Sample {
        Sample {
            ios,
            map_ns,
            invalidate_ns: self.wall_ns().saturating_sub(map_ns),
            cpu_ns: cpu::of_process() - self.cpu,
        }
    }
}
