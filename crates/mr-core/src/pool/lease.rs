//! lease: the value that stands for a live mapping, and how one comes to be.

use crate::pool::Pool;
use crate::pool::core::Core;
use crate::pool::handback::{Handback, Pending};
use crate::pool::shard::Boxed;
use crate::pool::slot::{Fate, Mapping};
use crate::sync::atomic::Ordering;
use crate::{
    Access, DmaBuffer, InvalidateError, KeyTag, Keys, LeaseError, LeaseRefusal, LocalKey,
    MemoryRange, MrBackend, Poisoned, PoisonedBy, RemoteKey,
};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A live mapping: the buffer that it owns can be reached through its key.
///
/// While it lives the peer may change the buffer at any time (if the access lets it), so nothing
/// here gives the bytes out. They come back when the key is dead: by [`invalidate`](Self::invalidate)
/// at once, or after a release when the policy has had its flush. Dropping a lease is a release
/// whose buffer is dropped when its key is dead.
///
/// `P` is how the lease holds on to its pool: `&Pool` from [`Pool::lease`], which costs nothing, or
/// `Arc<Pool>` from [`Pool::lease_owned`], which makes the lease `'static`.
#[must_use = "dropping a lease releases it"]
pub struct Lease<B: MrBackend, M: DmaBuffer, P: Deref<Target = Pool<B, M>>> {
    slot: Option<Boxed<B, M>>,
    pool: P,
}

/// A lease that keeps its pool alive.
pub type OwnedLease<B, M> = Lease<B, M, Arc<Pool<B, M>>>;

/// A lease that borrows its pool.
pub type BorrowedLease<'p, B, M> = Lease<B, M, &'p Pool<B, M>>;

impl<B: MrBackend, M: DmaBuffer, P: Deref<Target = Pool<B, M>>> Lease<B, M, P> {
    pub(crate) const fn new(slot: Boxed<B, M>, pool: P) -> Self {
        Self {
            slot: Some(slot),
            pool,
        }
    }

    fn mapping(&self) -> Option<&Mapping<M>> {
        self.slot.as_ref().and_then(|slot| slot.current.as_ref())
    }

    /// Both keys.
    pub fn keys(&self) -> Keys {
        let none = Keys {
            local: LocalKey::from_bits(0),
            remote: RemoteKey::from_bits(0),
        };
        self.mapping().map_or(none, |mapping| mapping.keys)
    }

    /// The key for the peer.
    pub fn remote_key(&self) -> RemoteKey {
        self.keys().remote
    }

    /// The key for this host's own work requests.
    pub fn local_key(&self) -> LocalKey {
        self.keys().local
    }

    /// The address of the buffer's first byte, as it goes into this host's own work requests.
    pub fn addr(&self) -> u64 {
        self.mapping().map_or(0, |mapping| mapping.addr)
    }

    /// The address by which the peer names that byte: what [`Capabilities::addressing`] makes of
    /// [`addr`](Self::addr).
    ///
    /// [`Capabilities::addressing`]: crate::Capabilities::addressing
    pub fn remote_addr(&self) -> u64 {
        self.pool.core.capabilities.remote_addr(self.addr())
    }

    /// The number of bytes that the key reaches, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> u64 {
        self.mapping().map_or(0, |mapping| mapping.bytes)
    }

    /// What the peer may do.
    pub fn access(&self) -> Access {
        self.mapping()
            .map_or(Access::empty(), |mapping| mapping.access)
    }

    /// Which region of the pool this is, from 0 to the capacity less 1; for logs.
    pub fn region_id(&self) -> u32 {
        self.slot.as_ref().map_or(u32::MAX, |slot| slot.id)
    }

    /// The backend's record of the region, for what only the backend knows to do with it.
    pub fn region(&self) -> Option<&B::Region> {
        self.slot.as_ref().map(|slot| &slot.region)
    }

    /// Ends the lease: *released* (promise 1). What happens next is up to the policy; once the key
    /// is dead the buffer can be had from [`Pool::reclaim`].
    pub fn release(mut self) {
        self.end(Fate::Collect);
    }

    /// Ends the lease like [`release`](Self::release), and returns what the buffer comes back
    /// through.
    pub fn release_pending(mut self) -> Pending<M> {
        let handback = Arc::new(Handback::new());
        self.end(Fate::Hand(Arc::clone(&handback)));
        Pending::new(handback, Arc::clone(&self.pool.core.alarm))
    }

    /// Kills the key now, and returns the buffer: *invalidated* (promise 2).
    ///
    /// It costs one fence of the backend; where a fence reaches the whole HCA, callers share it.
    ///
    /// # Errors
    ///
    /// The key may still be honoured; the pool keeps the buffer, and gives it out through
    /// [`Pool::reclaim`] when it is not.
    pub fn invalidate(mut self) -> Result<M, InvalidateError<B::Error>> {
        match self.slot.take() {
            Some(slot) => self.pool.core.invalidate(slot),
            None => Err(crate::FlushError::from(Poisoned(PoisonedBy::Pool)).into()),
        }
    }

    /// The buffer, if the peer has ended the lease with a SEND_WITH_INV of its key. The backend's
    /// word counts, not the peer's.
    ///
    /// # Errors
    ///
    /// Gives itself back if the key is alive.
    pub fn take_if_peer_invalidated(mut self) -> Result<M, Self> {
        let dead = self.slot.as_mut().is_some_and(|slot| {
            let asked = |backend: &B| backend.invalidated_by_peer(&mut slot.region);
            self.pool.core.ask_backend(asked).unwrap_or(false)
        });
        let slot = if dead { self.slot.take() } else { None };
        slot.and_then(|slot| self.pool.core.end_dead_lease(slot))
            .ok_or(self)
    }

    #[inline(always)]
    fn end(&mut self, fate: Fate<M>) {
        if let Some(slot) = self.slot.take() {
            self.pool.core.release(slot, fate);
        }
    }
}

