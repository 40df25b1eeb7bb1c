//! One set of lists: the regions that the threads of one shard lease from and release to.

use crate::exposure::Ledger;
use crate::pool::core::earlier;
use crate::pool::credit::{Budget, Credit};
use crate::pool::gate::InFlush;
use crate::pool::gauge::Gauge;
use crate::pool::lot::{DeadLots, Lot};
use crate::pool::slot::{Slot, StaleSum};
use crate::{DmaBuffer, DrawOrder, MrBackend, RegionState, Scope, Time};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use std::collections::VecDeque;

/// Among how many clean regions a lease draws at random: the latest, which are in the caches.
const AT_HAND: usize = 64;

/// How long a list may be to be kept for the next batch. To grow a longer one anew costs little
/// beside the batch, and its memory is wanted.
const MOST_SPARE: usize = 8192;

/// The most clean regions that a thief gets at a time.
const MOST_LOOT: usize = 256;

pub(crate) type Boxed<B, M> = Box<Slot<B, M>>;

/// The lists of one shard. Every thread keeps to one shard, and while there are no more threads
/// than shards no two threads meet in one, but for a thief or the flusher now and then.
pub(crate) struct Shard<B: MrBackend, M> {
    pub(crate) clean: Vec<Boxed<B, M>>,
    /// When the latest of them came.
    cleaned: Time,
    reusable: VecDeque<Boxed<B, M>>,
    worn: Vec<Boxed<B, M>>,
    order: DrawOrder,
    random: ChaCha8Rng,
    reusable_sum: StaleSum,
    worn_sum: StaleSum,
    /// No stale mapping of this shard was released earlier.
    oldest: Option<Time>,
    /// Every stale region of this shard is [plain](Slot::is_plain).
    plain: bool,
    /// What flushes have given back.
    pub(crate) dead: DeadLots<B, M>,
    /// The list of a lot that was settled, for the next one.
    spare: Vec<Boxed<B, M>>,
    /// Buffers of regions that are settled, until they are reclaimed; the oldest first.
    pub(crate) unclaimed: VecDeque<M>,
    pub(crate) ledger: Ledger,
    /// What may still be released here before the policy must be asked.
    credit: Credit,
    pub(crate) tally: Tally,
}

/// Counters of one shard. They are written under its lock, so they cost a release next to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Slots taken out to be leased, and those of them that have not come back.
    pub(crate) out: u64,
    pub(crate) leased: Gauge,
    pub(crate) leased_bytes: Gauge,
    /// Those that came back without having been mapped.
    pub(crate) unmapped: u64,
    pub(crate) worn: u64,
    /// Counted when a region is drawn, and taken back in whichever shard an unmapped one is put:
    /// a shard's own count may pass below zero and wrap, the sum over all shards is right.
    pub(crate) reused: u64,
}

impl Tally {
    pub(crate) const fn merge(&mut self, other: &Self) {
        self.out += other.out;
        self.leased.merge(&other.leased);
        self.leased_bytes.merge(&other.leased_bytes);
        self.unmapped += other.unmapped;
        self.worn += other.worn;
        self.reused = self.reused.wrapping_add(other.reused);
    }
}

/// What a look at one shard adds to a [`StaleView`](crate::StaleView).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Glance {
    pub(crate) clean: u32,
    pub(crate) worn: u32,
    pub(crate) reusable: u32,
    pub(crate) sum: StaleSum,
    pub(crate) oldest: Option<Time>,
}

impl<B: MrBackend, M: DmaBuffer> Shard<B, M> {
    pub(crate) fn new(order: DrawOrder, random: ChaCha8Rng) -> Self {
        Self {
            clean: Vec::new(),
            cleaned: Time::ZERO,
            reusable: VecDeque::new(),
            worn: Vec::new(),
            order,
            random,
            reusable_sum: StaleSum::default(),
            worn_sum: StaleSum::default(),
            oldest: None,
            plain: true,
            dead: DeadLots::new(),
            spare: Vec::new(),
            unclaimed: VecDeque::new(),
            ledger: Ledger::new(),
            credit: Credit::default(),
            tally: Tally::default(),
        }
    }

