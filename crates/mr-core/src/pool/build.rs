//! How a pool comes to be.

use crate::clock::PoolClock;
use crate::pool::Pool;
use crate::pool::abroad::Abroad;
use crate::pool::alarm::Alarm;
use crate::pool::core::Core;
use crate::pool::credit::Budget;
use crate::pool::depot::Depot;
use crate::pool::driver::Flusher;
use crate::pool::gate::Gate;
use crate::pool::objections::Objections;
use crate::pool::quarantine::Quarantine;
use crate::pool::shard::{Boxed, Shard};
use crate::pool::slot::Slot;
use crate::pool::unclaimed::Unclaimed;
use crate::pool::wait::Queue;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::sync::{Mutex, ShortLock};
use crate::{
    BuildError, Clock, DmaBuffer, Driver, InvalidationPolicy, KeyTag, MrBackend, PoolConfig,
    PoolLimits, SystemClock, Time,
};
use crossbeam_utils::CachePadded;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Regions with their numbers.
type Numbered<B> = Vec<(u32, <B as MrBackend>::Region)>;

/// The most regions that a thread fetches at a time.
const MAGAZINE: u32 = 64;

/// A pool in the making. Each setting says its default at [`PoolConfig`].
pub struct PoolBuilder<B> {
    backend: B,
    policy: Box<dyn InvalidationPolicy>,
    clock: Option<Box<dyn Clock>>,
    config: PoolConfig,
}

impl<B: MrBackend> PoolBuilder<B> {
    pub(crate) fn new(backend: B, policy: Box<dyn InvalidationPolicy>) -> Self {
        let config = PoolConfig::new(&backend.capabilities());
        Self {
            backend,
            policy,
            clock: None,
            config,
        }
    }

    /// Changes any of the settings.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut PoolConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// How many regions the pool has.
    #[must_use]
    pub fn capacity(self, regions: u32) -> Self {
        self.configure(|config| config.capacity = regions)
    }

    /// The longest time that a key stays stale.
    #[must_use]
    pub fn max_age(self, age: Duration) -> Self {
        self.configure(|config| config.max_age = age)
    }

    /// Seeds the order of regions and their first tags, for runs that can be repeated.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.configure(|config| config.seed = Some(seed))
    }

    /// Takes the time from `clock`; without this, from a [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Makes all regions, and starts the flusher unless the user drives the pool.
    ///
    /// # Errors
    ///
    /// A setting or the policy cannot hold, or the backend cannot make the regions; then those
    /// made so far are freed.
    pub fn build<M: DmaBuffer>(self) -> Result<Pool<B, M>, BuildError<B::Error>> {
        let Self {
            backend,
            policy,
            clock,
            config,
        } = self;
        let capabilities = backend.capabilities();
        config.check(&capabilities)?;
        policy.check(&PoolLimits::new(config.capacity, &capabilities))?;
        let mut random = match config.seed {
            Some(seed) => ChaCha8Rng::seed_from_u64(seed),
            None => ChaCha8Rng::from_os_rng(),
        };
        let mut regions = alloc_all(&backend, config.capacity)?;
        shuffle(&mut regions, &mut random);
        // Shuffled first and boxed afterwards, so that slots which come next to each other in memory
        // are in one magazine: a cache line that holds parts of two is used by one thread.
        let new_slot = |(id, region)| -> Boxed<B, M> {
            let tag = KeyTag::new(random.next_u32() as u8);
            Box::new(Slot::new(region, id, tag))
        };
        let mut slots: Vec<_> = regions.into_iter().map(new_slot).collect();
        let clock = match clock {
            Some(clock) => PoolClock::Given(clock),
            None => PoolClock::System(SystemClock::new()),
        };
        let shards = |_| {
            let random = ChaCha8Rng::seed_from_u64(random.next_u64());
            CachePadded::new(ShortLock::new(Shard::new(config.order, random)))
        };
        let shards: Box<[_]> = (0..config.shards.next_power_of_two()).map(shards).collect();
        let magazine = (config.capacity / (4 * config.shards)).clamp(1, MAGAZINE) as usize;
        let depot = Depot::new(magazine, config.order);
        depot.store(&mut slots, Time::ZERO);
        let core = Arc::new(Core {
            backend,
            policy_speaks_at_release: policy.speaks_at_release(),
            policy,
            gate: CachePadded::new(Gate::new(clock.now())),
            clock,
            fit_anywhere: capabilities.fit_anywhere(),
            capabilities,
            shards,
            depot: CachePadded::new(depot),
            queue: Queue::new(),
            quarantine: CachePadded::new(Mutex::new(Quarantine::new())),
            unclaimed: CachePadded::new(Unclaimed::new(config.max_unclaimed())),
            abroad: CachePadded::new(Abroad::new()),
            alarm: Arc::new(Alarm::new()),
            due_at: CachePadded::new(AtomicU64::new(u64::MAX)),
            budget: CachePadded::new(Budget::new()),
            objections: Objections::new(),
            waits: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            tag_wraps: AtomicU64::new(0),
            freed: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            winding_up: AtomicBool::new(false),
            wind_up_by: Mutex::new(None),
            config,
        });
        let pool = Pool {
            core: Arc::clone(&core),
            flusher: Mutex::new(None),
        };
        if core.config.driver == Driver::Thread {
            let flusher = Flusher::start(core).map_err(BuildError::Thread)?;
            *pool.flusher.lock() = Some(flusher);
        }
        Ok(pool)
    }
}

/// Makes all regions, or none.
fn alloc_all<B: MrBackend>(backend: &B, wanted: u32) -> Result<Numbered<B>, BuildError<B::Error>> {
    let mut regions = Vec::with_capacity(wanted as usize);
    for id in 0..wanted {
        match catch_unwind(AssertUnwindSafe(|| backend.alloc())) {
            Ok(Ok(region)) => regions.push((id, region)),
            Ok(Err(source)) => {
                return Err(BuildError::Alloc {
                    made: id,
                    wanted,
                    source,
                    leaked: free_all(backend, regions),
                });
            }
            // There is no pool yet that could be poisoned: it is the caller's panic.
            Err(panic) => {
                free_all(backend, regions);
                resume_unwind(panic);
            }
        }
    }
    Ok(regions)
}

/// Frees all regions; how many could not be freed, and why the first could not. One whose freeing
/// panicked is gone.
fn free_all<B: MrBackend>(backend: &B, regions: Numbered<B>) -> Option<(u32, B::Error)> {
    let mut leaked = None;
    for (_, region) in regions {
        let freed = catch_unwind(AssertUnwindSafe(|| backend.dealloc(region)));
        if let Ok(Err(failure)) = freed {
            let (count, first) = leaked.unwrap_or((0, failure.error));
            leaked = Some((count + 1, first));
        }
    }
    leaked
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], random: &mut ChaCha8Rng) {
    for end in (1..items.len()).rev() {
        let place = (u64::from(random.next_u32()) * (end as u64 + 1)) >> 32;
        items.swap(end, place as usize);
    }
}
