//! Leases whose key goes to the peer right behind the map, which is not waited for.

use crate::pool::Pool;
use crate::pool::batch::{LeaseResult, Shortage};
use crate::pool::lease::{BorrowedLease, Lease, Leased, OwnedLease};
use crate::pool::shard::Boxed;
use crate::{Access, ChainedMap, DmaBuffer, Keys, LeaseError, MapJob, MemoryRange};
use std::sync::Arc;
use std::time::Duration;

impl<B: ChainedMap, M: DmaBuffer> Pool<B, M> {
    /// Leases a region as [`lease`](Self::lease) does, and sends the peer the `request` that
    /// carries the key right behind the map: the key is announced without first waiting for the
    /// map. If map or request fail afterwards, the key was never honoured and no answer comes.
    ///
    /// # Errors
    ///
    /// As [`lease`](Self::lease); then nothing was sent that could be answered.
    pub fn lease_chained(
        &self,
        buffer: M,
        access: Access,
        request: impl FnMut(Keys) -> B::Request,
    ) -> Result<BorrowedLease<'_, B, M>, LeaseError<B::Error, M>> {
        let timeout = self.core.config.lease_timeout;
        let slot = self.chain(buffer, access, timeout, request)?;
        Ok(Lease::new(slot, self))
    }

    /// Leases a region as [`lease_chained`](Self::lease_chained) does, waiting for one at most
    /// `timeout`, for a lease that keeps the pool alive.
    ///
    /// # Errors
    ///
    /// As [`lease_chained`](Self::lease_chained).
    pub fn lease_chained_owned(
        self: &Arc<Self>,
        buffer: M,
        access: Access,
        timeout: Duration,
        request: impl FnMut(Keys) -> B::Request,
    ) -> Result<OwnedLease<B, M>, LeaseError<B::Error, M>> {
        let slot = self.chain(buffer, access, timeout, request)?;
        Ok(Lease::new(slot, Arc::clone(self)))
    }

    /// Leases a region for each buffer as [`lease_batch`](Self::lease_batch) does, and sends the peer the
    /// `request` of each right behind its map, in as few doorbells as the backend can: one, unless
    /// the batch is longer than a chain that its queue takes, or has to wait for regions.
    ///
    /// `request` gets the buffer's place in the batch, from 0, and its keys. A request for a lease
    /// that is then refused has not been sent or carries a dead key. As with
    /// [`lease_chained`](Self::lease_chained), maps and requests of leases that were given may fail afterwards.
    ///
    /// ```
    /// use mr_core::{Access, Pool, Shortage};
    /// use mr_mock::{MockHca, Preset};
    /// # use mr_policies::UseOnce;
    ///
    /// let hca = MockHca::new(&Preset::named("connectx-5-window")?);
    /// let peer = hca.connect();
    /// let pool = Pool::builder(hca.for_connection(&peer)?, UseOnce).build()?;
    ///
    /// // 32 reads at hand: one doorbell.
    /// let reads = (0..32).map(|_| (vec![0_u8; 4096], Access::REMOTE_WRITE));
    /// let leases = pool.lease_batch_chained(reads, Shortage::TakeFewer, |place, keys| {
    ///     let mut request = vec![place as u8];
    ///     request.extend(keys.remote.bits().to_be_bytes());
    ///     request
    /// });
    /// let mut later = Vec::new();
    /// for leased in leases {
    ///     match leased {
    ///         // … the peer writes, and says so …
    ///         Ok(lease) => lease.release(),
    ///         Err(refused) => later.extend(refused.buffer),
    ///     }
    /// }
    /// # assert!(later.is_empty());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn lease_batch_chained(
        &self,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
        request: impl FnMut(usize, Keys) -> B::Request,
    ) -> Vec<LeaseResult<BorrowedLease<'_, B, M>, B, M>> {
        self.chain_batch(wanted, shortage, request, |slot| Lease::new(slot, self))
    }

    /// Leases as [`lease_batch_chained`](Self::lease_batch_chained) does, for leases that keep the
    /// pool alive.
    pub fn lease_batch_chained_owned(
        self: &Arc<Self>,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
        request: impl FnMut(usize, Keys) -> B::Request,
    ) -> Vec<LeaseResult<OwnedLease<B, M>, B, M>> {
        let lease = |slot| Lease::new(slot, Arc::clone(self));
        self.chain_batch(wanted, shortage, request, lease)
    }

    fn chain(
        &self,
        buffer: M,
        access: Access,
        timeout: Duration,
        mut request: impl FnMut(Keys) -> B::Request,
    ) -> Leased<B, M> {
        let map = |backend: &B, region: &mut B::Region, memory: MemoryRange<'_>, access, tag| {
            backend.map_chained(region, memory, access, tag, &mut request)
        };
        self.core.lease_by(buffer, access, || Some(timeout), map)
    }

    fn chain_batch<L>(
        &self,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
        mut request: impl FnMut(usize, Keys) -> B::Request,
        lease: impl FnMut(Boxed<B, M>) -> L,
    ) -> Vec<LeaseResult<L, B, M>> {
        let map = |backend: &B, first, jobs: &mut [MapJob<'_, B::Region, B::Error>]| {
            let mut request = |place, keys| request(first + place, keys);
            backend.map_batch_chained(jobs, &mut request);
        };
        self.core.lease_batch(wanted, shortage, map, lease)
    }
}
