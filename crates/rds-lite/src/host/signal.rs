//! Who waits for a socket: threads and tasks, woken by the same events.

use crate::host::crowd::Crowd;
use crate::rdma::Cookie;
use mr_core::{Clock, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// What a socket's users wait for, and what comes back to them.
pub(crate) struct SocketSignals {
    pub(crate) readable: Signal,
    pub(crate) writable: Signal,
    /// Buffers whose keys are dead.
    pub(crate) returned: Mutex<VecDeque<(Cookie, Vec<u8>)>>,
}

impl SocketSignals {
    pub(crate) fn new(crowd: &Arc<Crowd>) -> Self {
        Self {
            readable: Signal::new(Arc::clone(crowd)),
            writable: Signal::new(Arc::clone(crowd)),
            returned: Mutex::default(),
        }
    }
}

/// Something that happens again and again.
///
/// Nobody misses it: whoever waits reads [`epoch`](Self::epoch) first, looks whether there is a
/// need to wait, and then waits for another epoch.
pub(crate) struct Signal {
    epoch: AtomicU64,
    waiting: AtomicU64,
    /// The thread that serves a link waits for this.
    serving: AtomicBool,
    crowd: Arc<Crowd>,
    /// Of tasks, each by its ticket.
    wakers: Mutex<Vec<(u64, Waker)>>,
    tickets: AtomicU64,
    raised: Condvar,
}

/// A task's place among those that wait for a signal. Dropping it gives the place up.
pub(crate) struct Place<'a> {
    signal: &'a Signal,
    ticket: Option<u64>,
}

impl Signal {
    fn new(crowd: Arc<Crowd>) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            serving: AtomicBool::new(false),
            crowd,
            wakers: Mutex::default(),
            tickets: AtomicU64::new(0),
            raised: Condvar::new(),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// It has happened.
    pub(crate) fn raise(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        if self.serving.load(Ordering::SeqCst) {
            self.crowd.ring();
        }
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = std::mem::take(&mut *wakers);
        self.waiting.fetch_sub(woken.len() as u64, Ordering::SeqCst);
        drop(wakers);
        self.raised.notify_all();
        self.crowd.leave(woken.len());
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Runs `wait`, which listens to the bell of the crowd.
    pub(crate) fn serve<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.serving.store(true, Ordering::SeqCst);
        let waited = wait();
        self.serving.store(false, Ordering::SeqCst);
        waited
    }

    /// Waits until it has happened after `epoch`, or until `deadline`. Says whether it has.
    ///
    /// The clock may be any: it is looked at again at least every 100 ms.
    pub(crate) fn wait(&self, epoch: u64, clock: &dyn Clock, deadline: Option<Time>) -> bool {
        if self.epoch() != epoch {
            return true;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let happened = loop {
            if self.epoch() != epoch {
                break true;
            }
            let left = deadline.map_or(LOOK_AGAIN, |at| at.since(clock.now()));
            if left.is_zero() {
                break false;
            }
            let woken = self.raised.wait_timeout(guard, left.min(LOOK_AGAIN));
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(guard);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        happened
    }

    /// A place for one task, which does not wait yet.
    pub(crate) const fn place(&self) -> Place<'_> {
        Place {
            signal: self,
            ticket: None,
        }
    }
}

impl<'a> Place<'a> {
    /// What is waited for.
    pub(crate) const fn signal(&self) -> &'a Signal {
        self.signal
    }

    /// Wakes `waker`, and no earlier one of this place, when it happens after `epoch`. Says whether it
    /// already has. Calls `waits` before one more task waits.
    pub(crate) fn register(&mut self, epoch: u64, waker: &Waker, waits: impl FnOnce()) -> bool {
        let signal = self.signal;
        let next = || signal.tickets.fetch_add(1, Ordering::Relaxed);
        let ticket = *self.ticket.get_or_insert_with(next);
        let mut wakers = signal.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        match wakers.iter_mut().find(|place| place.0 == ticket) {
            Some(place) => place.1.clone_from(waker),
            None => {
                waits();
                wakers.push((ticket, waker.clone()));
                signal.waiting.fetch_add(1, Ordering::SeqCst);
            }
        }
        drop(wakers);
        signal.epoch() != epoch
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else {
            return;
        };
        let signal = self.signal;
        let mut wakers = signal.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = wakers.iter().position(|place| place.0 == ticket) else {
            return;
        };
        let gone = wakers.swap_remove(at);
        signal.waiting.fetch_sub(1, Ordering::SeqCst);
        // A runtime's waker may do anything when it is dropped.
        drop(wakers);
        signal.crowd.leave(1);
        drop(gone);
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let wakers = self.wakers.get_mut();
        let wakers = wakers.unwrap_or_else(PoisonError::into_inner);
        self.crowd.leave(wakers.len());
    }
}

pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(100);
