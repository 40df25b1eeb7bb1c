//! Memory management alone.

use super::rig::{Rig, request};
use super::way::Way;
use super::{ACCESS, cpu, device_error, order};
use crate::LabError;
use crate::measure::{Plan, Sample, Series, Step};
use mr_core::{DmaBuffer, Driver, MrBackend, Pool};
use mr_policies::UseOnce;
use mr_verbs::{ArenaBuffer, Bare, Error, RegistrationBackend};
use std::time::{Duration, Instant};

/// Longer than any run: keys die by the flush that is measured.
const LONG: Duration = Duration::from_secs(3600);

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
                let sample = self.sample(steps[place])?;
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
            Step::OneByOne,
            Step::Waited,
        ];
        if self.chained.is_some() {
            steps.extend([
                Step::Chains,
                Step::PoolWaited,
                Step::Chained,
                Step::PoolChained,
                Step::Request,
            ]);
        } else {
            steps.push(Step::PoolWaited);
        }
        steps
    }

    fn sample(&mut self, step: Step) -> Result<Sample, LabError> {
        let chained = self.chained.unwrap_or(self.waited);
        match step {
            Step::Registration => one_by_one(&mut self.registration, self.plan.batch),
            Step::RegistrationArena => one_by_one(&mut self.registration_arena, self.plan.batch),
            Step::OneByOne => one_by_one(&mut self.bare, self.plan.batch),
            Step::Waited => self.bare_batch(self.waited),
            Step::Chained => self.bare_batch(chained),
            Step::Chains => self.chains(chained),
            Step::Request => self.requests(),
            Step::PoolWaited => self.pool_batch(self.waited),
            Step::PoolChained => self.pool_batch(chained),
        }
    }

    fn bare_batch(&mut self, way: Way<B>) -> Result<Sample, LabError> {
        let watch = Watch::start();
        let batch = self.plan.batch as usize;
        for place in 0..batch {
            way.map(&mut self.bare, place)?;
        }
        self.hear_all(way.announces)?;
        let mapped = watch.wall_ns();
        self.bare.invalidate(0..batch).map_err(device_error)?;
        Ok(watch.sample(mapped))
    }

    fn chains(&mut self, way: Way<B>) -> Result<Sample, LabError> {
        let watch = Watch::start();
        way.map_all(&mut self.bare)?;
        let mapped = watch.wall_ns();
        let batch = self.plan.batch as usize;
        self.bare.invalidate(0..batch).map_err(device_error)?;
        Ok(watch.sample(mapped))
    }

    fn pool_batch(&mut self, way: Way<B>) -> Result<Sample, LabError> {
        let watch = Watch::start();
        for buffer in self.buffers.drain(..) {
            way.lease(&self.pool, buffer)?.release();
        }
        self.hear_all(way.announces)?;
        let mapped = watch.wall_ns();
        self.pool.flush().map_err(device_error)?;
        let batch = self.plan.batch as usize;
        let back = self.pool.reclaim(&mut self.buffers, batch);
        let sample = watch.sample(mapped);
        if back != batch {
            let what = format!("{back} of {batch} buffers came back from a flush");
            return Err(LabError::Device(what.into()));
        }
        Ok(sample)
    }

    fn requests(&self) -> Result<Sample, LabError> {
        let watch = Watch::start();
        for key in 0..self.plan.batch {
            self.rig.ours.post(&request(key)).map_err(device_error)?;
        }
        self.hear_all(true)?;
        let done = watch.wall_ns();
        Ok(watch.sample(done))
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
    Ok(watch.sample(mapping))
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

    /// `map_ns` of the time were maps.
    fn sample(&self, map_ns: u64) -> Sample {
        Sample {
            map_ns,
            invalidate_ns: self.wall_ns() - map_ns,
            cpu_ns: cpu::of_process() - self.cpu,
        }
    }
}
