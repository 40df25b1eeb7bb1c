//! Clean regions that no shard has yet, in magazines.

use crate::DrawOrder;
use crate::pool::shard::Boxed;
use crate::sync::Mutex;
use crate::{DmaBuffer, MrBackend};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a flush leaves clean regions and where shards fetch them, a magazine at a time.
pub(crate) struct Depot<B: MrBackend, M> {
    shelves: Mutex<Shelves<B, M>>,
    magazines: AtomicUsize,
    magazine: usize,
    order: DrawOrder,
}

struct Shelves<B: MrBackend, M> {
    full: VecDeque<Vec<Boxed<B, M>>>,
    empty: Vec<Vec<Boxed<B, M>>>,
    regions: usize,
}

impl<B: MrBackend, M: DmaBuffer> Depot<B, M> {
    /// Magazines hold `magazine` regions.
    pub(crate) const fn new(magazine: usize, order: DrawOrder) -> Self {
        let shelves = Shelves {
            full: VecDeque::new(),
            empty: Vec::new(),
            regions: 0,
        };
        Self {
            shelves: Mutex::new(shelves),
            magazines: AtomicUsize::new(0),
            magazine,
            order,
        }
    }

    pub(crate) const fn magazine(&self) -> usize {
        self.magazine
    }

    /// Takes all of `slots`, which are clean.
    pub(crate) fn store(&self, slots: &mut Vec<Boxed<B, M>>) {
        let mut shelves = self.shelves.lock();
        shelves.regions += slots.len();
        let mut slots = slots.drain(..);
        while slots.len() > 0 {
            let mut magazine = shelves.empty.pop().unwrap_or_default();
            magazine.extend(slots.by_ref().take(self.magazine));
            shelves.full.push_back(magazine);
        }
        self.magazines.store(shelves.full.len(), Ordering::Relaxed);
    }

    /// Gives out one magazine.
    pub(crate) fn fetch(&self) -> Option<Vec<Boxed<B, M>>> {
        let mut shelves = self.shelves.lock();
        let magazine = match self.order {
            DrawOrder::Fifo => shelves.full.pop_front(),
            DrawOrder::Lifo | DrawOrder::Random => shelves.full.pop_back(),
        }?;
        self.magazines.store(shelves.full.len(), Ordering::Relaxed);
        shelves.regions -= magazine.len();
        Some(magazine)
    }

    /// Takes an emptied magazine back, so that the next flush need not allocate one.
    pub(crate) fn recycle(&self, magazine: Vec<Boxed<B, M>>) {
        self.shelves.lock().empty.push(magazine);
    }

    /// Whether there is no magazine, as of a moment ago.
    pub(crate) fn is_empty(&self) -> bool {
        self.magazines.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn regions(&self) -> usize {
        self.shelves.lock().regions
    }
}
