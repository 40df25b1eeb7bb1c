//! Several leases in one call, for whoever has several I/Os at hand: a backend whose maps are work
//! requests does all of them with one doorbell.

use crate::clock::Deadline;
use crate::pool::Pool;
use crate::pool::core::Core;
use crate::pool::home::AT_A_TIME;
use crate::pool::lease::{BorrowedLease, Lease, OwnedLease};
use crate::pool::map::Drawn;
use crate::pool::shard::Boxed;
use crate::{Access, DmaBuffer, LeaseError, LeaseRefusal, MapJob, MrBackend};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

/// What a batch of leases does when fewer regions are free than it has buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// It leases as many as are free now; it neither waits nor flushes.
    TakeFewer,
    /// It maps those that are free, and goes on with the others as they become free: it helps to
    /// flush and waits, at most so long in all.
    ///
    /// Two such batches at once that each wait for what the other has both end when their time is
    /// over, with fewer leases.
    Wait(Duration),
}

/// A lease of a batch, or why it was not given, with its buffer.
pub type LeaseResult<L, B, M> = Result<L, LeaseError<<B as MrBackend>::Error, M>>;

impl<B: MrBackend, M: DmaBuffer> Pool<B, M> {
    /// Leases a region for each buffer, with its access, and has the backend map them together.
    /// The result has an entry for each buffer, in the same order.
    ///
    /// The first refusal ends the batch: leases before it were given, buffers behind it come back
    /// with [`LeaseRefusal::NotTried`]. Buffers whose maps failed together with the one that was
    /// refused come back in the same way.
    ///
    /// The price is that of as many leases, but for the backend's share: where its maps are work
    /// requests it is that of one chain, one doorbell and one completion to wait for.
    pub fn lease_batch(
        &self,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
    ) -> Vec<LeaseResult<BorrowedLease<'_, B, M>, B, M>> {
        self.map_batch(wanted, shortage, |slot| Lease::new(slot, self))
    }

    /// Leases as [`lease_batch`](Self::lease_batch) does, for leases that keep the pool alive.
    pub fn lease_batch_owned(
        self: &Arc<Self>,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
    ) -> Vec<LeaseResult<OwnedLease<B, M>, B, M>> {
        self.map_batch(wanted, shortage, |slot| Lease::new(slot, Arc::clone(self)))
    }

    fn map_batch<L>(
        &self,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
        lease: impl FnMut(Boxed<B, M>) -> L,
    ) -> Vec<LeaseResult<L, B, M>> {
        let map = |backend: &B, _, jobs: &mut [MapJob<'_, B::Region, B::Error>]| {
            backend.map_batch(jobs);
        };
        self.core.lease_batch(wanted, shortage, map, lease)
    }
}

/// A buffer of a batch whose turn is still to come.
struct Wanted<M> {
    buffer: M,
    access: Access,
    /// Its length, if it fits a region.
    bytes: Option<u64>,
}