    /// Takes out a clean region to be leased for `bytes`, if the order is random and there is one: what
    /// most leases do.
    #[inline]
    pub(crate) fn draw_at_hand(&mut self, bytes: u64) -> Option<Boxed<B, M>> {
        if self.order != DrawOrder::Random {
            return None;
        }
        let place = any_at_hand(self.clean.len(), &mut self.random)?;
        let slot = self.clean.swap_remove(place);
        self.count_drawn(bytes);
        Some(slot)
    }

    /// Takes out a region to be leased for `bytes`. `elsewhere` says when clean regions have last
    /// come to the depot, if it has any: where those are to be drawn first, this draws none.
    pub(crate) fn draw(
        &mut self,
        bytes: u64,
        elsewhere: impl FnOnce() -> Option<Time>,
    ) -> Option<Boxed<B, M>> {
        self.draw_at_hand(bytes)
            .or_else(|| self.draw_otherwise(bytes, elsewhere))
    }

    /// The rest of [`draw`](Self::draw).
    pub(crate) fn draw_otherwise(
        &mut self,
        bytes: u64,
        elsewhere: impl FnOnce() -> Option<Time>,
    ) -> Option<Boxed<B, M>> {
        let slot = match self.order {
            DrawOrder::Random => self.draw_reusable(elsewhere)?,
            // A magazine or two.
            DrawOrder::Fifo if !self.clean.is_empty() => self.clean.remove(0),
            DrawOrder::Fifo => self.draw_reusable(elsewhere)?,
            DrawOrder::Lifo => self.draw_latest(elsewhere())?,
        };
        self.count_removed(&slot);
        self.count_drawn(bytes);
        Some(slot)
    }

    /// Whichever region has come to its list last, unless the depot has a later one.
    fn draw_latest(&mut self, elsewhere: Option<Time>) -> Option<Boxed<B, M>> {
        let released = self.reusable.back().and_then(|slot| slot.latest());
        let cleaned = (!self.clean.is_empty()).then_some(self.cleaned);
        if elsewhere > released.max(cleaned) {
            return None;
        }
        if cleaned > released {
            self.clean.pop()
        } else {
            self.reusable.pop_back()
        }
    }

    /// Takes in regions that are clean since `cleaned`, or longer.
    pub(crate) fn stock(&mut self, slots: impl IntoIterator<Item = Boxed<B, M>>, cleaned: Time) {
        self.clean.extend(slots);
        self.cleaned = cleaned;
    }

    /// Counts a region that has left its list: its stale keys, if it has any.
    fn count_removed(&mut self, slot: &Slot<B, M>) {
        if slot.state() == RegionState::Reusable {
            self.reusable_sum.remove(&slot.stale());
            self.tally.reused = self.tally.reused.wrapping_add(1);
        }
    }

    #[inline]
    const fn count_drawn(&mut self, bytes: u64) {
        self.tally.out += 1;
        self.tally.leased.add(1);
        self.tally.leased_bytes.add(bytes);
    }

    fn draw_reusable(&mut self, elsewhere: impl FnOnce() -> Option<Time>) -> Option<Boxed<B, M>> {
        if self.reusable.is_empty() || self.dead.regions() > 0 || elsewhere().is_some() {
            return None;
        }
        match self.order {
            DrawOrder::Random => {
                let place = any_at_hand(self.reusable.len(), &mut self.random)?;
                self.reusable.swap_remove_back(place)
            }
            DrawOrder::Fifo | DrawOrder::Lifo => self.reusable.pop_front(),
        }
    }

    /// Puts back a region that a lease call took out and could not map.
    pub(crate) fn put_back(&mut self, slot: Boxed<B, M>, bytes: u64) {
        self.count_unmapped(bytes);
        if slot.state() == RegionState::Clean {
            self.clean.push(slot);
        } else {
            self.tally.reused = self.tally.reused.wrapping_sub(1);
            self.restore(slot);
        }
    }

