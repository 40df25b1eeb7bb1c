//! dirty → flush → clean.

use crate::backend::BackendError;
use crate::clock::Deadline;
use crate::pool::abroad::{Fenced, Retry};
use crate::pool::burial::Estate;
use crate::pool::core::{Core, earlier};
use crate::pool::gate::{Ended, InFlush, Turn};
use crate::pool::home::AT_A_TIME;
use crate::pool::lot::Lot;
use crate::pool::shard::count;
use crate::pool::slot::StaleSum;
use crate::{
    BatchError, DmaBuffer, ErrorKind, Fence, FlushError, MrBackend, RegionState, Scope, Time,
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
    /// What the backend is still to be asked about, the last first.
    lots: Vec<Lot<B, M>>,
    /// What it was asked about and is not settled.
    asked: Vec<Lot<B, M>>,
    /// Kills what leased regions have left behind, although no region is to be invalidated.
    fence_only: bool,
    scope: Scope,
    /// Its end asks for a new look at what is due.
    look_again: bool,
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
        self.objections.set_over_bound(false);
        let global = self.capabilities.fence == Fence::Global;
        // Before any list is looked at: a superseded key whose region comes home meanwhile is in here, or on
        // a list that is still to be taken.
        let superseded = if global { self.abroad.begin_fence() } else { 0 };
        let mut taken = InFlush::default();
        self.budget.begin_taking();
        let shards = self.shards.iter().enumerate();
        let mut lots: Vec<_> = shards
            .filter_map(|(home, shard)| shard.lock().take_stale(scope, home, &mut taken))
            .collect();
        self.budget.end_taking();
        lots.extend(self.retry_lot(started, all, &mut taken));
        lots.reverse();
        if taken.regions as usize > self.capabilities.max_batch {
            // Batches are cut off the ends, and the oldest keys shall die first.
            lots.iter_mut().for_each(|lot| lot.slots.reverse());
        }
        let fence_only = scope == Scope::Stale && lots.is_empty() && superseded > 0;
        if fence_only || !lots.is_empty() {
            self.gate.took(taken, started);
        }
        Some(Flush {
            core: self,
            lots,
            asked: Vec::new(),
            fence_only,
            scope,
            look_again: false,
            started,
            reached_backend: false,
            fenced: false,
            failed: None,
        })
    }

    /// What is in quarantine and due, or all of it.
    fn retry_lot(&self, now: Time, all: bool, taken: &mut InFlush) -> Option<Lot<B, M>> {
        let mut slots = Vec::new();
        self.quarantine.lock().take_due(now, all, &mut slots);
        let mut sum = StaleSum::default();
        for slot in &slots {
            sum.merge(&slot.stale());
            taken.oldest = earlier(taken.oldest, slot.oldest());
        }
        taken.regions += count(slots.len());
        taken.sum.merge(&sum);
        (!slots.is_empty()).then(|| Lot {
            home: self.my_shard(),
            slots,
            sum,
            plain: false,
            failed: false,
        })
    }

    /// Settles a lot for which somebody waits, or in which something has failed.
    fn bury_lot(&self, lot: Lot<B, M>, dead: Time) {
        let Lot {
            mut slots, mut sum, ..
        } = lot;
        for slot in slots.extract_if(.., |slot| !slot.enter(RegionState::InFlush)) {
            sum.remove(&slot.stale());
            self.fail_internally(slot);
        }
        if lot.failed {
            for mut slot in slots.extract_if(.., |slot| slot.failure.is_some()) {
                let kind = slot.failure.take().unwrap_or(ErrorKind::Io);
                sum.remove(&slot.stale());
                self.confine(slot, kind);
            }
        }
        let mut estate = Estate::new();
        estate.reserve(slots.len());
        let mut legal = true;
        self.shards[self.my_shard()].lock().ledger.close(&sum, dead);
        for some in slots.chunks_mut(AT_A_TIME) {
            let ledger = &mut self.shards[self.my_shard()].lock().ledger;
            legal &= estate.bury(some, dead, ledger);
        }
        self.distribute(estate);
        if !legal {
            let lost = slots.extract_if(.., |slot| slot.state() != RegionState::Clean);
            lost.for_each(|slot| self.fail_internally(slot));
        }
        self.depot.store(&mut slots, dead);
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
        let lots = self.lots.iter().chain(&self.asked);
        lots.map(|lot| lot.slots.len()).sum()
    }

    /// Has its end ask for a new look at what is due, in place of the time that it was due at.
    pub(crate) const fn then_look_again(mut self) -> Self {
        self.look_again = true;
        self
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
        let due = std::mem::take(&mut self.fence_only) || !self.lots.is_empty();
        if !due || self.core.check_poison().is_err() {
            return false;
        }
        let batch = self.next_batch();
        self.reached_backend = true;
        let lots = &mut self.asked[batch..];
        let mut regions = Vec::with_capacity(lots.iter().map(|lot| lot.slots.len()).sum());
        for lot in lots {
            regions.extend(lot.slots.iter_mut().map(|slot| &mut slot.region));
        }
        let answer = self
            .core
            .ask_backend(|backend| backend.invalidate(&mut regions));
        if matches!(answer, Some(Ok(()))) {
            self.fenced = true;
        } else {
            let kind = failure_at(0, answer.as_ref()).unwrap_or(ErrorKind::Io);
            self.failed.get_or_insert(kind);
            let mut place = 0;
            for lot in &mut self.asked[batch..] {
                lot.failed = true;
                for slot in &mut lot.slots {
                    slot.failure = failure_at(place, answer.as_ref());
                    place += 1;
                }
            }
        }
        true
    }

    /// Gives back the buffers of the batches invalidated so far, and makes their regions clean, as
    /// of now.
    pub fn settle(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let core = self.core;
        let now = core.now_or(self.started);
        let mut leaving = InFlush::default();
        for lot in &self.asked {
            leaving.regions += count(lot.slots.len());
            leaving.sum.merge(&lot.sum);
        }
        core.gate.settled(leaving);
        for lot in self.asked.drain(..) {
            if let Err(lot) = core.send_home(lot, now) {
                core.bury_lot(lot, now);
            }
        }
        tracing::debug!(regions = leaving.regions, "flushed");
        core.serve();
    }

    /// Moves what goes into one call of the backend to the end of `asked`. Returns where it begins.
    fn next_batch(&mut self) -> usize {
        let begin = self.asked.len();
        let mut room = self.core.capabilities.max_batch;
        while room > 0
            && let Some(mut lot) = self.lots.pop()
        {
            if lot.slots.len() > room {
                let last = lot.split_off_last(room);
                self.lots.push(std::mem::replace(&mut lot, last));
            }
            room -= lot.slots.len();
            self.asked.push(lot);
        }
        begin
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
        let asked_all = self.lots.is_empty() && !self.fence_only;
        for lot in self.lots.drain(..) {
            for slot in lot.slots {
                match slot.state() {
                    RegionState::Worn | RegionState::Reusable => {
                        core.shards[lot.home].lock().restore(slot);
                    }
                    RegionState::Quarantined => core.readmit(slot),
                    _ => core.confine(slot, ErrorKind::Busy),
                }
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
        let missed = core.gate.leave(Ended {
            took: self.reached_backend.then(|| now.since(self.started)),
            asked_all,
            killed_all: self.failed.is_none(),
        });
        if !asked_all {
            // Whoever wanted it still does.
            core.gate.demand(self.scope);
        }
        // Otherwise nothing is due earlier than before: the flusher need not be woken.
        if self.look_again || missed || !asked_all || self.failed.is_some() {
            core.call_at(Time::ZERO);
        }
        core.serve();
    }
}
