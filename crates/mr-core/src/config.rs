//! The settings of a pool.

use crate::{BackendError, BuildError, Capabilities};
use std::time::Duration;

/// In which order clean regions are drawn, and regions kept for reuse are mapped again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawOrder {
    /// At random among the regions at hand, so that a peer cannot tell which key comes next.
    #[default]
    Random,
    /// The longest idle first: the longest distance between two uses of a region, and with reuse
    /// by far the longest exposure.
    Fifo,
    /// The last released first: the warmest caches.
    Lifo,
}

/// Who calls the pool when something is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// A background thread of the pool.
    #[default]
    Thread,
    /// The user, through [`Pool::step`](crate::Pool::step) or [`Pool::due`](crate::Pool::due).
    /// `AtRelease::Invalidate` then makes a flush due rather than calling the backend in `release`.
    /// With no thread that could be left behind, a shutdown lasts for as long as the backend does.
    Manual,
}

/// The settings of a pool. All bounds are finite.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolConfig {
    /// Regions in the pool, from 1 to what the backend has. Defaults to 1024 or what the backend
    /// has, whichever is less.
    pub capacity: u32,
    /// A flush is due when this many regions are stale, whatever the policy says; until it has
    /// begun, leases help with it. At least 1; above the capacity it never comes to that, and a
    /// pool whose regions are all stale goes on reusing them. Defaults to `None`: the capacity.
    pub max_stale: Option<u32>,
    /// The same for the bytes behind stale keys. Defaults to 1 GiB.
    pub max_stale_bytes: u64,
    /// The longest time that a key stays stale, whatever the policy says; it holds when traffic
    /// stops, too. From 1 µs to 1 day. Defaults to 1 s.
    pub max_age: Duration,
    /// Defaults to [`DrawOrder::Random`].
    pub order: DrawOrder,
    /// Seeds the order of regions and their first tags. Defaults to `None`: from the operating
    /// system, so that keys cannot be guessed.
    pub seed: Option<u64>,
    /// Sets of lists that threads share regions through, from 1 to 256, rounded up to a power of
    /// two. Defaults to twice the number of processors.
    pub shards: u32,
    /// How long `lease` waits for a region. Defaults to 1 s.
    pub lease_timeout: Duration,
    /// How long `flush` and `invalidate` wait for a flush that another thread is in. Defaults to 30 s.
    pub flush_timeout: Duration,
    /// Buffers that may wait for [`Pool::reclaim`](crate::Pool::reclaim); what comes beyond is
    /// dropped and counted. Defaults to `None`: the capacity.
    pub max_unclaimed: Option<u32>,
    /// When a region in quarantine is tried again first; the time doubles from try to try, up to
    /// 1024 times. From 1 µs to 60 s. Defaults to 10 ms.
    pub retry_after: Duration,
    /// How often a region in quarantine is tried again before it counts as leaked, at most a
    /// million times. Defaults to 10.
    pub max_retries: u32,
    /// Defaults to [`Driver::Thread`].
    pub driver: Driver,
}

impl PoolConfig {
    /// The defaults over a backend of these capabilities.
    pub fn new(capabilities: &Capabilities) -> Self {
        let capacity = capabilities.max_regions.min(1024);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            capacity,
            max_stale: None,
            max_stale_bytes: 1 << 30,
            max_age: Duration::from_secs(1),
            order: DrawOrder::default(),
            seed: None,
            shards: u32::try_from(2 * processors).unwrap_or(256).min(256),
            lease_timeout: Duration::from_secs(1),
            flush_timeout: Duration::from_secs(30),
            max_unclaimed: None,
            retry_after: Duration::from_millis(10),
            max_retries: 10,
            driver: Driver::default(),
        }
    }

    /// How many regions may be stale.
    pub(crate) fn max_stale(&self) -> u32 {
        self.max_stale.unwrap_or(self.capacity)
    }

    /// How many buffers may wait to be reclaimed.
    pub(crate) fn max_unclaimed(&self) -> usize {
        self.max_unclaimed.unwrap_or(self.capacity) as usize
    }

    pub(crate) fn check<E: BackendError>(
        &self,
        capabilities: &Capabilities,
    ) -> Result<(), BuildError<E>> {
        let most = capabilities.max_regions;
        within("capacity", self.capacity, 1, most)?;
        within("max_stale", self.max_stale(), 1, u32::MAX)?;
        within("max_stale_bytes", self.max_stale_bytes, 1, u64::MAX)?;
        within("shards", self.shards, 1, 256)?;
        within(
            "max_age",
            self.max_age,
            Duration::from_micros(1),
            Duration::from_secs(86_400),
        )?;
        within(
            "retry_after",
            self.retry_after,
            Duration::from_micros(1),
            Duration::from_secs(60),
        )?;
        within("max_retries", self.max_retries, 0, 1_000_000)?;
        within(
            "max_batch of the backend",
            capabilities.max_batch,
            1,
            usize::MAX,
        )
    }
}

fn within<E: BackendError, T: PartialOrd + std::fmt::Debug>(
    setting: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), BuildError<E>> {
    if least <= value && value <= most {
        return Ok(());
    }
    Err(BuildError::Setting {
        setting,
        allowed: format!("from {least:?} to {most:?}, not {value:?}"),
    })
}
