//! Who waits for a socket: threads and tasks, woken by the same events.

use crate::rdma::Cookie;
use mr_core::{Clock, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// What a socket's users wait for, and what comes back to them.
#[derive(Debug, Default)]
pub(crate) struct SocketSignals {
    pub(crate) readable: Signal,
    pub(crate) writable: Signal,
    /// Buffers whose keys are dead.
    pub(crate) returned: Mutex<VecDeque<(Cookie, Vec<u8>)>>,
}

/// Something that happens again and again.
///
/// Nobody misses it: whoever waits reads [`epoch`](Self::epoch) first, looks whether there is a
/// need to wait, and then waits for another epoch.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    epoch: AtomicU64,
    waiting: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
    raised: Condvar,
}

impl Signal {
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// It has happened.
    pub(crate) fn raise(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = std::mem::take(&mut *wakers);
        self.waiting.fetch_sub(woken.len() as u64, Ordering::SeqCst);
        drop(wakers);
        self.raised.notify_all();
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until it has happened after `epoch`, or until `deadline`. Says whether it has.
    ///
    /// The clock may be any: it is looked at again at least every 100 ms.
    pub(crate) fn wait(&self, epoch: u64, clock: &dyn Clock, deadline: Option<Time>) -> bool {
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

    /// Wakes `waker` when it happens after `epoch`. Says whether it already has.
    pub(crate) fn register(&self, epoch: u64, waker: &Waker) -> bool {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        drop(wakers);
        self.epoch() != epoch
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(100);
