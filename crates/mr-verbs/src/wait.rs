//! Waiting for the HCA, in bounded time.

use std::hint;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Rounds without giving up the processor: a completion usually comes within microseconds.
const SPINS: u32 = 32;
/// Rounds in which others may run in between.
const YIELDS: u32 = 64;
/// The first sleep; the next ones are twice as long each.
const FIRST_SLEEP: Duration = Duration::from_micros(20);
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A wait with an end.
///
/// Completions are polled for: spin, then yield, then sleep for up to a millisecond. An event
/// channel would cost two system calls per wait and shorten only the waits that take long anyway.
#[derive(Debug)]
pub(crate) struct Patience {
    /// When the spinning was over: most waits are by then, and need no clock.
    started: Option<Instant>,
    limit: Duration,
    round: u32,
    sleep: Duration,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            started: None,
            limit,
            round: 0,
            sleep: FIRST_SLEEP,
        }
    }

    /// The whole time that this wait may take.
    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Lets some time pass. `false`: the time is over.
    pub(crate) fn pause(&mut self) -> bool {
        self.round += 1;
        if self.round <= SPINS {
            hint::spin_loop();
            return true;
        }
        let started = self.started.get_or_insert_with(Instant::now);
        let left = self.limit.saturating_sub(started.elapsed());
        if left.is_zero() {
            return false;
        }
        if self.round <= SPINS + YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(self.sleep.min(left));
            self.sleep = (self.sleep * 2).min(LONGEST_SLEEP);
        }
        true
    }
}

/// Locks. Nothing in this crate panics with a lock held and its data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
