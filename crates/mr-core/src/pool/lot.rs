//! The regions of one shard on their way through a flush and home again.

use crate::exposure::Ledger;
use crate::pool::shard::Boxed;
use crate::pool::slot::StaleSum;
use crate::{DmaBuffer, MrBackend, RegionState, Time};
use std::collections::VecDeque;

/// What one shard gives into a flush. It changes hands as a whole, so that its regions stay in the
/// caches of the processor that has released them.
///
/// A lot says where its regions are. Their own states are brought up to date, and checked, when they
/// leave it.
pub(crate) struct Lot<B: MrBackend, M> {
    /// The shard that it is from.
    pub(crate) home: usize,
    pub(crate) slots: Vec<Boxed<B, M>>,
    pub(crate) sum: StaleSum,
    /// Every region has one mapping, and its buffer waits for `Pool::reclaim`: nobody is kept waiting
    /// by a lot that is settled later.
    pub(crate) plain: bool,
    /// An invalidation in it has failed: the slots say which.
    pub(crate) failed: bool,
}

impl<B: MrBackend, M: DmaBuffer> Lot<B, M> {
    /// Splits off the last `most` regions.
    pub(crate) fn split_off_last(&mut self, most: usize) -> Self {
        let slots = self.slots.split_off(self.slots.len().saturating_sub(most));
        let mut sum = StaleSum::default();
        slots.iter().for_each(|slot| sum.merge(&slot.stale()));
        self.sum.remove(&sum);
        Self {
            slots,
            sum,
            home: self.home,
            plain: self.plain,
            failed: self.failed,
        }
    }
}

/// Plain lots of which all keys are dead, until their shard settles them: the regions count as
/// clean, and the buffers as unclaimed.
pub(crate) struct DeadLots<B: MrBackend, M> {
    /// Each with when its keys have died, the earliest first. None is empty.
    lots: VecDeque<(Vec<Boxed<B, M>>, Time)>,
    regions: usize,
    /// Regions in an impossible state.
    strays: Vec<Boxed<B, M>>,
}

impl<B: MrBackend, M: DmaBuffer> DeadLots<B, M> {
    pub(crate) const fn new() -> Self {
        Self {
            lots: VecDeque::new(),
            regions: 0,
            strays: Vec::new(),
        }
    }

    pub(crate) const fn regions(&self) -> usize {
        self.regions
    }

    pub(crate) fn push(&mut self, slots: Vec<Boxed<B, M>>, dead: Time) {
        if !slots.is_empty() {
            self.regions += slots.len();
            self.lots.push_back((slots, dead));
        }
    }

    /// Settles up to `most` regions of the earliest lot: records the exposure of their keys, and
    /// gives out the buffers and the clean regions. Returns the list of a lot that is empty now.
    pub(crate) fn settle(
        &mut self,
        most: usize,
        ledger: &mut Ledger,
        mut buffer: impl FnMut(M),
        clean: &mut Vec<Boxed<B, M>>,
    ) -> Option<Vec<Boxed<B, M>>> {
        let (slots, dead) = self.lots.front_mut()?;
        let dead = *dead;
        let from = slots.len().saturating_sub(most);
        self.regions -= slots.len() - from;
        let mut legal = true;
        for slot in slots[from..].iter_mut().map(|slot| &mut **slot) {
            if !slot.enter_through_flush() {
                slot.confine();
                legal = false;
                continue;
            }
            if let Some(released) = slot.latest() {
                ledger.record(released, dead);
            }
            if let Some(mapping) = slot.forget() {
                buffer(mapping.into_buffer());
            }
        }
        if !legal {
            let strays = slots.extract_if(from.., |slot| slot.state() != RegionState::Clean);
            self.strays.extend(strays);
        }
        clean.extend(slots.drain(from..));
        if from > 0 {
            return None;
        }
        self.lots.pop_front().map(|(slots, _)| slots)
    }

    /// Takes out what was found in an impossible state. Never anything, but for a defect.
    pub(crate) fn take_strays(&mut self) -> Vec<Boxed<B, M>> {
        std::mem::take(&mut self.strays)
    }
}
