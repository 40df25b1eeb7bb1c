//! The pool.
//!
//! A region goes through it in one direction, and each stage has its file:
//! [`lease`] → [`map`] → [`release`] → dirty ([`shard`]) → [`flush`] → clean ([`depot`]).
//! [`due`] says when, [`gate`] says who, [`driver`] is the thread, and what fails goes to
//! [`quarantine`].

mod abroad;
mod alarm;
mod batch;
mod build;
mod burial;
mod census;
mod chained;
mod core;
mod credit;
mod depot;
mod driver;
mod due;
mod flush;
mod gate;
mod gauge;
mod handback;
mod home;
mod kill;
mod lease;
mod lot;
mod map;
#[cfg(all(test, model))]
mod models;
mod objections;
mod patience;
mod quarantine;
mod release;
mod shard;
mod shutdown;
pub(crate) mod slot;
mod unclaimed;
mod wait;

pub use batch::{LeaseResult, Shortage};
pub use build::PoolBuilder;
pub use due::Due;
pub use flush::Flush;
pub use handback::Pending;
pub use lease::{BorrowedLease, Lease, OwnedLease};
pub use shutdown::ShutdownReport;

use crate::clock::Deadline;
use crate::stats::PoolStats;
use crate::sync::Mutex;
use crate::{
    Access, Capabilities, DmaBuffer, FlushError, InvalidationPolicy, LeaseError, MrBackend, Scope,
    Time,
};
use core::Core;
use driver::Flusher;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The most flushes that one step runs.
const FLUSHES_PER_STEP: usize = 16;

/// A pool of regions over one backend, under one policy.
///
/// `M` is the type of the buffers; the pool owns each from its lease until its key is dead. All
/// methods may be called from any thread; share the pool by reference or in an [`Arc`].
///
/// Dropping the pool shuts it down, waiting for a flush under way at most the flush timeout; as with
/// [`shutdown`](Self::shutdown), that bound needs [`Driver::Thread`](crate::Driver::Thread).
pub struct Pool<B: MrBackend, M: DmaBuffer = Vec<u8>> {
    core: Arc<Core<B, M>>,
    flusher: Mutex<Option<Flusher>>,
}

impl<B: MrBackend> Pool<B> {
    /// Starts to build a pool over `backend`, in which keys die as `policy` says. The type of the
    /// buffers is chosen by [`PoolBuilder::build`].
    pub fn builder(backend: B, policy: impl InvalidationPolicy) -> PoolBuilder<B> {
        PoolBuilder::new(backend, Box::new(policy))
    }
}

