//! What all parts of a pool share.

use crate::clock::Clock;
use crate::exposure::Ledger;
use crate::pool::depot::Depot;
use crate::pool::gate::Gate;
use crate::pool::quarantine::Quarantine;
use crate::pool::shard::{Boxed, Credit, Shard, count, thread_number};
use crate::pool::slot::{Slot, StaleSum};
use crate::pool::unclaimed::Unclaimed;
use crate::pool::wait::Queue;
use crate::sync::{Mutex, ShortLock};
use crate::{
    Capabilities, DmaBuffer, InvalidationPolicy, MrBackend, Poisoned, PoisonedBy, PoolConfig,
    RegionState, StaleView, Time,
};
use crossbeam_utils::CachePadded;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A shard with its lock, on cache lines of its own.
type Locked<B, M> = CachePadded<ShortLock<Shard<B, M>>>;

/// The shared state of a pool. No two of its locks are held at the same time, except a waiter's
/// under the queue's; and none during a call of the backend, the policy or a buffer's drop.
pub(crate) struct Core<B: MrBackend, M> {
    pub(crate) backend: B,
    pub(crate) policy: Box<dyn InvalidationPolicy>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: PoolConfig,
    pub(crate) capabilities: Capabilities,
    pub(crate) shards: Box<[Locked<B, M>]>,
    /// One per shard, apart from it: a flush records thousands of deaths at a time.
    pub(crate) ledgers: Box<[Mutex<Ledger>]>,
    pub(crate) depot: Depot<B, M>,
    pub(crate) queue: Queue<B, M>,
    pub(crate) gate: Gate,
    pub(crate) quarantine: Mutex<Quarantine<B, M>>,
    pub(crate) unclaimed: Mutex<Unclaimed<M>>,
    pub(crate) abroad: Abroad,
    /// When [`Core::due`] is to be called: nanoseconds, or `u64::MAX` for not at all.
    pub(crate) due_at: AtomicU64,
    /// More is stale than the bounds allow.
    pub(crate) over_bound: AtomicBool,
    pub(crate) closed: AtomicBool,
    pub(crate) poisoned: AtomicU8,
    pub(crate) waits: AtomicU64,
    pub(crate) exhausted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) freed: AtomicU32,
    pub(crate) not_freed: AtomicU32,
}

