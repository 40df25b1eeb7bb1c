//! One thread that leases and releases, with its share of the flushes.

use std::hint::black_box;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use mr_core::{
    Access, BorrowedLease, DrawOrder, Driver, Fence, InvalidationPolicy, Lease, LeaseResult, Pool,
    Shortage,
};
use mr_policies::Threshold;

use crate::backends::{ACCESS, Price, StubBackend};
use crate::rounds::nanos_each;

pub(crate) type BenchPool = Pool<StubBackend>;

/// What a batch of leases comes to.
type Many<'p> = Vec<LeaseResult<BorrowedLease<'p, StubBackend, Vec<u8>>, StubBackend, Vec<u8>>>;

/// The length of each buffer. Nobody touches the bytes.
pub(crate) const BUFFER: usize = 4096;

/// Leases of one round, about: a few milliseconds.
pub(crate) const ROUND: usize = 40_000;

/// A pool over a backend that does nothing, to be driven by its user.
pub(crate) fn pool(
    capacity: usize,
    order: DrawOrder,
    policy: impl InvalidationPolicy,
) -> Result<BenchPool> {
    let backend = StubBackend::new(Fence::Global, Price::Nothing);
    let pool = Pool::builder(backend, policy).configure(|config| {
        config.capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        config.order = order;
        config.max_stale_bytes = u64::MAX;
        config.max_age = Duration::from_secs(3600);
        config.driver = Driver::Manual;
    });
    Ok(pool.build()?)
}

/// A pool in which 4 of 5 regions are flushed at a time, as in the origin example.
pub(crate) fn batching_pool(batch: usize) -> Result<BenchPool> {
    let policy = Threshold::regions(u32::try_from(batch)?)?;
    pool(batch + batch / 4, DrawOrder::Random, policy)
}

pub(crate) fn buffers(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| vec![0; BUFFER]).collect()
}

/// Leases and releases until a batch is full, flushes it, and takes the buffers back.
pub(crate) struct Churn<'p> {
    pool: &'p Arc<BenchPool>,
    batch: usize,
    buffers: Vec<Vec<u8>>,
}

impl<'p> Churn<'p> {
    /// `pool` must want a flush when `batch` regions are stale.
    pub(crate) fn new(pool: &'p Arc<BenchPool>, batch: usize) -> Self {
        Self {
            pool,
            batch,
            buffers: buffers(batch),
        }
    }

    /// Nanoseconds per lease, release and share of the flush.
    pub(crate) fn round(&mut self) -> Result<f64> {
        let pool = &**self.pool;
        let lease = |buffer| {
            pool.lease(buffer, ACCESS)
                .map_err(|error| anyhow!("{error}"))
        };
        self.timed(lease)
    }

    /// The same with leases that keep the pool alive.
    pub(crate) fn round_owned(&mut self) -> Result<f64> {
        let pool = self.pool;
        let lease = |buffer| {
            let lease = pool.lease_owned(buffer, ACCESS, Duration::from_secs(1));
            lease.map_err(|error| anyhow!("{error}"))
        };
        self.timed(lease)
    }

    /// The same with leases that come so many at a time.
    pub(crate) fn round_of_many(&mut self, depth: usize) -> Result<f64> {
        let pool = &**self.pool;
        self.timed_of_many(depth, |wanted| {
            pool.lease_batch(wanted, Shortage::TakeFewer)
        })
    }

    /// The same, with a request behind each.
    pub(crate) fn round_of_many_chained(&mut self, depth: usize) -> Result<f64> {
        let pool = &**self.pool;
        self.timed_of_many(depth, |wanted| {
            pool.lease_batch_chained(wanted, Shortage::TakeFewer, |_, keys| keys.remote)
        })
    }

    fn timed_of_many(
        &mut self,
        depth: usize,
        lease: impl Fn(std::vec::Drain<'_, (Vec<u8>, Access)>) -> Many<'p>,
    ) -> Result<f64> {
        let batches = ROUND.div_ceil(self.batch);
        // Kept, so that the caller's own list costs as little as that of single leases does.
        let mut wanted = Vec::with_capacity(depth);
        nanos_each(batches * self.batch, || {
            (0..batches).try_for_each(|_| {
                while !self.buffers.is_empty() {
                    let rest = self.buffers.len().saturating_sub(depth);
                    wanted.extend(self.buffers.drain(rest..).map(|buffer| (buffer, ACCESS)));
                    for leased in lease(wanted.drain(..)) {
                        let lease = leased.map_err(|error| anyhow!("{error}"))?;
                        black_box(lease.remote_key());
                        lease.release();
                    }
                }
                self.flush_batch()
            })
        })
    }

    fn timed<P: Deref<Target = BenchPool>>(
        &mut self,
        lease: impl Fn(Vec<u8>) -> Result<Lease<StubBackend, Vec<u8>, P>>,
    ) -> Result<f64> {
        let batches = ROUND.div_ceil(self.batch);
        nanos_each(batches * self.batch, || {
            (0..batches).try_for_each(|_| self.batch(&lease))
        })
    }

    fn batch<P: Deref<Target = BenchPool>>(
        &mut self,
        lease: &impl Fn(Vec<u8>) -> Result<Lease<StubBackend, Vec<u8>, P>>,
    ) -> Result<()> {
        for _ in 0..self.batch {
            let buffer = self.buffers.pop().context("out of buffers")?;
            let lease = lease(buffer)?;
            black_box(lease.remote_key());
            lease.release();
        }
        self.flush_batch()
    }

    fn flush_batch(&mut self) -> Result<()> {
        self.pool.step();
        let back = self.pool.reclaim(&mut self.buffers, self.batch);
        ensure!(back == self.batch, "a flush of {back}, not {}", self.batch);
        Ok(())
    }
}