    /// Counts a region that was drawn for `bytes` and could not be mapped.
    pub(crate) const fn count_unmapped(&mut self, bytes: u64) {
        self.count_back(bytes);
        self.tally.unmapped += 1;
    }

    /// Counts a region that was leased for `bytes` and is so no longer.
    pub(crate) const fn count_back(&mut self, bytes: u64) {
        self.tally.leased.remove(1);
        self.tally.leased_bytes.remove(bytes);
    }

    /// Puts a released region of one mapping, which is [plain](Slot::is_plain) and worn, on the dirty
    /// list. Says whether the policy must be asked: the first one always, so that somebody knows of it.
    #[inline]
    pub(crate) fn release_plain(
        &mut self,
        slot: Boxed<B, M>,
        bytes: u64,
        released: Time,
        budget: &Budget,
    ) -> bool {
        let ask = self.pay(bytes, released, budget);
        self.tally.worn += 1;
        self.worn_sum.add(bytes, released);
        self.worn.push(slot);
        ask
    }

    /// Puts any released region on the dirty list, as [`release_plain`](Self::release_plain).
    pub(crate) fn release(
        &mut self,
        slot: Boxed<B, M>,
        bytes: u64,
        released: Time,
        budget: &Budget,
    ) -> bool {
        let ask = self.pay(bytes, released, budget);
        self.tally.worn += u64::from(slot.state() == RegionState::Worn);
        self.restore(slot);
        ask
    }

    /// Counts a region back, and pays for its release. Says whether the policy must be asked.
    #[inline]
    fn pay(&mut self, bytes: u64, released: Time, budget: &Budget) -> bool {
        self.count_back(bytes);
        !self.credit.pay(bytes) && self.find_no_credit(bytes, released, budget)
    }

    /// As [`pay`](Self::pay), without credit: always while nothing is stale, since what takes
    /// `oldest` away takes the credit, too.
    #[inline(never)]
    fn find_no_credit(&mut self, bytes: u64, released: Time, budget: &Budget) -> bool {
        if self.oldest.is_none() {
            self.oldest = Some(released);
            return true;
        }
        budget.refill(&mut self.credit);
        !self.credit.pay(bytes)
    }

    /// Puts a stale region back that a flush did not get to, or that a thief has taken.
    pub(crate) fn restore(&mut self, slot: Boxed<B, M>) {
        self.plain &= slot.is_plain();
        if slot.state() == RegionState::Reusable {
            return self.keep(slot);
        }
        self.worn_sum.merge(&slot.stale());
        self.note_oldest(&slot);
        self.worn.push(slot);
    }

    fn keep(&mut self, slot: Boxed<B, M>) {
        self.reusable_sum.merge(&slot.stale());
        self.note_oldest(&slot);
        self.reusable.push_back(slot);
    }

    fn note_oldest(&mut self, slot: &Slot<B, M>) {
        self.oldest = earlier(self.oldest, slot.oldest());
    }

    /// Takes what a flush of `scope` takes from this shard, which is number `home`.
    pub(crate) fn take_stale(
        &mut self,
        scope: Scope,
        home: usize,
        taken: &mut InFlush,
    ) -> Option<Lot<B, M>> {
        let mut sum = std::mem::take(&mut self.worn_sum);
        let mut slots = std::mem::take(&mut self.worn);
        if !slots.is_empty() {
            self.worn = std::mem::take(&mut self.spare);
        }
        if scope == Scope::Stale {
            sum.merge(&std::mem::take(&mut self.reusable_sum));
            slots.extend(self.reusable.drain(..));
        }
        taken.regions += count(slots.len());
        taken.sum.merge(&sum);
        taken.oldest = earlier(taken.oldest, self.oldest);
        // A fence that reaches the whole HCA also kills the earlier keys of leased regions, which
        // are on no list but may be what `oldest` stands for.
        let fenced = scope == Scope::Stale || !slots.is_empty();
        if self.reusable.is_empty() && fenced {
            self.oldest = None;
        }
        self.credit = Credit::default();
        let plain = self.plain;
        self.plain |= self.reusable.is_empty();
        (!slots.is_empty()).then_some(Lot {
            home,
            slots,
            sum,
            plain,
            failed: false,
        })
    }