/// Stale keys of regions that have been leased again before a flush killed them. They are on no
/// list; a fence for the whole HCA reaches them all the same.
#[derive(Default)]
pub(crate) struct Abroad {
    pub(crate) keys: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Abroad {
    fn leave(&self, sum: &StaleSum) {
        self.keys.fetch_add(sum.keys, Ordering::Relaxed);
        self.bytes.fetch_add(sum.bytes, Ordering::Relaxed);
    }

    pub(crate) fn come_home(&self, sum: &StaleSum) {
        self.keys.fetch_sub(sum.keys, Ordering::Relaxed);
        self.bytes.fetch_sub(sum.bytes, Ordering::Relaxed);
    }
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The calling thread's shard.
    pub(crate) fn my_shard(&self) -> usize {
        // A power of two: see `build`.
        thread_number() as usize & (self.shards.len() - 1)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn poison(&self, by: PoisonedBy) {
        tracing::error!(%by, "pool poisoned: it panicked; no more leases are given");
        self.poisoned.store(by as u8 + 1, Ordering::SeqCst);
        self.queue.poke_all();
        self.gate.notify();
    }

    pub(crate) fn check_poison(&self) -> Result<(), Poisoned> {
        match self.poisoned.load(Ordering::Relaxed) {
            0 => Ok(()),
            by => Err(Self::poisoned_by(by)),
        }
    }

    #[cold]
    const fn poisoned_by(code: u8) -> Poisoned {
        match code {
            1 => Poisoned(PoisonedBy::Policy),
            2 => Poisoned(PoisonedBy::Backend),
            _ => Poisoned(PoisonedBy::Pool),
        }
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

    /// Looks at every shard: what is stale, and what may still be released without asking.
    pub(crate) fn view(&self, now: Time) -> (StaleView, Credit) {
        let mut view = StaleView {
            now,
            capacity: self.config.capacity,
            last_flush: self.gate.last_flush(),
            ..StaleView::default()
        };
        let mut sum = StaleSum::default();
        let mut credit = Credit::default();
        for shard in &self.shards {
            let glance = shard.lock().glance();
            view.worn += glance.worn;
            view.reusable += glance.reusable;
            view.oldest = earlier(view.oldest, glance.oldest);
            sum.merge(&glance.sum);
            credit.keys = credit.keys.saturating_add(glance.credit.keys);
            credit.bytes = credit.bytes.saturating_add(glance.credit.bytes);
        }
        view.keys = sum.keys;
        view.bytes = sum.bytes;
        view.key_nanos = sum.key_nanos(now);
        (view, credit)
    }

    /// Puts a clean region back into circulation.
    pub(crate) fn give_back(&self, slot: Boxed<B, M>) {
        let mut shard = self.shards[self.my_shard()].lock();
        shard.clean.push_back(slot);
        // What one thread hoards beyond two magazines, others may fetch from the depot.
        let magazine = self.depot.magazine();
        if shard.clean.len() > 2 * magazine {
            let mut surplus: Vec<_> = shard.clean.drain(..magazine).collect();
            drop(shard);
            self.depot.store(&mut surplus);
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
    pub(crate) fn draw(&self, bytes: u64) -> Option<Boxed<B, M>> {
        let mine = self.my_shard();
        let slot = self.shards[mine]
            .lock()
            .draw(bytes, || self.depot.is_empty());
        let slot = match slot {
            Some(slot) => slot,
            None => self.draw_elsewhere(mine, bytes)?,
        };
        if slot.state() == RegionState::Reusable {
            self.abroad.leave(&slot.stale());
        }
        Some(slot)
    }

    /// The stale mappings that a region has brought back from a lease are on a list again.
    pub(crate) fn come_home(&self, slot: &Slot<B, M>) {
        if !slot.earlier.is_empty() {
            self.abroad.come_home(&slot.earlier_sum());
        }
    }

    #[cold]
    fn draw_elsewhere(&self, mine: usize, bytes: u64) -> Option<Boxed<B, M>> {
        self.draw_from_depot(mine, bytes)
            .or_else(|| self.steal(mine, bytes))
    }

    fn draw_from_depot(&self, mine: usize, bytes: u64) -> Option<Boxed<B, M>> {
        let mut magazine = self.depot.fetch()?;
        let mut shard = self.shards[mine].lock();
        shard.clean.extend(magazine.drain(..));
        let slot = shard.draw(bytes, || true);
        drop(shard);
        self.depot.recycle(magazine);
        slot
    }

    fn steal(&self, mine: usize, bytes: u64) -> Option<Boxed<B, M>> {
        let mut loot = std::collections::VecDeque::new();
        for step in 1..self.shards.len() {
            let victim = (mine + step) & (self.shards.len() - 1);
            let reusable = self.shards[victim].lock().rob(&mut loot);
            if loot.is_empty() && reusable.is_none() {
                continue;
            }
            let mut shard = self.shards[mine].lock();
            shard.clean.append(&mut loot);
            if let Some(slot) = reusable {
                shard.restore(slot);
            }
            if let Some(slot) = shard.draw(bytes, || true) {
                return Some(slot);
            }
        }
        None
    }

    /// Puts back a region that was drawn and not mapped.
    pub(crate) fn undraw(&self, slot: Boxed<B, M>, bytes: u64) {
        if slot.state() == RegionState::Reusable {
            self.abroad.come_home(&slot.stale());
        }
        self.shards[self.my_shard()].lock().put_back(slot, bytes);
        self.serve();
    }

    /// Regions under a lease. Exact while nobody leases or releases.
    pub(crate) fn leased(&self) -> u32 {
        let (mut out, mut back) = (0_u64, 0_u64);
        for shard in &self.shards {
            let tally = shard.lock().tally;
            out += tally.out;
            back += tally.back;
        }
        count(usize::try_from(out.saturating_sub(back)).unwrap_or(usize::MAX))
    }
}

pub(crate) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
