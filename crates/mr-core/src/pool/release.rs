//! release → dirty: what happens to a region when its lease ends.

use crate::pool::abroad::Journey;
use crate::pool::core::Core;
use crate::pool::handback::Handback;
use crate::pool::shard::Boxed;
use crate::pool::slot::{Fate, StaleSum};
use crate::{
    Access, AtRelease, DmaBuffer, Driver, ErrorKind, Fence, FlushError, InvalidateError, KeyTag,
    MrBackend, Poisoned, PoisonedBy, RegionState, ReleasedRegion, Remap, Scope, Time,
};
use std::sync::Arc;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Ends the lease of `slot`; its buffer goes the way of `fate` once the key is dead.
    pub(crate) fn release(&self, mut slot: Boxed<B, M>, fate: Fate<M>) {
        let now = self.now();
        let Some(mapping) = &mut slot.current else {
            return self.fail_internally(slot);
        };
        let bytes = mapping.bytes;
        let verdict = self.verdict(slot.maps.into(), bytes, mapping.access);
        // What `Slot::is_plain` says, but known before it is written.
        let plain = matches!(fate, Fate::Collect) && slot.earlier.is_empty();
        mapping.released = now;
        mapping.send(fate);
        if plain && verdict == AtRelease::Retire {
            self.retire_plain(slot, bytes, now);
        } else {
            self.release_otherwise(slot, verdict, now);
        }
        if self.is_closed() {
            self.free_clean();
            self.gate.notify();
        }
    }

    /// Puts a [plain](Slot::is_plain) region on the dirty list: what most releases do.
    #[inline]
    fn retire_plain(&self, mut slot: Boxed<B, M>, bytes: u64, now: Time) {
        if !slot.enter(RegionState::Worn) {
            return self.fail_internally(slot);
        }
        self.soften(&mut slot);
        let mut shard = self.shards[self.my_shard()].lock();
        let ask = shard.release_plain(slot, bytes, now, &self.budget);
        drop(shard);
        self.follow_up(ask, now);
    }

    #[inline(never)]
    fn release_otherwise(&self, slot: Boxed<B, M>, verdict: AtRelease, now: Time) {
        match verdict {
            AtRelease::Retire => self.publish(slot, RegionState::Worn, now),
            AtRelease::Reuse => self.publish(slot, RegionState::Reusable, now),
            AtRelease::Invalidate if self.kills_alone() => {
                // A failure is in the quarantine's books; a release has nobody to tell.
                let _ = self.kill(slot, false);
            }
            AtRelease::Invalidate => {
                self.publish(slot, RegionState::Worn, now);
                self.flush_at_once();
            }
        }
    }

    /// Ends the lease of `slot` and returns its buffer once the key is dead.
    pub(crate) fn invalidate(&self, mut slot: Boxed<B, M>) -> Result<M, InvalidateError<B::Error>> {
        let now = self.now();
        let global = self.capabilities.fence == Fence::Global;
        let handback = global.then(|| Arc::new(Handback::new()));
        if let Some(mapping) = &mut slot.current {
            mapping.released = now;
            mapping.send(handback.clone().map_or(Fate::Collect, Fate::Hand));
        }
        let result = match handback {
            None => self.kill(slot, true),
            Some(handback) => self.kill_by_flush(slot, now, &handback),
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
        slot: Boxed<B, M>,
        now: Time,
        handback: &Handback<M>,
    ) -> Result<Option<M>, InvalidateError<B::Error>> {
        self.publish(slot, RegionState::Worn, now);
        let flushed = self.flush(Scope::Worn);
        match handback.leave_to_pool() {
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

    #[inline]
    fn verdict(&self, maps: u32, bytes: u64, access: Access) -> AtRelease {
        if self.is_closed() {
            return AtRelease::Invalidate;
        }
        if !self.policy_speaks_at_release {
            return AtRelease::Retire;
        }
        self.ask_at_release(&ReleasedRegion::new(maps, bytes, access))
    }

    #[inline(never)]
    fn ask_at_release(&self, released: &ReleasedRegion) -> AtRelease {
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

    /// Puts any released region on the dirty list.
    pub(crate) fn publish(&self, mut slot: Boxed<B, M>, state: RegionState, now: Time) {
        if !slot.enter(state) {
            return self.fail_internally(slot);
        }
        let home = self.come_home(&mut slot);
        self.soften(&mut slot);
        let bytes = slot.current.as_ref().map_or(0, |mapping| mapping.bytes);
        let mut shard = self.shards[self.my_shard()].lock();
        // A flush that waits for this region must find it on its list, and not travelling again.
        if state == RegionState::Reusable && home.is_some() && self.abroad.is_awaited() {
            let _ = slot.enter(RegionState::Worn);
        }
        let ask = shard.release(slot, bytes, now, &self.budget);
        drop(shard);
        self.arrive_home(home);
        self.follow_up(ask, now);
    }

    /// Has the backend take the key out of its table, where it can: only caches may still honour it.
    #[inline]
    fn soften(&self, slot: &mut Boxed<B, M>) {
        if self.capabilities.soft_invalidate {
            self.ask_backend(|backend| backend.soft_invalidate(&mut slot.region));
        }
    }

    /// What follows when a released region is on its list.
    #[inline]
    fn follow_up(&self, ask: bool, now: Time) {
        if ask {
            self.ask(now);
        }
        if !self.queue.is_empty() {
            self.serve();
        }
    }
}