/// A batch of leases on its way.
struct Batch<'c, B: MrBackend, M, F, G, L> {
    core: &'c Core<B, M>,
    /// Has the backend do jobs, of which the first is at this place of the batch.
    map: F,
    /// Makes the lease of a region.
    lease: G,
    /// Drawn, and to be mapped together. Nothing is waited for while there are any.
    round: Vec<Drawn<B, M>>,
    done: Vec<LeaseResult<L, B, M>>,
    given: usize,
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Leases a region for each buffer, in rounds: whatever regions are free at one time are mapped
    /// by one call of `map`, which gets the place of its first job in the batch. `lease` makes a
    /// lease of a region that is mapped.
    pub(crate) fn lease_batch<L>(
        &self,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
        map: impl FnMut(&B, usize, &mut [MapJob<'_, B::Region, B::Error>]),
        lease: impl FnMut(Boxed<B, M>) -> L,
    ) -> Vec<LeaseResult<L, B, M>> {
        // All of it first: from the first draw on, nothing of the user's is called that may panic.
        let measure = |(mut buffer, access)| Wanted {
            bytes: self.check_fit(&mut buffer).ok(),
            buffer,
            access,
        };
        let wanted: Vec<_> = wanted.into_iter().map(measure).collect();
        let expected = wanted.len().min(self.config.capacity as usize);
        let mut batch = Batch {
            core: self,
            map,
            lease,
            round: Vec::with_capacity(expected),
            done: Vec::with_capacity(wanted.len()),
            given: 0,
        };
        let mut wanted = wanted.into_iter();
        if let Err(refusal) = batch.lease_all(&mut wanted, shortage) {
            // What was drawn before it still is to be mapped.
            batch.map_round();
            batch.done.push(Err(refusal));
        }
        batch.done.extend(wanted.map(|wanted| {
            Err(LeaseError {
                reason: LeaseRefusal::NotTried,
                buffer: Some(wanted.buffer),
            })
        }));
        batch.done
    }
}

impl<B: MrBackend, M: DmaBuffer, F, G, L> Batch<'_, B, M, F, G, L>
where
    F: FnMut(&B, usize, &mut [MapJob<'_, B::Region, B::Error>]),
    G: FnMut(Boxed<B, M>) -> L,
{
    /// Leases until one is refused.
    fn lease_all(
        &mut self,
        wanted: &mut vec::IntoIter<Wanted<M>>,
        shortage: Shortage,
    ) -> Result<(), LeaseError<B::Error, M>> {
        let deadline = match shortage {
            Shortage::TakeFewer => None,
            Shortage::Wait(time) => Some(Deadline::after(time)),
        };
        loop {
            self.draw_free(wanted)?;
            if !self.map_round() {
                return Ok(());
            }
            let Some(Wanted {
                mut buffer, access, ..
            }) = wanted.next()
            else {
                return Ok(());
            };
            // Without regions of others there is none to wait for.
            let waits = self.given < self.core.config.capacity as usize;
            let patience = || deadline.filter(|_| waits).map(Deadline::left);
            match self.core.find_region(&mut buffer, patience) {
                Ok(slot) => self.round.push(self.core.prepare(slot, buffer, access)?),
                Err(reason) => {
                    return Err(LeaseError {
                        reason,
                        buffer: Some(buffer),
                    });
                }
            }
        }
    }

    /// Draws for as many of the next buffers as regions are free, and nothing speaks against it.
    fn draw_free(
        &mut self,
        wanted: &mut vec::IntoIter<Wanted<M>>,
    ) -> Result<(), LeaseError<B::Error, M>> {
        let core = self.core;
        let mine = core.my_shard();
        while !core.objections.any() {
            if self.draw_many(mine, wanted)? {
                continue;
            }
            // That may bring more than the one.
            if let Some(bytes) = fits_next(wanted)
                && let Some(slot) = core.draw_elsewhere(mine, bytes)
                && let Some(Wanted { buffer, access, .. }) = wanted.next()
            {
                self.round.push(core.prepare(slot, buffer, access)?);
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Draws from the caller's shard, with one hold of its lock. Says whether there may be more to draw
    /// there.
    fn draw_many(
        &mut self,
        mine: usize,
        wanted: &mut vec::IntoIter<Wanted<M>>,
    ) -> Result<bool, LeaseError<B::Error, M>> {
        let core = self.core;
        let mut shard = core.shards[mine].lock();
        for _ in 0..AT_A_TIME {
            let Some(bytes) = fits_next(wanted) else {
                return Ok(false);
            };
            let Some(mut slot) = shard.draw(bytes, || core.depot.latest()) else {
                return Ok(false);
            };
            core.depart(&mut slot);
            // It is the one that fits.
            let Some(Wanted { buffer, access, .. }) = wanted.next() else {
                return Ok(false);
            };
            match Drawn::new(slot, buffer, access) {
                Ok(drawn) => self.round.push(drawn),
                Err((slot, buffer)) => {
                    drop(shard);
                    return Err(core.refuse_stray(slot, buffer));
                }
            }
        }
        Ok(true)
    }

    /// Maps what was drawn. Says whether all of it is mapped.
    fn map_round(&mut self) -> bool {
        let first = self.done.len();
        if self.round.is_empty() {
            return true;
        }
        let mut jobs = Vec::with_capacity(self.round.len());
        jobs.extend(self.round.iter_mut().map_while(Drawn::job));
        let (core, map) = (self.core, &mut self.map);
        let returned = core.ask_backend(|backend| map(backend, first, &mut jobs));
        let answers: Vec<_> = jobs.into_iter().map(MapJob::into_answer).collect();
        let mut answers = answers.into_iter();
        let before = self.given;
        for drawn in self.round.drain(..) {
            let leased = match answers.next() {
                Some(None) if returned.is_none() => core.conclude(drawn, None),
                Some(None) | None => core.take_back(drawn, LeaseRefusal::NotTried),
                Some(answer) => core.conclude(drawn, answer),
            };
            self.given += usize::from(leased.is_ok());
            self.done.push(leased.map(&mut self.lease));
        }
        self.given - before == self.done.len() - first
    }
}

/// The length of the buffer whose turn is next, if there is one and it fits a region.
fn fits_next<M>(wanted: &vec::IntoIter<Wanted<M>>) -> Option<u64> {
    wanted.as_slice().first().and_then(|next| next.bytes)
}
