//! The way of a buffer back to whoever waits for it.

use crate::clock::Deadline;
use crate::sync::{Condvar, Mutex};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The place where a flush leaves a buffer for a [`Pending`].
pub(crate) struct Handback<M> {
    state: Mutex<State<M>>,
    arrived: Condvar,
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
            state: Mutex::new(State::Waiting),
            arrived: Condvar::new(),
        }
    }

    /// Leaves the buffer.
    pub(crate) fn hand(&self, buffer: M) -> Arrival<M> {
        let mut state = self.state.lock();
        match *state {
            State::Over => return Arrival::Unwanted(buffer),
            State::Left => return Arrival::Collect(buffer),
            State::Waiting | State::Arrived(_) => *state = State::Arrived(buffer),
        }
        drop(state);
        self.arrived.notify_all();
        Arrival::Received
    }

    fn take(&self) -> Option<M> {
        take_arrived(&mut self.state.lock())
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
}

impl<M> Pending<M> {
    pub(crate) const fn new(handback: Arc<Handback<M>>) -> Self {
        Self { handback }
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
        let mut state = self.handback.state.lock();
        let here = take_arrived(&mut state);
        if here.is_none() {
            *state = State::Left;
        }
        here
    }

    /// Waits for the buffer, at most `timeout`.
    ///
    /// # Errors
    ///
    /// Gives itself back if the key may still be honoured at the end of the time.
    pub fn wait_timeout(self, timeout: Duration) -> Result<M, Self> {
        let deadline = Deadline::after(timeout);
        let mut state = self.handback.state.lock();
        loop {
            if let Some(buffer) = take_arrived(&mut state) {
                return Ok(buffer);
            }
            let left = deadline.left();
            if left.is_zero() {
                drop(state);
                return Err(self);
            }
            state = self.handback.arrived.wait_timeout(state, left);
        }
    }
}

impl<M> Drop for Pending<M> {
    fn drop(&mut self) {
        let mut state = self.handback.state.lock();
        if matches!(*state, State::Left) {
            return;
        }
        let unwanted = std::mem::replace(&mut *state, State::Over);
        drop(state);
        // The buffer's own drop may do anything, so it runs outside of the lock.
        drop(unwanted);
    }
}

impl<M> fmt::Debug for Pending<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.handback.state.lock() {
            State::Waiting => "Pending(stale)",
            State::Arrived(_) => "Pending(arrived)",
            State::Over | State::Left => "Pending(taken)",
        })
    }
}
