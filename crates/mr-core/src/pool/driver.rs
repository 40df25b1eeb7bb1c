//! The background thread: a thin driver of the same steps that a simulation takes itself.

use crate::clock::Deadline;
use crate::pool::core::Core;
use crate::sync::atomic::Ordering;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex};
use crate::{DmaBuffer, MrBackend, PoisonedBy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep while something will be due: a bound in case the pool's clock is not real time.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The longest sleep while nothing is stale: whatever changes that wakes the thread.
const LONGEST_IDLE: Duration = Duration::from_secs(3600);

/// A running flusher thread.
pub(crate) struct Flusher {
    thread: JoinHandle<()>,
    /// It was left behind once, so the time that it was given to end the pool is over.
    pub(crate) was_left: bool,
    ended: Arc<Ended>,
}

#[derive(Default)]
struct Ended {
    flag: Mutex<bool>,
    changed: Condvar,
}

impl Flusher {
    pub(crate) fn start<B: MrBackend, M: DmaBuffer>(
        core: Arc<Core<B, M>>,
    ) -> std::io::Result<Self> {
        let ended = Arc::new(Ended::default());
        let end = End(Arc::clone(&ended));
        let thread = thread::Builder::new()
            .name("mr-flusher".into())
            .spawn(move || {
                let _end = end;
                // All that is foreign is caught where it is called, but for the clock.
                if catch_unwind(AssertUnwindSafe(|| drive(&core))).is_err() {
                    core.poison(PoisonedBy::Clock);
                    // A poisoned pool wants nothing more than its end.
                    drive(&core);
                }
            })?;
        Ok(Self {
            thread,
            ended,
            was_left: false,
        })
    }

    /// Joins the thread if it ends before `deadline`. If not, it sits in a backend call which does
    /// not return, and is given back.
    pub(crate) fn join(mut self, deadline: Deadline) -> Option<Self> {
        let mut ended = self.ended.flag.lock();
        while !*ended {
            let left = deadline.left();
            if left.is_zero() {
                drop(ended);
                self.was_left = true;
                return Some(self);
            }
            ended = self.ended.changed.wait_timeout(ended, left);
        }
        drop(ended);
        // If it panicked, the pool is poisoned.
        let _ = self.thread.join();
        None
    }
}

/// Says so when the thread ends, in whichever way.
struct End(Arc<Ended>);

impl Drop for End {
    fn drop(&mut self) {
        *self.0.flag.lock() = true;
        self.0.changed.notify_all();
    }
}

/// Flushes when due, until the pool is to end; then ends it.
fn drive<B: MrBackend, M: DmaBuffer>(core: &Core<B, M>) {
    let over = || core.winding_up.load(Ordering::SeqCst);
    while !over() {
        if core.check_poison().is_err() {
            core.gate.sleep_unless(over, LONGEST_IDLE);
            continue;
        }
        if let Some(flush) = core.due().flush {
            flush.run();
            continue;
        }
        let ready = || {
            over()
                || core.check_poison().is_err()
                || core.next_due().is_some_and(|at| at <= core.now())
        };
        let left = core
            .next_due()
            .map(|at| at.since(core.now()).min(LONGEST_SLEEP));
        core.gate.sleep_unless(ready, left.unwrap_or(LONGEST_IDLE));
    }
    let deadline = *core.wind_up_by.lock();
    if let Some(deadline) = deadline {
        core.wind_up(deadline);
    }
}
