//! What follows the death of a key: its exposure is recorded, and its buffer goes on its way.

use crate::exposure::Ledger;
use crate::pool::core::Core;
use crate::pool::handback::{Arrival, Handback};
use crate::pool::shard::Boxed;
use crate::pool::slot::{Fate, Mapping, Slot, StaleSum};
use crate::{DmaBuffer, MrBackend, RegionState, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Buffers whose keys are dead, sorted by where they go. They are gathered under the lock of the shard whose ledger it is
/// and sent off without it, since a buffer's own drop may do anything.
pub(crate) struct Estate<M> {
    drop: Vec<M>,
    collect: Vec<M>,
    hand: Vec<(Arc<Handback<M>>, M)>,
}

impl<M: DmaBuffer> Estate<M> {
    pub(crate) const fn new() -> Self {
        Self {
            drop: Vec::new(),
            collect: Vec::new(),
            hand: Vec::new(),
        }
    }

    /// Makes room for `buffers` that are to be reclaimed, as in a batch most are.
    pub(crate) fn reserve(&mut self, buffers: usize) {
        self.collect.reserve(buffers);
    }

    /// Takes all mappings off regions whose keys are dead, the oldest of each first, and makes the
    /// regions clean. Says whether all of them were in flight, as they must have been.
    pub(crate) fn bury<B: MrBackend>(
        &mut self,
        slots: &mut [Boxed<B, M>],
        dead: Time,
        ledger: &mut Ledger,
    ) -> bool {
        let mut legal = true;
        for slot in slots {
            if !slot.earlier.is_empty() {
                self.bury_earlier(slot, dead, ledger);
            }
            if let Some(mapping) = slot.forget() {
                self.settle(mapping, dead, ledger);
            }
            legal &= slot.enter(RegionState::Clean);
        }
        legal
    }

    #[inline(never)]
    fn bury_earlier<B: MrBackend>(
        &mut self,
        slot: &mut Slot<B, M>,
        dead: Time,
        ledger: &mut Ledger,
    ) {
        for earlier in slot.earlier.drain(..) {
            self.settle(earlier.mapping, dead, ledger);
        }
    }

    /// Records the death of a mapping's key, and takes over its buffer.
    #[inline(always)]
    pub(crate) fn settle(&mut self, mapping: Mapping<M>, dead: Time, ledger: &mut Ledger) {
        ledger.record(mapping.released, dead);
        match mapping.into_estate() {
            (buffer, Fate::Collect) => self.collect.push(buffer),
            (buffer, Fate::Drop) => self.drop.push(buffer),
            (buffer, Fate::Hand(handback)) => self.hand.push((handback, buffer)),
        }
    }
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Sends all buffers off.
    pub(crate) fn distribute(&self, estate: Estate<M>) {
        let Estate {
            drop,
            mut collect,
            hand,
        } = estate;
        for (handback, buffer) in hand {
            match handback.hand(buffer) {
                Arrival::Received => {}
                Arrival::Unwanted(buffer) => drop_quietly(buffer),
                Arrival::Collect(buffer) => collect.push(buffer),
            }
        }
        if !collect.is_empty() {
            self.keep_unclaimed(&mut collect);
        }
        drop.into_iter().chain(collect).for_each(drop_quietly);
    }

    /// Lets go of a mapping whose key is dead although its region is leased, or just about to be.
    pub(crate) fn bury_one(&self, mapping: Mapping<M>, dead: Time) {
        let mut estate = Estate::new();
        let mut shard = self.shards[self.my_shard()].lock();
        shard.ledger.close(&StaleSum::of(&mapping), dead);
        estate.settle(mapping, dead, &mut shard.ledger);
        drop(shard);
        self.distribute(estate);
    }
}

/// Drops a user's buffer; a panic in there must not take the pool's books along.
fn drop_quietly<M>(buffer: M) {
    if catch_unwind(AssertUnwindSafe(|| drop(buffer))).is_err() {
        tracing::error!("a buffer panicked when it was dropped");
    }
}
