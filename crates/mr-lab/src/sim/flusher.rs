//! The flusher: what the pool's background thread does, in virtual time.

use super::spending::Spending;
use super::{LabPool, NEVER};
use mr_core::Flush;
use mr_mock::{GhostBuffer, MockHca};

/// How often it may wake up at one time. The pool is asked again after each flush, so a few times
/// are in order.
const PATIENCE: u32 = 1000;

/// Begins flushes when they are due, and ends them when the HCA is done.
///
/// Asleep it wakes up the delay after it could have; after a flush it is awake, and looks at once.
pub(super) struct Flusher<'p> {
    delay: u64,
    wake: u64,
    /// A lease found no region: flush even if nothing is due.
    help: bool,
    flush: Option<Flush<'p, MockHca, GhostBuffer>>,
    settle_at: u64,
    /// Nanoseconds in which a flush was under way.
    busy: u64,
    /// When it last woke up, and how often then.
    woke_at: u64,
    woken: u32,
}

/// What one step has done.
pub(super) struct Step {
    /// Engine time that the HCA needs for it.
    pub(super) hca_ns: u64,
    /// Keys have died and regions are clean.
    pub(super) settled: bool,
    /// It goes round in circles.
    pub(super) fruitless: bool,
}

impl<'p> Flusher<'p> {
    pub(super) const fn new(delay: u64) -> Self {
        Self {
            delay,
            wake: NEVER,
            help: false,
            flush: None,
            settle_at: NEVER,
            busy: 0,
            woke_at: NEVER,
            woken: 0,
        }
    }

    /// When it has something to do.
    pub(super) const fn next(&self) -> u64 {
        if self.flush.is_some() {
            self.settle_at
        } else {
            self.wake
        }
    }

    pub(super) const fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    pub(super) const fn busy(&self) -> u64 {
        self.busy
    }

    /// Looks when the pool wants to be called.
    pub(super) fn notice(&mut self, pool: &LabPool, now: u64) {
        if self.flush.is_none()
            && let Some(due) = pool.next_due()
        {
            self.wake_at(due.as_nanos().max(now));
        }
    }

    /// A lease has found no region.
    pub(super) fn call_for_help(&mut self, now: u64) {
        self.help = true;
        if self.flush.is_none() {
            self.wake_at(now);
        }
    }

    fn wake_at(&mut self, at: u64) {
        self.wake = self.wake.min(at.saturating_add(self.delay));
    }

    /// Does what is to be done at `now`.
    pub(super) fn act(&mut self, pool: &'p LabPool, now: u64, spending: &mut Spending) -> Step {
        let mut step = Step {
            hca_ns: 0,
            settled: false,
            fruitless: false,
        };
        let flush = match self.flush.take() {
            Some(mut flush) => {
                flush.settle();
                step.settled = true;
                // Whoever still finds no region calls again.
                self.help = false;
                Some(flush)
            }
            None => {
                self.wake = NEVER;
                step.fruitless = self.goes_round(now);
                let help = std::mem::take(&mut self.help);
                let due = pool.due().flush;
                due.or_else(|| if help { pool.help() } else { None })
            }
        };
        if let Some(flush) = flush {
            step.hca_ns = self.go_on(flush, now, spending);
        }
        step
    }

    fn goes_round(&mut self, now: u64) -> bool {
        self.woken = if now == self.woke_at {
            self.woken + 1
        } else {
            0
        };
        self.woke_at = now;
        self.woken > PATIENCE
    }

    /// Has the HCA invalidate the next batch, or ends the flush.
    fn go_on(
        &mut self,
        mut flush: Flush<'p, MockHca, GhostBuffer>,
        now: u64,
        spending: &mut Spending,
    ) -> u64 {
        if !flush.invalidate_next() {
            drop(flush);
            self.wake = now;
            return 0;
        }
        let costs = spending.since_last();
        self.settle_at = now + costs.elapsed_ns;
        self.busy += costs.elapsed_ns;
        self.flush = Some(flush);
        costs.hca_ns
    }
}
