//! release → dirty: what happens to a region when its lease ends.

use crate::pool::abroad::Journey;
use crate::pool::core::Core;
use crate::pool::handback::{Handback, Pending};
use crate::pool::shard::Boxed;
use crate::pool::slot::{Fate, StaleSum};
use crate::{
    AtRelease, DmaBuffer, Driver, ErrorKind, Fence, FlushError, InvalidateError, KeyTag, MrBackend,
    Poisoned, PoisonedBy, RegionState, ReleasedRegion, Remap, Scope, Time,
};
use std::sync::Arc;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Ends the lease of `slot`; its buffer goes the way of `fate` once the key is dead.
    pub(crate) fn release(&self, mut slot: Boxed<B, M>, fate: Fate<M>) {
        let now = self.now();
        let Some(mapping) = &mut slot.current else {
            return self.fail_internally(slot);
        };
        mapping.released = now;
        mapping.send(fate);
        let released = ReleasedRegion::new(slot.maps.into(), mapping.bytes, mapping.access);
        let verdict = self.verdict(&released);
        if verdict == AtRelease::Invalidate && self.kills_alone() {
            // A failure is in the quarantine's books; a release has nobody to tell.
            let _ = self.kill(slot, false);
        } else {
            let reuse = verdict == AtRelease::Reuse;
            self.publish(
                slot,
                if reuse {
                    RegionState::Reusable
                } else {
                    RegionState::Worn
                },
                now,
            );
            if verdict == AtRelease::Invalidate {
                self.flush_at_once();
            }
        }
        if self.is_closed() {
            self.free_clean();
            self.gate.notify();
        }
    }

    /// Ends the lease of `slot` and returns its buffer once the key is dead.
    pub(crate) fn invalidate(&self, mut slot: Boxed<B, M>) -> Result<M, InvalidateError<B::Error>> {
        let now = self.now();
        if let Some(mapping) = &mut slot.current {
            mapping.released = now;
            mapping.send(Fate::Collect);
        }
        let result = match self.capabilities.fence {
            Fence::PerKey => self.kill(slot, true),
            Fence::Global => self.kill_by_flush(slot, now),
        };
        if self.is_closed() {
            self.free_clean();
            self.gate.notify();
        }
        result?.ok_or_else(|| FlushError::from(Poisoned(PoisonedBy::Pool)).into())
    }

    /// A fence for the whole HCA costs the same for one region as for all that are stale, so
    /// callers share it: those who come while one is under way all join the next.
    fn kill_by_flush(
        &self,
        mut slot: Boxed<B, M>,
        now: Time,
    ) -> Result<Option<M>, InvalidateError<B::Error>> {
        let handback = Arc::new(Handback::new());
        if let Some(mapping) = &mut slot.current {
            mapping.send(Fate::Hand(Arc::clone(&handback)));
        }
        self.publish(slot, RegionState::Worn, now);
        let flushed = self.flush(Scope::Worn);
        let pending = Pending::new(handback);
        match pending.leave_to_pool() {
            Some(buffer) => Ok(Some(buffer)),
            None => Err(flushed.err().unwrap_or_else(|| self.not_killed()).into()),
        }
    }

    /// Why a region is not clean although the flush that took it has ended: it is in quarantine, or
    /// another flush is trying it again.
    fn not_killed(&self) -> FlushError {
        let kind = self.quarantine.lock().wards().latest;
        FlushError::Quarantined {
            regions: 1,
            kind: kind.unwrap_or(ErrorKind::Io),
        }
    }

    /// Whether a releasing thread invalidates its own region rather than joining a flush: where a
    /// fence reaches only the keys in its batch there is nothing to share.
    fn kills_alone(&self) -> bool {
        self.capabilities.fence == Fence::PerKey && self.runs_backend_in_release()
    }

    fn runs_backend_in_release(&self) -> bool {
        self.config.driver == Driver::Thread || self.is_closed()
    }

    fn flush_at_once(&self) {
        // What failed is in the quarantine's books; what could not be waited for is done later.
        if !self.runs_backend_in_release() || self.flush(Scope::Worn).is_err() {
            self.gate.demand(Scope::Worn);
            self.call_at(Time::ZERO);
        }
    }

    fn verdict(&self, released: &ReleasedRegion) -> AtRelease {
        if self.is_closed() {
            return AtRelease::Invalidate;
        }
        let verdict = self.ask_policy(|policy| policy.at_release(released));
        match verdict.flatten().unwrap_or(AtRelease::Retire) {
            // A key value must not come back while an earlier use of it may be stale.
            AtRelease::Reuse if !self.can_remap() || released.maps >= KeyTag::COUNT - 1 => {
                AtRelease::Retire
            }
            verdict => verdict,
        }
    }

    /// Whether a stale region can be mapped again. Keys that a remap leaves alive can be killed
    /// under a lease only by a fence that reaches the whole HCA.
    pub(crate) fn can_remap(&self) -> bool {
        match self.capabilities.remap {
            Remap::Impossible => false,
            Remap::KillsPrevious => true,
            Remap::LeavesPrevious => self.capabilities.fence == Fence::Global,
        }
    }

    /// Takes the earlier mappings of a region that comes back from a lease out of the books of what
    /// is abroad, and lets go of those that a fence has killed. Until the journey has arrived no
    /// flush overlooks the others, whose sum this returns; `None` if there were none at all.
    pub(crate) fn come_home(&self, slot: &mut Boxed<B, M>) -> Option<(Journey, StaleSum)> {
        (!slot.earlier.is_empty()).then(|| self.bring_home(slot))
    }

    /// What [`come_home`](Self::come_home) has returned is on a list, or on its way to be.
    pub(crate) fn arrive_home(&self, home: Option<(Journey, StaleSum)>) {
        if let Some((journey, earlier)) = home {
            self.arrive(Some(journey), &earlier);
        }
    }

    #[inline(never)]
    fn bring_home(&self, slot: &mut Boxed<B, M>) -> (Journey, StaleSum) {
        let mut dead = Vec::new();
        let bury = |mapping, time| dead.push((mapping, time));
        let journey = self.abroad.come_home(&mut slot.earlier, bury);
        for (mapping, time) in dead {
            self.bury_one(mapping, time);
        }
        let mut left = StaleSum::default();
        for earlier in &slot.earlier {
            left.merge(&StaleSum::of(&earlier.mapping));
        }
        (journey, left)
    }

    /// Puts a released region on the dirty list.
    pub(crate) fn publish(&self, mut slot: Boxed<B, M>, state: RegionState, now: Time) {
        if !slot.enter(state) {
            return self.fail_internally(slot);
        }
        let home = self.come_home(&mut slot);
        if self.capabilities.soft_invalidate {
            self.ask_backend(|backend| backend.soft_invalidate(&mut slot.region));
        }
        let bytes = slot.current.as_ref().map_or(0, |mapping| mapping.bytes);
        let mut shard = self.shards[self.my_shard()].lock();
        // A flush that waits for this region must find it on its list, and not travelling again.
        if state == RegionState::Reusable && home.is_some() && self.abroad.is_awaited() {
            let _ = slot.enter(RegionState::Worn);
        }
        let ask = shard.release(slot, bytes, now, &self.budget);
        drop(shard);
        self.arrive_home(home);
        if ask {
            self.ask(now);
        }
        if !self.queue.is_empty() {
            self.serve();
        }
    }
}
