//! Several leases in one call, for whoever has several I/Os at hand: a backend whose maps are work
//! requests does all of them with one doorbell.

use crate::clock::Deadline;
use crate::pool::Pool;
use crate::pool::core::Core;
use crate::pool::lease::{BorrowedLease, Lease, Leased, OwnedLease};
use crate::pool::map::Drawn;
use crate::pool::shard::Boxed;
use crate::{Access, DmaBuffer, LeaseError, LeaseRefusal, MapJob, MrBackend};
use std::sync::Arc;
use std::time::Duration;

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
        let leased = self.map_batch(wanted, shortage);
        let lease = |leased: Leased<B, M>| Ok(Lease::new(leased?, self));
        leased.into_iter().map(lease).collect()
    }

    /// Leases as [`lease_batch`](Self::lease_batch) does, for leases that keep the pool alive.
    pub fn lease_batch_owned(
        self: &Arc<Self>,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
    ) -> Vec<LeaseResult<OwnedLease<B, M>, B, M>> {
        let leased = self.map_batch(wanted, shortage);
        let lease = |leased: Leased<B, M>| Ok(Lease::new(leased?, Arc::clone(self)));
        leased.into_iter().map(lease).collect()
    }

    fn map_batch(
        &self,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
    ) -> Vec<Leased<B, M>> {
        self.core
            .lease_batch(wanted, shortage, |backend, _, jobs| backend.map_batch(jobs))
    }
}

/// A batch of leases on its way.
struct Batch<'c, B: MrBackend, M, F> {
    core: &'c Core<B, M>,
    /// Has the backend do jobs, of which the first is at this place of the batch.
    map: F,
    /// Drawn, and to be mapped together. Nothing is waited for while there are any.
    round: Vec<Drawn<B, M>>,
    done: Vec<Leased<B, M>>,
    given: usize,
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Leases a region for each buffer, in rounds: whatever regions are free at one time are mapped
    /// by one call of `map`, which gets the place of its first job in the batch.
    pub(crate) fn lease_batch(
        &self,
        wanted: impl IntoIterator<Item = (M, Access)>,
        shortage: Shortage,
        map: impl FnMut(&B, usize, &mut [MapJob<'_, B::Region, B::Error>]),
    ) -> Vec<Leased<B, M>> {
        // All of it first: from the first draw on, nothing of the user's is called that may panic.
        let wanted: Vec<_> = wanted.into_iter().collect();
        let expected = wanted.len().min(self.config.capacity as usize);
        let mut batch = Batch {
            core: self,
            map,
            round: Vec::with_capacity(expected),
            done: Vec::with_capacity(wanted.len()),
            given: 0,
        };
        let mut wanted = wanted.into_iter();
        let untried = batch.lease_all(&mut wanted, shortage);
        let untried = untried.into_iter().chain(wanted.map(|(buffer, _)| buffer));
        batch.done.extend(untried.map(|buffer| {
            Err(LeaseError {
                reason: LeaseRefusal::NotTried,
                buffer: Some(buffer),
            })
        }));
        batch.done
    }
}

impl<B: MrBackend, M: DmaBuffer, F> Batch<'_, B, M, F>
where
    F: FnMut(&B, usize, &mut [MapJob<'_, B::Region, B::Error>]),
{
    /// Leases until one is refused. Returns the buffer that was its turn then, if it was not that
    /// one's.
    fn lease_all(
        &mut self,
        wanted: &mut std::vec::IntoIter<(M, Access)>,
        shortage: Shortage,
    ) -> Option<M> {
        let deadline = match shortage {
            Shortage::TakeFewer => None,
            Shortage::Wait(time) => Some(Deadline::after(time)),
        };
        for (mut buffer, access) in wanted.by_ref() {
            let at_once = match self.round.is_empty() {
                true => None,
                false => self.draw_at_once(&mut buffer),
            };
            if at_once.is_none() && !self.map_round() {
                return Some(buffer);
            }
            // Without regions of others there is none to wait for.
            let waits = self.given < self.core.config.capacity as usize;
            let patience = || deadline.filter(|_| waits).map(Deadline::left);
            let found = match at_once {
                Some(slot) => Ok(slot),
                None => self.core.find_region(&mut buffer, patience),
            };
            let drawn = match found {
                Ok(slot) => self.core.prepare(slot, buffer, access),
                Err(reason) => Err(LeaseError {
                    reason,
                    buffer: Some(buffer),
                }),
            };
            match drawn {
                Ok(drawn) => self.round.push(drawn),
                Err(refusal) => {
                    self.map_round();
                    self.done.push(Err(refusal));
                    return None;
                }
            }
        }
        self.map_round();
        None
    }

    /// A region for the buffer, if one is free and nothing speaks against it.
    fn draw_at_once(&self, buffer: &mut M) -> Option<Boxed<B, M>> {
        let core = self.core;
        if core.objections.any() {
            return None;
        }
        core.check_fit(buffer)
            .ok()
            .and_then(|bytes| core.draw(bytes))
    }

    /// Maps what was drawn. Says whether all of it is mapped.
    fn map_round(&mut self) -> bool {
        let first = self.done.len();
        if self.round.is_empty() {
            return true;
        }
        let mut jobs: Vec<_> = self.round.iter_mut().map_while(Drawn::job).collect();
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
            self.done.push(leased);
        }
        self.given - before == self.done.len() - first
    }
}
