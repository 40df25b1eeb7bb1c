//! Clean regions that no shard has yet, in magazines.

use crate::pool::shard::Boxed;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{DmaBuffer, DrawOrder, MrBackend, Time};
use std::collections::VecDeque;

/// Emptied magazines that are kept: enough for a flush of 4096 regions.
const MOST_EMPTY: usize = 64;

/// Where a flush leaves clean regions and where shards fetch them, a magazine at a time.
pub(crate) struct Depot<B: MrBackend, M> {
    shelves: Mutex<Shelves<B, M>>,
    /// When the latest magazine was stored, in ns; `u64::MAX` while there is none.
    latest: AtomicU64,
    magazine: usize,
    order: DrawOrder,
}

struct Shelves<B: MrBackend, M> {
    full: VecDeque<Magazine<B, M>>,
    empty: Vec<Vec<Boxed<B, M>>>,
    regions: usize,
}

/// Some clean regions, and when the last of them came.
pub(crate) struct Magazine<B: MrBackend, M> {
    pub(crate) regions: Vec<Boxed<B, M>>,
    pub(crate) stored: Time,
}

impl<B: MrBackend, M: DmaBuffer> Depot<B, M> {
    /// Magazines hold `magazine` regions.
    pub(crate) fn new(magazine: usize, order: DrawOrder) -> Self {
        let shelves = Shelves {
            full: VecDeque::new(),
            empty: Vec::new(),
            regions: 0,
        };
        Self {
            shelves: Mutex::new(shelves),
            latest: AtomicU64::new(u64::MAX),
            magazine,
            order,
        }
    }

    pub(crate) const fn magazine(&self) -> usize {
        self.magazine
    }

    /// Takes all of `slots`, which are clean since `now`.
    pub(crate) fn store(&self, slots: &mut Vec<Boxed<B, M>>, now: Time) {
        let shelves = &mut *self.shelves.lock();
        shelves.regions += slots.len();
        let mut slots = slots.drain(..);
        // Not in LIFO order: what comes now is to be drawn before what is there.
        if self.order != DrawOrder::Lifo
            && let Some(last) = shelves.full.back_mut()
        {
            let room = self.magazine.saturating_sub(last.regions.len());
            last.regions.extend(slots.by_ref().take(room));
            last.stored = now;
        }
        while slots.len() > 0 {
            let mut regions = shelves.empty.pop().unwrap_or_default();
            regions.extend(slots.by_ref().take(self.magazine));
            shelves.full.push_back(Magazine {
                regions,
                stored: now,
            });
        }
        self.note_latest(shelves);
    }

    /// Gives out one magazine.
    pub(crate) fn fetch(&self) -> Option<Magazine<B, M>> {
        let shelves = &mut *self.shelves.lock();
        let magazine = match self.order {
            DrawOrder::Fifo => shelves.full.pop_front(),
            DrawOrder::Lifo | DrawOrder::Random => shelves.full.pop_back(),
        }?;
        shelves.regions -= magazine.regions.len();
        self.note_latest(shelves);
        Some(magazine)
    }

    /// Takes an emptied magazine back, so that the next flush need not allocate one.
    pub(crate) fn recycle(&self, magazine: Magazine<B, M>) {
        let mut shelves = self.shelves.lock();
        if shelves.empty.len() < MOST_EMPTY {
            shelves.empty.push(magazine.regions);
        }
    }

    fn note_latest(&self, shelves: &Shelves<B, M>) {
        let latest = shelves
            .full
            .back()
            .map_or(u64::MAX, |magazine| magazine.stored.as_nanos());
        self.latest.store(latest, Ordering::Relaxed);
    }

    /// When the latest magazine was stored; `None` if there is none. As of a moment ago.
    pub(crate) fn latest(&self) -> Option<Time> {
        let latest = self.latest.load(Ordering::Relaxed);
        (latest != u64::MAX).then(|| Time::from_nanos(latest))
    }

    pub(crate) fn regions(&self) -> usize {
        self.shelves.lock().regions
    }
}