impl<B: MrBackend, M: DmaBuffer, P: Deref<Target = Pool<B, M>>> Drop for Lease<B, M, P> {
    fn drop(&mut self) {
        if self.slot.is_some() {
            self.end(Fate::Drop);
        }
    }
}

impl<B: MrBackend, M: DmaBuffer, P: Deref<Target = Pool<B, M>>> fmt::Debug for Lease<B, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("region", &self.region_id())
            .field("keys", &self.keys())
            .field("len", &self.len())
            .field("access", &self.access())
            .finish()
    }
}

/// A region that is leased, or why there is none.
pub(crate) type Leased<B, M> = Result<Boxed<B, M>, LeaseError<<B as MrBackend>::Error, M>>;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Leases a region for `buffer`, waiting for one as long as `patience` says, if it comes to that;
    /// without it, not at all.
    pub(crate) fn lease(
        &self,
        buffer: M,
        access: Access,
        patience: impl FnOnce() -> Option<Duration>,
    ) -> Leased<B, M> {
        self.lease_by(buffer, access, patience, B::map)
    }

    /// The same, mapped by `map`: one of the ways that the backend has.
    pub(crate) fn lease_by(
        &self,
        mut buffer: M,
        access: Access,
        patience: impl FnOnce() -> Option<Duration>,
        map: impl FnOnce(&B, &mut B::Region, MemoryRange<'_>, Access, KeyTag) -> Result<Keys, B::Error>,
    ) -> Leased<B, M> {
        match self.find_region(&mut buffer, patience) {
            Ok(slot) => self.map(slot, buffer, access, map),
            Err(reason) => Err(LeaseError {
                reason,
                buffer: Some(buffer),
            }),
        }
    }

    /// A region for `buffer`, which is waited for as long as `patience` says, if it comes to that.
    #[inline]
    pub(crate) fn find_region(
        &self,
        buffer: &mut M,
        patience: impl FnOnce() -> Option<Duration>,
    ) -> Result<Boxed<B, M>, LeaseRefusal<B::Error>> {
        let bytes = buffer.len() as u64;
        let fits = bytes > 0 && bytes <= self.fit_anywhere;
        if fits && !self.objections.any() {
            return match self.draw(bytes) {
                Some(slot) => Ok(slot),
                None => self.find_patiently(bytes, patience()),
            };
        }
        self.find_despite(buffer, patience)
    }

    /// As [`find_region`](Self::find_region), where the buffer may not fit or something speaks against
    /// a lease at once.
    #[cold]
    fn find_despite(
        &self,
        buffer: &mut M,
        patience: impl FnOnce() -> Option<Duration>,
    ) -> Result<Boxed<B, M>, LeaseRefusal<B::Error>> {
        let bytes = self.check_fit(buffer)?;
        if self.objections.is_over_bound() {
            return self.find_patiently(bytes, patience());
        }
        self.check_open()?;
        self.draw(bytes)
            .map_or_else(|| self.find_patiently(bytes, patience()), Ok)
    }

    /// Waits for a region, and counts if there is none.
    #[cold]
    fn find_patiently(
        &self,
        bytes: u64,
        patience: Option<Duration>,
    ) -> Result<Boxed<B, M>, LeaseRefusal<B::Error>> {
        let found = self.draw_patiently(bytes, patience);
        if matches!(found, Err(LeaseRefusal::Exhausted { .. })) {
            self.exhausted.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Checks that the buffer fits a region where it is. Returns its length.
    pub(crate) fn check_fit(&self, buffer: &mut M) -> Result<u64, LeaseRefusal<B::Error>> {
        let Some(memory) = MemoryRange::of(buffer) else {
            return Err(LeaseRefusal::ZeroLength);
        };
        let shift = self.capabilities.page_size.trailing_zeros();
        let last = memory.addr().saturating_add(memory.len() - 1);
        let pages = (last >> shift) - (memory.addr() >> shift) + 1;
        let max = self.capabilities.max_bytes;
        if memory.len() > max || pages > u64::from(self.capabilities.max_pages) {
            return Err(LeaseRefusal::TooLong {
                len: memory.len(),
                max,
            });
        }
        Ok(memory.len())
    }

    pub(crate) fn check_open(&self) -> Result<(), LeaseRefusal<B::Error>> {
        self.check_poison()?;
        if self.is_closed() {
            Err(LeaseRefusal::Closed)
        } else {
            Ok(())
        }
    }
}
