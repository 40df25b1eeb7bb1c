//! dirty → flush → clean.

use crate::backend::BackendError;
use crate::clock::Deadline;
use crate::pool::abroad::{Fenced, Retry};
use crate::pool::burial::Estate;
use crate::pool::core::{Core, earlier};
use crate::pool::gate::{Ended, InFlush, Turn};
use crate::pool::shard::{Boxed, count};
use crate::pool::slot::StaleSum;
use crate::sync::atomic::Ordering;
use crate::{
    BatchError, DmaBuffer, ErrorKind, Fence, FlushError, MrBackend, PoisonedBy, RegionState, Scope,
    Time,
};

/// A flush that has begun: it has taken its regions, and nothing else flushes until it ends.
///
/// [`run`](Self::run) does all of it. A simulation that puts the backend's time on its own clock
/// calls [`invalidate_next`](Self::invalidate_next), lets the time pass, and then
/// [`settle`](Self::settle), until nothing is left. Dropping it ends the flush: regions that the
/// backend was not asked about go back to the dirty list.
#[must_use = "dropping it ends the flush and puts its regions back"]
pub struct Flush<'p, B: MrBackend, M: DmaBuffer> {
    core: &'p Core<B, M>,
    /// Those that the backend was asked about and that are not settled are the last `asked`.
    slots: Vec<Boxed<B, M>>,
    asked: usize,
    /// Kills what leased regions have left behind, although no region is to be invalidated.
    fence_only: bool,
    /// Sums over `slots`.
    taken: InFlush,
    scope: Scope,
    started: Time,
    reached_backend: bool,
    /// A call of the backend has succeeded in full, so its fence has.
    fenced: bool,
    /// The first failure.
    failed: Option<ErrorKind>,
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Begins a flush of `scope`, and of what is in quarantine and due (`all` of it on demand).
    /// `None` if another flush is under way.
    pub(crate) fn begin(&self, scope: Scope, all: bool) -> Option<Flush<'_, B, M>> {
        let started = self.now_or(Time::ZERO);
        if !self.gate.enter(all && scope == Scope::Stale) {
            return None;
        }
        self.over_bound.store(false, Ordering::Relaxed);
        let mut slots = Vec::new();
        let mut taken = InFlush::default();
        for shard in &self.shards {
            shard.lock().take_stale(scope, &mut slots, &mut taken);
        }
        let retried = slots.len();
        self.quarantine.lock().take_due(started, all, &mut slots);
        for slot in &slots[retried..] {
            taken.sum.merge(&slot.stale());
            taken.oldest = earlier(taken.oldest, slot.oldest());
        }
        taken.regions = count(slots.len());
        if slots.len() > self.capabilities.max_batch {
            // Batches are cut off the end, and the oldest keys shall die first.
            slots.reverse();
        }
        let fences = self.capabilities.fence == Fence::Global
            && (scope == Scope::Stale || !slots.is_empty());
        let superseded = if fences { self.abroad.begin_fence() } else { 0 };
        let fence_only = slots.is_empty() && superseded > 0;
        if fence_only || !slots.is_empty() {
            self.gate.took(taken, started);
        }
        Some(Flush {
            core: self,
            slots,
            asked: 0,
            fence_only,
            taken,
            scope,
            started,
            reached_backend: false,
            fenced: false,
            failed: None,
        })
    }

    /// Kills all of `scope` that was released before the call, whatever list it is on.
    pub(crate) fn flush(&self, scope: Scope) -> Result<(), FlushError> {
        if scope == Scope::Worn || !self.can_remap() {
            return self.flush_listed(scope);
        }
        let quiet = self.abroad.wait();
        let flushed = self.flush_listed(scope).and_then(|()| {
            let latest = self.abroad.latest();
            if quiet == Some(latest) {
                return Ok(());
            }
            self.await_travellers(latest)?;
            self.flush_listed(scope)
        });
        self.abroad.stop_waiting();
        flushed
    }

    /// Waits for the regions that were being mapped again while a flush took all others.
    fn await_travellers(&self, latest: u64) -> Result<(), FlushError> {
        let waited = self.config.flush_timeout;
        let deadline = Deadline::after(waited);
        let over = || self.abroad.have_arrived(latest) || self.check_poison().is_err();
        while !over() {
            let left = deadline.left();
            if left.is_zero() {
                return Err(FlushError::TimedOut { waited });
            }
            self.gate.sleep_unless(over, left);
        }
        Ok(())
    }

    /// Kills all of `scope` that is on a list.
    fn flush_listed(&self, scope: Scope) -> Result<(), FlushError> {
        let waited = self.config.flush_timeout;
        let deadline = Deadline::after(waited);
        let ticket = self.gate.ticket();
        let full = scope == Scope::Stale;
        let poisoned = || self.check_poison().is_err();
        let failure = loop {
            self.check_poison()?;
            match self.gate.wait(ticket, full, deadline, poisoned) {
                Turn::Done => break None,
                Turn::TimedOut => {
                    self.check_poison()?;
                    return Err(FlushError::TimedOut { waited });
                }
                Turn::Within => return Err(FlushError::WithinFlush),
                Turn::Start => {
                    let ran = self.begin(scope, true).map(Flush::run_all);
                    if let Some(Err(kind)) = ran {
                        break Some(kind);
                    }
                }
            }
        };
        self.check_poison()?;
        let wards = self.quarantine.lock().wards();
        match failure.or(wards.latest) {
            Some(kind) if wards.regions > 0 => Err(FlushError::Quarantined {
                regions: wards.regions,
                kind,
            }),
            _ => failure.map_or(Ok(()), |kind| Err(FlushError::Fence { kind })),
        }
    }
}