    /// Takes back a lot from here whose keys are dead since `dead`, to be settled later.
    pub(crate) fn welcome(&mut self, lot: Lot<B, M>, dead: Time) {
        self.ledger.close(&lot.sum, dead);
        self.dead.push(lot.slots, dead);
    }

    /// Settles up to `most` regions of one lot, and says how many.
    pub(crate) fn settle(&mut self, most: usize) -> usize {
        let before = self.dead.regions();
        let Self {
            dead,
            ledger,
            unclaimed,
            clean,
            ..
        } = self;
        let keep = |buffer| unclaimed.push_back(buffer);
        let spare = dead.settle(most, ledger, keep, clean);
        self.keep_spare(spare);
        before - self.dead.regions()
    }

    /// Moves up to `most` buffers to `to`, settling up to `at_a_time` regions for it. Says whether
    /// to call again.
    pub(crate) fn reclaim(&mut self, to: &mut Vec<M>, most: usize, at_a_time: usize) -> bool {
        let ready = self.unclaimed.len().min(most);
        to.extend(self.unclaimed.drain(..ready));
        let left = most - ready;
        let Self {
            dead,
            ledger,
            clean,
            ..
        } = self;
        let keep = |buffer| to.push(buffer);
        let at_a_time = left.min(at_a_time);
        let spare = dead.settle(at_a_time, ledger, keep, clean);
        self.keep_spare(spare);
        left > at_a_time && self.dead.regions() > 0
    }

    fn keep_spare(&mut self, spare: Option<Vec<Boxed<B, M>>>) {
        if let Some(spare) = spare
            && spare.capacity() > self.spare.capacity()
            && spare.capacity() <= MOST_SPARE
        {
            self.spare = spare;
        }
    }

    /// Moves up to half of the clean regions to a thief, or else draws a reusable one for its lease
    /// of `bytes`.
    pub(crate) fn rob(&mut self, loot: &mut Vec<Boxed<B, M>>, bytes: u64) -> Option<Boxed<B, M>> {
        let keep = self.clean.len() - self.clean.len().div_ceil(2).min(MOST_LOOT);
        loot.extend(self.clean.drain(keep..));
        if !loot.is_empty() {
            return None;
        }
        let slot = self.reusable.pop_front()?;
        self.count_removed(&slot);
        self.count_drawn(bytes);
        Some(slot)
    }

    /// Looks at what is stale, and takes the credit away: from here on releases ask, until the look
    /// at all shards is over.
    pub(crate) fn inspect(&mut self) -> Glance {
        self.credit = Credit::default();
        self.glance()
    }

    pub(crate) fn glance(&self) -> Glance {
        let mut sum = self.worn_sum;
        sum.merge(&self.reusable_sum);
        Glance {
            clean: count(self.clean.len() + self.dead.regions()),
            worn: count(self.worn.len()),
            reusable: count(self.reusable.len()),
            sum,
            oldest: self.oldest,
        }
    }

    /// Empties the clean list, for shutdown.
    pub(crate) fn take_clean(&mut self, to: &mut Vec<Boxed<B, M>>) {
        to.append(&mut self.clean);
    }
}

/// A length as a count of regions, of which there are never more than `u32::MAX`.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A place among the last [`AT_HAND`] of a list.
#[inline]
fn any_at_hand(len: usize, random: &mut ChaCha8Rng) -> Option<usize> {
    let at_hand = len.min(AT_HAND);
    // The upper half of a product of a random u32 and a length is below the length.
    let place = (u64::from(random.next_u32()) * at_hand as u64) >> 32;
    (at_hand > 0).then_some(len - at_hand + place as usize)
}
