//! What follows the death of a key: its exposure is recorded, and its buffer goes on its way.

use crate::exposure::Ledger;
use crate::pool::core::Core;
use crate::pool::handback::{Arrival, Handback};
use crate::pool::slot::{Fate, Mapping, StaleSum};
use crate::sync::Mutex;
use crate::{DmaBuffer, MrBackend, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Buffers whose keys are dead, sorted by where they go. They are gathered under the ledger's lock
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

    /// Records the death of a mapping's key, and takes over its buffer.
    pub(crate) fn settle(&mut self, mapping: &mut Mapping<M>, dead: Time, ledger: &mut Ledger) {
        ledger.record(mapping, dead);
        match mapping.take_estate() {
            Some((buffer, Fate::Collect)) => self.collect.push(buffer),
            Some((buffer, Fate::Drop)) => self.drop.push(buffer),
            Some((buffer, Fate::Hand(handback))) => self.hand.push((handback, buffer)),
            None => {}
        }
    }
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// The ledger of the calling thread's shard.
    pub(crate) fn my_ledger(&self) -> &Mutex<Ledger> {
        &self.ledgers[self.my_shard()]
    }

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
            self.unclaimed.lock().put(&mut collect);
        }
        drop.into_iter().chain(collect).for_each(drop_quietly);
    }

    /// Lets go of a mapping whose key is dead although its region is leased, or just about to be.
    pub(crate) fn bury_one(&self, mut mapping: Mapping<M>, dead: Time) {
        let mut estate = Estate::new();
        let mut ledger = self.my_ledger().lock();
        ledger.close(&StaleSum::of(&mapping), dead);
        estate.settle(&mut mapping, dead, &mut ledger);
        drop(ledger);
        self.distribute(estate);
    }
}

/// Drops a user's buffer; a panic in there must not take the pool's books along.
fn drop_quietly<M>(buffer: M) {
    if catch_unwind(AssertUnwindSafe(|| drop(buffer))).is_err() {
        tracing::error!("a buffer panicked when it was dropped");
    }
}