impl<B: MrBackend, M: DmaBuffer> Flush<'_, B, M> {
    /// Regions that this flush has taken and not yet settled.
    pub fn regions(&self) -> usize {
        self.slots.len()
    }

    /// Does all that is left to do.
    pub fn run(self) {
        // A failure is in the quarantine's books.
        let _ = self.run_all();
    }

    /// Does all that is left to do; the kind of the first failure if there was one.
    fn run_all(mut self) -> Result<(), ErrorKind> {
        while self.invalidate_next() {
            self.settle();
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// Has the backend invalidate the next batch. Says whether there was one.
    ///
    /// A region whose invalidation fails goes to quarantine at the next `settle`.
    pub fn invalidate_next(&mut self) -> bool {
        let left = self.slots.len() - self.asked;
        let batch = left.min(self.core.capabilities.max_batch);
        let batch = &mut self.slots[left - batch..left];
        let due = std::mem::take(&mut self.fence_only) || !batch.is_empty();
        if !due || self.core.check_poison().is_err() {
            return false;
        }
        if !batch
            .iter_mut()
            .all(|slot| slot.enter(RegionState::InFlush))
        {
            self.core.poison(PoisonedBy::Pool);
            return false;
        }
        self.reached_backend = true;
        self.asked += batch.len();
        let mut regions: Vec<_> = batch.iter_mut().map(|slot| &mut slot.region).collect();
        let answer = self
            .core
            .ask_backend(|backend| backend.invalidate(&mut regions));
        if matches!(answer, Some(Ok(()))) {
            self.fenced = true;
        } else {
            let kind = failure_at(0, answer.as_ref()).unwrap_or(ErrorKind::Io);
            self.failed.get_or_insert(kind);
            for (place, slot) in batch.iter_mut().enumerate() {
                slot.failure = failure_at(place, answer.as_ref());
            }
        }
        true
    }

    /// Gives back the buffers of the batches invalidated so far, and makes their regions clean, as
    /// of now.
    pub fn settle(&mut self) {
        if self.asked == 0 {
            return;
        }
        let core = self.core;
        let now = core.now_or(self.started);
        let left = self.slots.len() - std::mem::take(&mut self.asked);
        let mut slots = match left {
            0 => std::mem::take(&mut self.slots),
            left => self.slots.split_off(left),
        };
        let leaving = self.leave(&slots);
        core.gate.settled(leaving);
        let mut dead = leaving.sum;
        if self.failed.is_some() {
            for mut slot in slots.extract_if(.., |slot| slot.failure.is_some()) {
                let kind = slot.failure.take().unwrap_or(ErrorKind::Io);
                dead.remove(&slot.stale());
                core.confine(slot, kind);
            }
        }
        let mut estate = Estate::new();
        estate.reserve(slots.len());
        let mut ledger = core.my_ledger().lock();
        ledger.close(&dead, now);
        let legal = estate.bury(&mut slots, now, &mut ledger);
        drop(ledger);
        core.distribute(estate);
        if !legal {
            let lost = slots.extract_if(.., |slot| slot.state() != RegionState::Clean);
            lost.for_each(|slot| core.fail_internally(slot));
        }
        tracing::debug!(regions = slots.len(), "flushed");
        core.depot.store(&mut slots, now);
        core.serve();
    }

    /// Subtracts `slots` from what this flush holds.
    fn leave(&mut self, slots: &[Boxed<B, M>]) -> InFlush {
        let sum = if self.slots.is_empty() {
            self.taken.sum
        } else {
            let mut sum = StaleSum::default();
            slots.iter().for_each(|slot| sum.merge(&slot.stale()));
            sum
        };
        let regions = count(slots.len());
        self.taken.regions -= regions;
        self.taken.sum.remove(&sum);
        InFlush {
            regions,
            sum,
            oldest: None,
        }
    }
}

/// What went wrong with the region at `place`, if anything did.
fn failure_at<E: BackendError>(
    place: usize,
    answer: Option<&Result<(), BatchError<E>>>,
) -> Option<ErrorKind> {
    match answer {
        Some(Ok(())) => None,
        Some(Err(failure)) if failure.is_dead(place) => None,
        Some(Err(failure)) => Some(
            failure
                .error(place)
                .map_or(ErrorKind::Io, BackendError::kind),
        ),
        None => Some(ErrorKind::Io),
    }
}

impl<B: MrBackend, M: DmaBuffer> Drop for Flush<'_, B, M> {
    fn drop(&mut self) {
        self.settle();
        let core = self.core;
        let asked_all = self.slots.is_empty() && !self.fence_only;
        for slot in self.slots.drain(..) {
            match slot.state() {
                RegionState::Worn | RegionState::Reusable => {
                    core.shards[core.my_shard()].lock().restore(slot);
                }
                RegionState::Quarantined => core.readmit(slot),
                _ => core.confine(slot, ErrorKind::Busy),
            }
        }
        let now = core.now_or(self.started);
        core.abroad.end_fence(match self.reached_backend {
            _ if self.fenced => Fenced::Done(now),
            true => Fenced::Failed(Retry {
                now,
                pause: core.config.retry_after,
            }),
            false => Fenced::GivenUp,
        });
        core.gate.leave(Ended {
            took: self.reached_backend.then(|| now.since(self.started)),
            asked_all,
            killed_all: self.failed.is_none(),
        });
        if !asked_all {
            // Whoever wanted it still does.
            core.gate.demand(self.scope);
        }
        core.call_at(Time::ZERO);
        core.serve();
    }
}