impl<B: MrBackend, M: DmaBuffer> Pool<B, M> {
    /// Leases a region for `buffer`: from here on a peer that has the key may touch the memory as
    /// far as `access` goes. Waits for a region at most the lease timeout, and helps to flush when
    /// none is free.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] says why, and gives the buffer back.
    pub fn lease(
        &self,
        buffer: M,
        access: Access,
    ) -> Result<BorrowedLease<'_, B, M>, LeaseError<B::Error, M>> {
        let usual = || Some(self.core.config.lease_timeout);
        let slot = self.core.lease(buffer, access, usual)?;
        Ok(Lease::new(slot, self))
    }

    /// Leases a region, waiting for one at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`lease`](Self::lease).
    pub fn lease_timeout(
        &self,
        buffer: M,
        access: Access,
        timeout: Duration,
    ) -> Result<BorrowedLease<'_, B, M>, LeaseError<B::Error, M>> {
        let slot = self.core.lease(buffer, access, || Some(timeout))?;
        Ok(Lease::new(slot, self))
    }

    /// Leases a region if one is free: neither waits nor flushes.
    ///
    /// # Errors
    ///
    /// As [`lease`](Self::lease).
    pub fn try_lease(
        &self,
        buffer: M,
        access: Access,
    ) -> Result<BorrowedLease<'_, B, M>, LeaseError<B::Error, M>> {
        let slot = self.core.lease(buffer, access, || None)?;
        Ok(Lease::new(slot, self))
    }

    /// Leases a region as [`lease_timeout`](Self::lease_timeout) does, for a lease that keeps the
    /// pool alive. Costs two atomic operations on a count that all owned leases share.
    ///
    /// # Errors
    ///
    /// As [`lease`](Self::lease).
    pub fn lease_owned(
        self: &Arc<Self>,
        buffer: M,
        access: Access,
        timeout: Duration,
    ) -> Result<OwnedLease<B, M>, LeaseError<B::Error, M>> {
        let slot = self.core.lease(buffer, access, || Some(timeout))?;
        Ok(Lease::new(slot, Arc::clone(self)))
    }

    /// Kills all keys released before the call, whatever list their regions are on, and those in
    /// quarantine. Joins a flush under way and starts the next where needed.
    ///
    /// # Errors
    ///
    /// Some keys may still be honoured, or nothing is known about them.
    pub fn flush(&self) -> Result<(), FlushError> {
        self.core.flush(Scope::Stale)
    }

    /// Moves up to `most` buffers whose keys are dead to `to`, and says how many: first those that
    /// the calling thread has released, in the order of their flushes, then those of others.
    pub fn reclaim(&self, to: &mut Vec<M>, most: usize) -> usize {
        self.core.reclaim(to, most)
    }

    /// Does what is due now, and says when to be called again; `None` while nothing is stale.
    ///
    /// This is what the flusher thread does; with [`Driver::Manual`](crate::Driver::Manual) the
    /// user does it, whenever [`next_due`](Self::next_due) has come. One call runs a bounded number
    /// of flushes: where keys become due as fast as they are killed, it returns a time that has come.
    pub fn step(&self) -> Option<Time> {
        for _ in 0..FLUSHES_PER_STEP {
            let due = self.core.due();
            match due.flush {
                Some(flush) => flush.run(),
                None => return due.next,
            }
        }
        self.next_due()
    }

    /// Begins what is due now, without running it: [`step`](Self::step) in slow motion, for those
    /// who keep the backend's time themselves.
    pub fn due(&self) -> Due<'_, B, M> {
        self.core.due()
    }

    /// Begins the flush that a [`lease`](Self::lease) which finds no region runs before it waits,
    /// for those who use [`try_lease`](Self::try_lease) and keep the backend's time themselves.
    /// `None` if another flush is under way, or nothing is stale.
    pub fn help(&self) -> Option<Flush<'_, B, M>> {
        self.core.begin_help()
    }

    /// When [`step`](Self::step) is to be called next: a release or a failure may bring it
    /// forward. One atomic load.
    pub fn next_due(&self) -> Option<Time> {
        self.core.next_due()
    }

    /// What the pool has done and what it holds.
    pub fn stats(&self) -> PoolStats {
        self.core.stats()
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.core.backend
    }

    /// What the backend can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    /// The policy.
    pub fn policy(&self) -> &dyn InvalidationPolicy {
        &*self.core.policy
    }

    /// The longest time that a key stays stale in this pool, not counting the flush itself: the
    /// smaller of what the policy declares and the pool's `max_age`.
    pub fn exposure_bound(&self) -> Duration {
        let declared = self.core.policy.exposure_bound();
        declared
            .unwrap_or(Duration::MAX)
            .min(self.core.config.max_age)
    }

    /// Ends the pool: refuses new leases, waits for the present ones, flushes, frees all regions
    /// and joins the flusher, all within `deadline` or little more. A lease that is still there
    /// then frees its region when it ends. Buffers can be reclaimed afterwards.
    ///
    /// The flusher calls the backend, so this returns in time even if the backend never does. With
    /// [`Driver::Manual`](crate::Driver::Manual) it is the caller who calls it, and nobody can call a
    /// backend back: then this lasts for as long as the calls that it makes, whatever `deadline` says.
    pub fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        let deadline = Deadline::after(deadline);
        self.core.close();
        self.core.await_leases(deadline);
        self.end(deadline)
    }

    fn end(&self, deadline: Deadline) -> ShutdownReport {
        // The flusher does it, and can be left behind if the backend does not return.
        let flusher = self.flusher.lock().take();
        let left = match flusher {
            Some(flusher) => {
                let was_left = flusher.was_left;
                self.core.begin_to_wind_up(deadline);
                let left = flusher.join(deadline);
                if was_left && left.is_none() {
                    self.core.wind_up(deadline);
                }
                left
            }
            None => {
                self.core.wind_up(deadline);
                None
            }
        };
        let report = self.core.report(left.is_some());
        *self.flusher.lock() = left;
        if !report.is_complete() {
            tracing::warn!(?report, "pool shut down incompletely");
        }
        report
    }
}

impl<B: MrBackend, M: DmaBuffer> Drop for Pool<B, M> {
    fn drop(&mut self) {
        if !self.core.is_closed() {
            self.core.close();
            // No lease is left to wait for: each keeps the pool, or borrows it.
            self.end(Deadline::after(self.core.config.flush_timeout));
        }
    }
}

impl<B: MrBackend, M: DmaBuffer> fmt::Debug for Pool<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("policy", &format_args!("{}", self.core.policy))
            .field("capacity", &self.core.config.capacity)
            .field("regions", &self.core.regions())
            .finish()
    }
}
