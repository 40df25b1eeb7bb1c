//! Buffers whose keys are dead, until their owner reclaims them: how many, and how many there may be.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The count of the buffers that wait to be reclaimed, in whichever shard. The buffers themselves
/// are with the shard, or still in a region of it.
pub(crate) struct Unclaimed {
    /// Those there and those about to come: counted before they are put, and after they are taken.
    waiting: AtomicUsize,
    most: usize,
    dropped: AtomicU64,
}

impl Unclaimed {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            most,
            dropped: AtomicU64::new(0),
        }
    }

    /// Counts in `buffers` more if there is room for all of them.
    pub(crate) fn admit_all(&self, buffers: usize) -> bool {
        let before = self.waiting.fetch_add(buffers, Ordering::SeqCst);
        let fit = before.saturating_add(buffers) <= self.most;
        if !fit {
            self.waiting.fetch_sub(buffers, Ordering::SeqCst);
        }
        fit
    }

    /// Counts in as many of `buffers` as there is room for. Returns how many are to be dropped.
    pub(crate) fn admit(&self, buffers: usize) -> usize {
        let before = self.waiting.fetch_add(buffers, Ordering::SeqCst);
        let surplus = buffers.min((before + buffers).saturating_sub(self.most));
        if surplus > 0 {
            self.waiting.fetch_sub(surplus, Ordering::SeqCst);
            self.dropped.fetch_add(surplus as u64, Ordering::Relaxed);
        }
        surplus
    }

    /// Counts out what was reclaimed.
    pub(crate) fn leave(&self, buffers: usize) {
        self.waiting.fetch_sub(buffers, Ordering::SeqCst);
    }

    pub(crate) fn count(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
