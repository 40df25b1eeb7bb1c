//! The thread that does what is due.

use crate::host::Shared;
use mr_core::{Clock, Time};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest sleep: a bound in case the host's clock is not real time.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
const LONGEST_IDLE: Duration = Duration::from_secs(1);

/// When the thread wakes next, and whether it is to end.
#[derive(Default)]
pub(crate) struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: Option<Time>,
    stopped: bool,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl Timer {
    /// Something is due at `at`: the thread wakes then at the latest.
    pub(crate) fn arm(&self, at: Time) {
        let mut state = self.lock();
        if state.due.is_none_or(|due| at < due) {
            state.due = Some(at);
            drop(state);
            self.changed.notify_all();
        }
    }

    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Starts the thread. It ends when it is told to, or when the host is gone.
    pub(crate) fn start(&self, shared: Weak<Shared>) -> std::io::Result<()> {
        let thread = std::thread::Builder::new()
            .name("rds-timer".into())
            .spawn(move || {
                while let Some(shared) = shared.upgrade() {
                    if !shared.timer.round(&shared) {
                        break;
                    }
                }
                if let Some(shared) = shared.upgrade() {
                    shared.timer.lock().ended = true;
                    shared.timer.changed.notify_all();
                }
            })?;
        self.lock().thread = Some(thread);
        Ok(())
    }

    /// Joins the thread if it ends within `patience`, unless it is the caller.
    pub(crate) fn join(&self, patience: Duration) {
        let mut state = self.lock();
        let Some(thread) = state.thread.take() else {
            return;
        };
        if thread.thread().id() == std::thread::current().id() {
            return;
        }
        if !state.ended {
            let waited = self
                .changed
                .wait_timeout_while(state, patience, |s| !s.ended);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let ended = state.ended;
        drop(state);
        if ended && thread.join().is_err() {
            tracing::error!("the timer thread has panicked");
        }
    }

    /// Does what is due and sleeps. Says whether to go on.
    fn round(&self, shared: &Shared) -> bool {
        if self.lock().stopped {
            return false;
        }
        // Taken before it is computed anew: what is armed meanwhile is not overwritten.
        self.lock().due = None;
        let next = shared.poll();
        let mut state = self.lock();
        if let Some(next) = next
            && state.due.is_none_or(|due| next < due)
        {
            state.due = Some(next);
        }
        while !state.stopped {
            let left = match state.due {
                Some(due) => due.since(shared.clock.now()).min(LONGEST_SLEEP),
                None => LONGEST_IDLE,
            };
            if left.is_zero() {
                return true;
            }
            let due = state.due;
            let (woken, waited) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if waited.timed_out() && state.due == due {
                return true;
            }
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_counts() {
        let timer = Timer::default();
        timer.arm(Time::from_nanos(5));
        timer.arm(Time::from_nanos(9));
        assert_eq!(timer.lock().due, Some(Time::from_nanos(5)));
        timer.arm(Time::from_nanos(2));
        assert_eq!(timer.lock().due, Some(Time::from_nanos(2)));
    }
}
