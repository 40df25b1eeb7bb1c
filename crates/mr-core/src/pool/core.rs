//! What all parts of a pool share.

use crate::clock::{Deadline, PoolClock};
use crate::pool::abroad::{Abroad, Journey};
use crate::pool::alarm::Alarm;
use crate::pool::credit::{Budget, Look};
use crate::pool::depot::Depot;
use crate::pool::gate::Gate;
use crate::pool::objections::Objections;
use crate::pool::quarantine::Quarantine;
use crate::pool::shard::{Boxed, Shard, count};
use crate::pool::slot::{Slot, StaleSum};
use crate::pool::unclaimed::Unclaimed;
use crate::pool::wait::Queue;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::sync::{Mutex, ShortGuard, ShortLock, thread_number};
use crate::{
    Capabilities, DmaBuffer, InvalidationPolicy, MrBackend, Poisoned, PoisonedBy, PoolConfig,
    RegionState, StaleView, Time,
};
use crossbeam_utils::CachePadded;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A shard with its lock, on cache lines of its own.
type Locked<B, M> = CachePadded<ShortLock<Shard<B, M>>>;

/// The shared state of a pool. What changes with every look or flush is on lines of its own: the
/// rest is read by every lease. No two of its locks are held at the same time, except a waiter's
/// under the queue's, and those of
/// `abroad` and `budget` under a shard's; and none during a call of the backend, the policy or a
/// buffer's drop.
pub(crate) struct Core<B: MrBackend, M> {
    pub(crate) backend: B,
    pub(crate) policy: Box<dyn InvalidationPolicy>,
    /// See [`InvalidationPolicy::speaks_at_release`].
    pub(crate) policy_speaks_at_release: bool,
    pub(crate) clock: PoolClock,
    pub(crate) config: PoolConfig,
    pub(crate) capabilities: Capabilities,
    /// See [`Capabilities::fit_anywhere`].
    pub(crate) fit_anywhere: u64,
    pub(crate) shards: Box<[Locked<B, M>]>,
    pub(crate) depot: CachePadded<Depot<B, M>>,
    pub(crate) queue: Queue<B, M>,
    pub(crate) gate: CachePadded<Gate>,
    pub(crate) quarantine: CachePadded<Mutex<Quarantine<B, M>>>,
    pub(crate) unclaimed: CachePadded<Unclaimed>,
    pub(crate) abroad: CachePadded<Abroad>,
    pub(crate) alarm: Arc<Alarm<M>>,
    pub(crate) budget: CachePadded<Budget>,
    /// When [`Core::due`] is to be called: nanoseconds, or `u64::MAX` for not at all.
    pub(crate) due_at: CachePadded<AtomicU64>,
    pub(crate) objections: Objections,
    pub(crate) waits: AtomicU64,
    pub(crate) exhausted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) tag_wraps: AtomicU64,
    pub(crate) freed: AtomicU32,
    pub(crate) lost: AtomicU32,
    /// The flusher is to end the pool, by this time.
    pub(crate) winding_up: AtomicBool,
    pub(crate) wind_up_by: Mutex<Option<Deadline>>,
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The time for what must come to its end: a flush. A clock that panics poisons the pool, and
    /// leaves it the time `otherwise`.
    pub(crate) fn now_or(&self, otherwise: Time) -> Time {
        catch_unwind(AssertUnwindSafe(|| self.clock.now())).unwrap_or_else(|_| {
            self.poison(PoisonedBy::Clock);
            otherwise
        })
    }

    /// The calling thread's shard.
    pub(crate) fn my_shard(&self) -> usize {
        // A power of two: see `build`.
        thread_number() as usize & (self.shards.len() - 1)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.objections.is_closed()
    }

    #[cold]
    pub(crate) fn poison(&self, by: PoisonedBy) {
        tracing::error!(%by, "pool poisoned: it panicked; no more leases are given");
        self.objections.poison(by);
        self.queue.poke_all();
        self.gate.notify();
        self.alarm.ring(Poisoned(by));
    }

    pub(crate) fn check_poison(&self) -> Result<(), Poisoned> {
        self.objections.poisoned().map_or(Ok(()), Err)
    }

    /// Calls the policy; a panic poisons the pool.
    pub(crate) fn ask_policy<T>(
        &self,
        ask: impl FnOnce(&dyn InvalidationPolicy) -> T,
    ) -> Option<T> {
        let answer = catch_unwind(AssertUnwindSafe(|| ask(&*self.policy)));
        answer.map_err(|_| self.poison(PoisonedBy::Policy)).ok()
    }

    /// Calls the backend; a panic poisons the pool.
    pub(crate) fn ask_backend<T>(&self, ask: impl FnOnce(&B) -> T) -> Option<T> {
        let answer = catch_unwind(AssertUnwindSafe(|| ask(&self.backend)));
        answer.map_err(|_| self.poison(PoisonedBy::Backend)).ok()
    }

    /// Looks at every shard: what is stale. From then on every release asks, unless
    /// [`Budget::grant`] follows.
    pub(crate) fn view(&self, now: Time) -> (StaleView, Look) {
        let look = self.budget.look();
        let mut view = StaleView {
            now,
            capacity: self.config.capacity,
            last_flush: self.gate.last_flush(),
            ..StaleView::default()
        };
        let (mut sum, oldest) = self.abroad.due(now);
        view.oldest = oldest;
        for shard in &self.shards {
            let glance = shard.lock().inspect();
            view.worn += glance.worn;
            view.reusable += glance.reusable;
            view.oldest = earlier(view.oldest, glance.oldest);
            sum.merge(&glance.sum);
        }
        view.keys = sum.keys;
        view.bytes = sum.bytes;
        view.key_nanos = sum.key_nanos(now);
        (view, look)
    }

    /// Puts a clean region back into circulation.
    pub(crate) fn give_back(&self, slot: Boxed<B, M>, now: Time) {
        let mut shard = self.shards[self.my_shard()].lock();
        shard.stock([slot], now);
        // What one thread hoards beyond two magazines, others may fetch from the depot.
        let magazine = self.depot.magazine();
        if shard.clean.len() > 2 * magazine {
            let mut surplus: Vec<_> = shard.clean.drain(..magazine).collect();
            drop(shard);
            self.depot.store(&mut surplus, now);
        } else {
            drop(shard);
        }
        self.serve();
    }

    /// Hands regions to those who wait, as long as there are both.
    pub(crate) fn serve(&self) {
        while !self.queue.is_empty() {
            let Some(slot) = self.draw(0) else {
                self.queue.poke();
                return;
            };
            if let Some(slot) = self.queue.hand(slot) {
                self.undraw(slot, 0);
            }
        }
    }

    /// Takes a region out of the caller's shard, the depot or another shard, to be leased for
    /// `bytes`.
    #[inline(always)]
    pub(crate) fn draw(&self, bytes: u64) -> Option<Boxed<B, M>> {
        let mine = self.my_shard();
        let mut shard = self.shards[mine].lock();
        match shard.draw_at_hand(bytes) {
            Some(slot) => Some(slot),
            None => self.draw_otherwise(shard, mine, bytes),
        }
    }

    /// Draws a region where no clean one is at hand, or the order is not a random one.
    #[inline(never)]
    fn draw_otherwise(
        &self,
        mut shard: ShortGuard<'_, Shard<B, M>>,
        mine: usize,
        bytes: u64,
    ) -> Option<Boxed<B, M>> {
        match shard.draw_otherwise(bytes, || self.depot.latest()) {
            Some(mut slot) => {
                self.depart(&mut slot);
                Some(slot)
            }
            None => {
                drop(shard);
                self.draw_elsewhere(mine, bytes)
            }
        }
    }

    /// A region has just been taken off a list, whose lock is held: if it is stale, no flush may
    /// overlook it from now on.
    #[inline]
    pub(crate) fn depart(&self, slot: &mut Slot<B, M>) {
        if slot.state() == RegionState::Reusable {
            slot.journey = Some(self.abroad.depart(&slot.stale()));
        }
    }

    /// The journey of a region with these stale keys is over: it is on a list, or has been mapped
    /// in a way that killed them.
    pub(crate) fn arrive(&self, journey: Option<Journey>, stale: &StaleSum) {
        if journey.is_some_and(|journey| self.abroad.arrive(journey, stale)) {
            self.gate.notify();
        }
    }

    #[cold]
    pub(crate) fn draw_elsewhere(&self, mine: usize, bytes: u64) -> Option<Boxed<B, M>> {
        self.draw_settled(mine, bytes)
            .or_else(|| self.draw_from_depot(mine, bytes))
            .or_else(|| self.steal(mine, bytes))
    }

    /// Draws from what has come back from a flush to the caller's shard.
    fn draw_settled(&self, mine: usize, bytes: u64) -> Option<Boxed<B, M>> {
        self.settle_shard(mine, self.depot.magazine());
        let mut shard = self.shards[mine].lock();
        let mut slot = shard.draw(bytes, || self.depot.latest());
        slot.iter_mut().for_each(|slot| self.depart(slot));
        slot
    }

    fn draw_from_depot(&self, mine: usize, bytes: u64) -> Option<Boxed<B, M>> {
        let mut magazine = self.depot.fetch();
        let mut shard = self.shards[mine].lock();
        if let Some(magazine) = &mut magazine {
            shard.stock(magazine.regions.drain(..), magazine.stored);
        }
        let mut slot = shard.draw(bytes, || None);
        slot.iter_mut().for_each(|slot| self.depart(slot));
        drop(shard);
        if let Some(magazine) = magazine {
            self.depot.recycle(magazine);
            self.offer_the_rest();
        }
        slot
    }

    fn steal(&self, mine: usize, bytes: u64) -> Option<Boxed<B, M>> {
        let mut loot = Vec::new();
        for step in 1..self.shards.len() {
            let victim = (mine + step) & (self.shards.len() - 1);
            if self.shards[victim].lock().clean.is_empty() {
                self.settle_shard(victim, 2 * self.depot.magazine());
            }
            let mut shard = self.shards[victim].lock();
            if let Some(mut slot) = shard.rob(&mut loot, bytes) {
                self.depart(&mut slot);
                return Some(slot);
            }
            drop(shard);
            if loot.is_empty() {
                continue;
            }
            let mut shard = self.shards[mine].lock();
            shard.stock(loot.drain(..), Time::ZERO);
            if let Some(mut slot) = shard.draw(bytes, || None) {
                self.depart(&mut slot);
                drop(shard);
                self.offer_the_rest();
                return Some(slot);
            }
        }
        None
    }

    /// Regions have moved from list to list: whoever looked at both at the wrong times and found
    /// none has gone to sleep.
    fn offer_the_rest(&self) {
        if !self.queue.is_empty() {
            self.serve();
        }
    }

    /// Puts back a region that was drawn and not mapped.
    pub(crate) fn undraw(&self, mut slot: Boxed<B, M>, bytes: u64) {
        let journey = slot.journey.take();
        let stale = slot.stale();
        let mut shard = self.shards[self.my_shard()].lock();
        if journey.is_some() && self.abroad.is_awaited() && !slot.enter(RegionState::Worn) {
            drop(shard);
            return self.fail_internally(slot);
        }
        shard.put_back(slot, bytes);
        drop(shard);
        self.arrive(journey, &stale);
        self.serve();
    }

    /// Regions under a lease. Exact while nobody leases or releases.
    pub(crate) fn leased(&self) -> u32 {
        let shards = self.shards.iter();
        let leased: i64 = shards.map(|shard| shard.lock().tally.leased.now()).sum();
        count(usize::try_from(leased).unwrap_or(0))
    }
}

pub(crate) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
