//! The way of a buffer back to whoever waits for it.

use crate::clock::Deadline;
use crate::pool::alarm::Alarm;
use crate::sync::{Condvar, Mutex};
use crate::{PendingError, Poisoned, StillPending};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The place where a flush leaves a buffer for a [`Pending`].
pub(crate) struct Handback<M> {
    place: Mutex<Place<M>>,
    /// The buffer has arrived, or nothing will.
    changed: Condvar,
}

struct Place<M> {
    state: State<M>,
    /// The pool is poisoned.
    poisoned: Option<Poisoned>,
}

enum State<M> {
    Waiting,
    Arrived(M),
    /// The buffer has been taken, or nobody wants it any more.
    Over,
    /// Whoever waited has left it to the pool.
    Left,
}

/// What becomes of a buffer that arrives.
pub(crate) enum Arrival<M> {
    /// Somebody has it, or will take it.
    Received,
    /// Nobody wants it.
    Unwanted(M),
    /// It is to be kept for `Pool::reclaim`.
    Collect(M),
}

impl<M> Handback<M> {
    pub(crate) fn new() -> Self {
        Self {
            place: Mutex::new(Place {
                state: State::Waiting,
                poisoned: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Leaves the buffer.
    pub(crate) fn hand(&self, buffer: M) -> Arrival<M> {
        let mut place = self.place.lock();
        match place.state {
            State::Over => return Arrival::Unwanted(buffer),
            State::Left => return Arrival::Collect(buffer),
            State::Waiting | State::Arrived(_) => place.state = State::Arrived(buffer),
        }
        drop(place);
        self.changed.notify_all();
        Arrival::Received
    }

    /// Tells whoever waits that the pool is poisoned.
    pub(crate) fn tell(&self, poisoned: Poisoned) {
        self.place.lock().poisoned = Some(poisoned);
        self.changed.notify_all();
    }

    fn take(&self) -> Option<M> {
        take_arrived(&mut self.place.lock().state)
    }

    /// The buffer, if it has arrived; if not, it is left to the pool.
    pub(crate) fn leave_to_pool(&self) -> Option<M> {
        let state = &mut self.place.lock().state;
        let here = take_arrived(state);
        if here.is_none() {
            *state = State::Left;
        }
        here
    }

    fn wait(&self, timeout: Duration) -> Result<M, StillPending> {
        let deadline = Deadline::after(timeout);
        let mut place = self.place.lock();
        loop {
            if let Some(buffer) = take_arrived(&mut place.state) {
                return Ok(buffer);
            }
            if let Some(poisoned) = place.poisoned {
                return Err(poisoned.into());
            }
            let left = deadline.left();
            if left.is_zero() {
                return Err(StillPending::TimedOut { waited: timeout });
            }
            place = self.changed.wait_timeout(place, left);
        }
    }
}

fn take_arrived<M>(state: &mut State<M>) -> Option<M> {
    match std::mem::replace(state, State::Over) {
        State::Arrived(buffer) => Some(buffer),
        other => {
            *state = other;
            None
        }
    }
}

/// A released buffer on its way back.
///
/// It arrives when the flush that kills its key has completed (promise 2). Waiting does not hurry
/// the policy: call [`Pool::flush`](crate::Pool::flush) for that. Dropping this drops the buffer as
/// soon as its key is dead.
#[must_use = "dropping it drops the buffer once its key is dead"]
pub struct Pending<M> {
    handback: Arc<Handback<M>>,
    alarm: Arc<Alarm<M>>,
}

impl<M> Pending<M> {
    pub(crate) const fn new(handback: Arc<Handback<M>>, alarm: Arc<Alarm<M>>) -> Self {
        Self { handback, alarm }
    }

    /// The buffer, if its key is dead by now.
    ///
    /// # Errors
    ///
    /// Gives itself back if the key may still be honoured.
    pub fn try_take(self) -> Result<M, Self> {
        self.handback.take().ok_or(self)
    }

    /// Stops waiting: the buffer comes back through [`Pool::reclaim`](crate::Pool::reclaim), unless
    /// it is here already; then this returns it.
    pub fn leave_to_pool(self) -> Option<M> {
        self.handback.leave_to_pool()
    }

    /// Waits for the buffer, at most `timeout`.
    ///
    /// # Errors
    ///
    /// Gives itself back with the reason: the key may still be honoured at the end of the time, or the
    /// pool is poisoned; of that it tells at once.
    pub fn wait_timeout(self, timeout: Duration) -> Result<M, PendingError<M>> {
        self.alarm.join(&self.handback);
        let waited = self.handback.wait(timeout);
        self.alarm.leave(&self.handback);
        waited.map_err(|reason| PendingError {
            reason,
            pending: self,
        })
    }
}

impl<M> Drop for Pending<M> {
    fn drop(&mut self) {
        let mut place = self.handback.place.lock();
        if matches!(place.state, State::Left) {
            return;
        }
        let unwanted = std::mem::replace(&mut place.state, State::Over);
        drop(place);
        // The buffer's own drop may do anything, so it runs outside of the lock.
        drop(unwanted);
    }
}

impl<M> fmt::Debug for Pending<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.handback.place.lock().state {
            State::Waiting => "Pending(stale)",
            State::Arrived(_) => "Pending(arrived)",
            State::Over | State::Left => "Pending(taken)",
        })
    }
}
