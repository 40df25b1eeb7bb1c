//! The end of a pool: nothing is left behind unseen.

use crate::clock::Deadline;
use crate::pool::core::Core;
use crate::pool::shard::Boxed;
use crate::pool::slot::Slot;
use crate::sync::atomic::Ordering;
use crate::{DmaBuffer, MrBackend, Poisoned, Scope, Time};
use std::time::Duration;

/// What a shutdown did, and what it could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Regions freed, so far.
    pub freed: u32,
    /// Regions still under a lease. Each is invalidated and freed when its lease ends.
    pub leased: u32,
    /// Regions whose keys may be honoured still; they and their memory are leaked.
    pub quarantined: u32,
    /// Regions with stale keys that nobody came to flush, since the pool is poisoned or the time
    /// was over; they and their memory are leaked.
    pub stale: u32,
    /// Regions in a flush that has not ended.
    pub in_flush: u32,
    /// Clean regions that the backend did not free, and those that are gone in a call that was to free
    /// them, and panicked.
    pub not_freed: u32,
    /// Whether the flusher thread was left behind, in a backend call that did not return. If it
    /// ever does, the thread ends the pool as far as it can.
    pub flusher_left: bool,
    /// Whether the pool was poisoned.
    pub poisoned: Option<Poisoned>,
}

impl ShutdownReport {
    /// Whether all regions are freed and nothing was left behind.
    pub const fn is_complete(&self) -> bool {
        self.leased == 0
            && self.quarantined == 0
            && self.stale == 0
            && self.in_flush == 0
            && self.not_freed == 0
            && !self.flusher_left
    }
}

/// Pause between two tries of what failed.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// No more leases: whoever waits for one is told so, and what is released from now on is
    /// invalidated and freed by the thread that releases it.
    pub(crate) fn close(&self) {
        self.objections.close();
        self.queue.poke_all();
        self.gate.notify();
    }

    /// Waits for leases to end, until `deadline`.
    pub(crate) fn await_leases(&self, deadline: Deadline) {
        while self.leased() > 0 && !deadline.left().is_zero() {
            self.gate
                .sleep_unless(|| self.leased() == 0, deadline.left());
        }
    }

    /// Has the flusher [wind up](Self::wind_up).
    pub(crate) fn begin_to_wind_up(&self, deadline: Deadline) {
        *self.wind_up_by.lock() = Some(deadline);
        self.winding_up.store(true, Ordering::SeqCst);
        self.gate.notify();
    }

    /// Flushes all that is stale and frees all that is clean, as far as the backend lets it.
    pub(crate) fn wind_up(&self, deadline: Deadline) {
        self.drain(deadline);
        for _ in 0..=self.config.max_retries {
            self.free_clean();
            if self.regions().clean == 0 || deadline.left().is_zero() {
                break;
            }
            self.gate.pause(RETRY_PAUSE.min(deadline.left()));
        }
    }

    /// Flushes what is stale and what is in quarantine, as often as `max_retries` and the time
    /// allow.
    fn drain(&self, deadline: Deadline) {
        for _ in 0..=self.config.max_retries {
            match self.begin(Scope::Stale, true) {
                Some(flush) => flush.run(),
                None => self.gate.sleep_while_running(deadline.left()),
            }
            let counts = self.regions();
            let left = counts.quarantined + counts.in_flush + counts.worn + counts.reusable;
            if left == 0 || deadline.left().is_zero() || self.check_poison().is_err() {
                break;
            }
            self.gate.pause(RETRY_PAUSE.min(deadline.left()));
        }
        self.quarantine.lock().give_up();
    }

    /// Frees all clean regions. What the backend does not free stays clean, to be tried again.
    pub(crate) fn free_clean(&self) {
        self.settle_all();
        let mut clean: Vec<Boxed<B, M>> = Vec::new();
        while let Some(magazine) = self.depot.fetch() {
            clean.extend(magazine.regions);
        }
        for shard in &self.shards {
            shard.lock().take_clean(&mut clean);
        }
        let mut left = Vec::new();
        for slot in clean {
            let Slot {
                region, id, tag, ..
            } = *slot;
            match self.ask_backend(|backend| backend.dealloc(region)) {
                Some(Ok(())) => {
                    self.freed.fetch_add(1, Ordering::Relaxed);
                }
                Some(Err(failure)) => {
                    tracing::error!(region = id, error = %failure.error, "region not freed");
                    left.push(Box::new(Slot::new(failure.region, id, tag)));
                }
                // The region is gone, in a call that panicked.
                None => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.depot.store(&mut left, self.now_or(Time::ZERO));
    }

    pub(crate) fn report(&self, flusher_left: bool) -> ShutdownReport {
        let counts = self.regions();
        ShutdownReport {
            freed: counts.freed,
            leased: counts.leased,
            quarantined: counts.quarantined,
            stale: counts.worn + counts.reusable,
            in_flush: counts.in_flush,
            not_freed: counts.clean + counts.lost,
            flusher_left,
            poisoned: self.check_poison().err(),
        }
    }
}
