//! Invalidation of one region by the thread that leased it, and what follows every death.

use crate::backend::BackendError;
use crate::pool::core::Core;
use crate::pool::gate::Fenced;
use crate::pool::handback::Arrival;
use crate::pool::shard::Boxed;
use crate::pool::slot::{Fate, Mapping};
use crate::{
    DmaBuffer, ErrorKind, FlushError, InvalidateError, MrBackend, Poisoned, PoisonedBy,
    RegionState, Time,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Invalidates one leased region that goes through no list. Returns its buffer if `keep`, else
    /// sends it the way of its fate.
    pub(crate) fn kill(
        &self,
        mut slot: Boxed<B, M>,
        keep: bool,
    ) -> Result<Option<M>, InvalidateError<B::Error>> {
        self.count_killed(&slot);
        if !slot.enter(RegionState::InFlush) {
            self.fail_internally(slot);
            return Err(FlushError::from(Poisoned(PoisonedBy::Pool)).into());
        }
        match self.ask_backend(|backend| backend.invalidate(&mut [&mut slot.region])) {
            Some(Ok(())) => Ok(self.cleanse(slot, self.now(), keep)),
            Some(Err(failure)) => {
                let kind = failure.error(0).map_or(ErrorKind::Io, BackendError::kind);
                self.confine(slot, kind);
                let quarantined = FlushError::Quarantined { regions: 1, kind };
                Err(failure
                    .into_first()
                    .map_or(quarantined.into(), InvalidateError::Backend))
            }
            None => {
                self.confine(slot, ErrorKind::Io);
                Err(FlushError::from(Poisoned(PoisonedBy::Backend)).into())
            }
        }
    }

    /// Ends a lease whose key the peer has invalidated: nothing is left to do but to take the
    /// buffer.
    pub(crate) fn end_dead_lease(&self, mut slot: Boxed<B, M>) -> Option<M> {
        let now = self.now();
        if let Some(mapping) = &mut slot.current {
            mapping.released = now;
        }
        self.count_killed(&slot);
        if !slot.enter(RegionState::InFlush) {
            self.fail_internally(slot);
            return None;
        }
        self.cleanse(slot, now, true)
    }

    fn count_killed(&self, slot: &Boxed<B, M>) {
        if !slot.earlier.is_empty() {
            self.superseded.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(mapping) = &slot.current {
            self.count_back(mapping);
        }
    }

    /// Counts a leased region that does not pass through the dirty list.
    pub(crate) fn count_back(&self, mapping: &Mapping<M>) {
        let mut shard = self.shards[self.my_shard()].lock();
        shard.count_back(mapping.bytes);
        shard.tally.released.add(mapping.bytes, mapping.released);
    }

    /// Takes all mappings off a region whose keys are dead, and puts it back into circulation.
    /// Returns the buffer of the latest mapping if `keep`.
    fn cleanse(&self, mut slot: Boxed<B, M>, dead: Time, keep: bool) -> Option<M> {
        self.record_deaths(slot.mappings(), dead);
        let kept = if keep {
            slot.current.as_mut().and_then(Mapping::take_buffer)
        } else {
            None
        };
        let mut collected = Vec::new();
        slot.bury()
            .for_each(|mapping| dispose(mapping, &mut collected));
        self.collect(&mut collected);
        if slot.enter(RegionState::Clean) {
            self.give_back(slot);
        } else {
            self.fail_internally(slot);
        }
        kept
    }

    /// Lets go of earlier mappings that a fence has killed while their region was leased.
    pub(crate) fn bury_fenced(&self, slot: &mut Boxed<B, M>) {
        let Fenced { started, completed } = self.gate.last_fence();
        let dead = slot
            .earlier
            .partition_point(|earlier| earlier.remapped < started);
        let mut dead: Vec<_> = slot
            .earlier
            .drain(..dead)
            .map(|gone| gone.mapping)
            .collect();
        self.record_deaths(dead.iter(), completed);
        let mut collected = Vec::new();
        dead.drain(..)
            .for_each(|mapping| dispose(mapping, &mut collected));
        self.collect(&mut collected);
    }

    /// Lets go of a mapping whose key a remap of its region has killed.
    pub(crate) fn bury_replaced(&self, mapping: Mapping<M>) {
        self.record_deaths(std::iter::once(&mapping), self.now());
        let mut collected = Vec::new();
        dispose(mapping, &mut collected);
        self.collect(&mut collected);
    }

    /// Records the exposure of keys that are dead.
    pub(crate) fn record_deaths<'a>(
        &self,
        mappings: impl Iterator<Item = &'a Mapping<M>>,
        dead: Time,
    ) where
        M: 'a,
    {
        let mut ledger = self.ledgers[self.my_shard()].lock();
        mappings.for_each(|mapping| ledger.record(mapping, dead));
    }

    /// Makes buffers reclaimable.
    pub(crate) fn collect(&self, collected: &mut Vec<M>) {
        if !collected.is_empty() {
            self.unclaimed.lock().put(collected);
            collected.drain(..).for_each(drop_quietly);
        }
    }

    /// A region is not where the tables say it is: a defect of this crate. Nothing of it is freed.
    pub(crate) fn fail_internally(&self, mut slot: Boxed<B, M>) {
        tracing::error!(region = slot.id, state = %slot.state(), "region in an impossible state");
        self.poison(PoisonedBy::Pool);
        slot.failures = u32::MAX - 1;
        self.confine(slot, ErrorKind::Io);
    }
}

/// Sends the buffer of a dead mapping on its way.
pub(crate) fn dispose<M: DmaBuffer>(mut mapping: Mapping<M>, collected: &mut Vec<M>) {
    let Some(buffer) = mapping.take_buffer() else {
        return;
    };
    match mapping.fate {
        Fate::Drop => drop_quietly(buffer),
        Fate::Collect => collected.push(buffer),
        Fate::Hand(handback) => match handback.hand(buffer) {
            Arrival::Received => {}
            Arrival::Unwanted(buffer) => drop_quietly(buffer),
            Arrival::Collect(buffer) => collected.push(buffer),
        },
    }
}

/// Drops a user's buffer; a panic in there must not take the pool's books along.
fn drop_quietly<M>(buffer: M) {
    if catch_unwind(AssertUnwindSafe(|| drop(buffer))).is_err() {
        tracing::error!("a buffer panicked when it was dropped");
    }
}
