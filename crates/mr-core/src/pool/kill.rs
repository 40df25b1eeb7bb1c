//! Invalidation of one region by the thread that leased it.

use crate::backend::BackendError;
use crate::pool::burial::Estate;
use crate::pool::core::Core;
use crate::pool::shard::Boxed;
use crate::pool::slot::{Mapping, Slot, StaleSum};
use crate::{
    DmaBuffer, ErrorKind, FlushError, InvalidateError, MrBackend, Poisoned, PoisonedBy,
    RegionState, Time,
};

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Invalidates one leased region that goes through no list. Returns its buffer if `keep`, else
    /// sends it the way of its fate.
    pub(crate) fn kill(
        &self,
        mut slot: Boxed<B, M>,
        keep: bool,
    ) -> Result<Option<M>, InvalidateError<B::Error>> {
        if !slot.enter(RegionState::InFlush) {
            self.fail_internally(slot);
            return Err(FlushError::from(Poisoned(PoisonedBy::Pool)).into());
        }
        let answer = self.ask_backend(|backend| backend.invalidate(&mut [&mut slot.region]));
        self.count_killed(&slot);
        match answer {
            Some(Ok(())) => Ok(self.cleanse(slot, self.now(), keep)),
            Some(Err(failure)) if failure.is_dead(0) => Ok(self.cleanse(slot, self.now(), keep)),
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

    /// Ends a lease whose key the peer has invalidated, and takes the buffer. Nothing else is left
    /// to do, unless earlier keys of the region may be honoured: the peer has not killed those.
    pub(crate) fn end_dead_lease(&self, mut slot: Boxed<B, M>) -> Option<M> {
        let now = self.now();
        if let Some(mapping) = &mut slot.current {
            mapping.released = now;
        }
        let home = self.come_home(&mut slot);
        if !slot.earlier.is_empty() {
            let buffer = self.retire_the_rest(slot, now);
            self.arrive_home(home);
            return buffer;
        }
        self.arrive_home(home);
        self.count_killed(&slot);
        if !slot.enter(RegionState::InFlush) {
            self.fail_internally(slot);
            return None;
        }
        self.cleanse(slot, now, true)
    }

    /// Puts a region on the dirty list of which the latest key is dead and earlier ones may not be.
    /// Returns the buffer of the latest.
    fn retire_the_rest(&self, mut slot: Boxed<B, M>, now: Time) -> Option<M> {
        let mapping = slot.current.take()?;
        let sum = StaleSum::of(&mapping);
        if !slot.enter(RegionState::Worn) {
            self.fail_internally(slot);
            return Some(mapping.into_buffer());
        }
        let mut shard = self.shards[self.my_shard()].lock();
        shard.ledger.close(&sum, now);
        shard.ledger.record(mapping.released, now);
        shard.count_back(sum.bytes);
        shard.restore(slot);
        drop(shard);
        self.call_at(Time::ZERO);
        self.serve();
        Some(mapping.into_buffer())
    }

    /// Counts a leased region that does not pass through the dirty list.
    fn count_killed(&self, slot: &Slot<B, M>) {
        let bytes = slot.current.as_ref().map_or(0, |mapping| mapping.bytes);
        self.shards[self.my_shard()].lock().count_back(bytes);
    }

    /// Puts a region whose keys are dead back into circulation. Returns the buffer of its latest
    /// mapping if `keep`.
    fn cleanse(&self, mut slot: Boxed<B, M>, dead: Time, keep: bool) -> Option<M> {
        let sum = slot.stale();
        let kept = if keep { slot.current.take() } else { None };
        let mut estate = Estate::new();
        let mut shard = self.shards[self.my_shard()].lock();
        shard.ledger.close(&sum, dead);
        if let Some(mapping) = &kept {
            shard.ledger.record(mapping.released, dead);
        }
        let legal = estate.bury(std::slice::from_mut(&mut slot), dead, &mut shard.ledger);
        drop(shard);
        self.distribute(estate);
        if legal {
            self.give_back(slot, dead);
        } else {
            self.fail_internally(slot);
        }
        kept.map(Mapping::into_buffer)
    }

    /// A region is not where the tables say it is: a defect of this crate. Nothing of it is freed.
    #[cold]
    pub(crate) fn fail_internally(&self, mut slot: Boxed<B, M>) {
        tracing::error!(region = slot.id, state = %slot.state(), "region in an impossible state");
        self.poison(PoisonedBy::Pool);
        slot.failures = u32::MAX - 1;
        self.confine(slot, ErrorKind::Io);
    }
}
