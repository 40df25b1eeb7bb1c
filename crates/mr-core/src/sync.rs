//! The locks and thread primitives of this crate, in one place so that a model checker can stand
//! in for them: with `--cfg model`, all that threads share here comes from it. The unit tests of this
//! crate get loom, which tries every interleaving of a part; everybody else gets shuttle, which samples
//! those of the whole pool. So one build serves both.
//!
//! In a model time does not pass: a wait ends when it is notified, and a thread that waits for
//! nothing but time is a deadlock that the model reports. So whatever a timeout would have
//! papered over shows.

#[cfg(all(model, test))]
use loom as model;
#[cfg(all(model, not(test)))]
use shuttle as model;
#[cfg(not(model))]
use std as model;

pub(crate) use model::sync::{MutexGuard, atomic};
pub(crate) use model::thread;

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(not(model))]
type Short<T> = spin::mutex::SpinMutex<T, spin::relax::Yield>;
#[cfg(not(model))]
pub(crate) type ShortGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;
#[cfg(model)]
type Short<T> = Mutex<T>;
#[cfg(model)]
pub(crate) type ShortGuard<'a, T> = MutexGuard<'a, T>;

/// A lock for critical sections of a few loads and stores that call nothing foreign.
///
/// A spin lock, since it lets go with a plain store: that halves the atomic operations of a lease.
/// Each is used by one thread almost always (see `shard.rs`); whoever does meet another yields.
pub(crate) struct ShortLock<T>(Short<T>);

impl<T> ShortLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Short::new(value))
    }

    pub(crate) fn lock(&self) -> ShortGuard<'_, T> {
        self.0.lock()
    }
}

/// A blocking lock. Nothing foreign is called under it, so a panic while it is held would be a
/// defect of this crate; the state is used as it is rather than adding a second panic.
pub(crate) struct Mutex<T>(model::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(model::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A condition variable for [`Mutex`].
pub(crate) struct Condvar(model::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(model::sync::Condvar::new())
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a notification, at most `timeout`; may return early.
    #[cfg(not(model))]
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let woken = self.0.wait_timeout(guard, timeout);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    #[cfg(model)]
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _timeout: Duration,
    ) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of the calling thread: threads are numbered as they come.
#[cfg(not(all(model, not(test))))]
pub(crate) fn thread_number() -> u32 {
    use atomic::{AtomicU32, Ordering};
    use std::cell::Cell;

    #[cfg(not(model))]
    static NEXT: AtomicU32 = AtomicU32::new(0);
    #[cfg(model)]
    loom::lazy_static! {
        static ref NEXT: AtomicU32 = AtomicU32::new(0);
    }
    #[cfg(not(model))]
    thread_local! {
        static MINE: Cell<u32> = const { Cell::new(u32::MAX) };
    }
    #[cfg(model)]
    loom::thread_local! {
        static MINE: Cell<u32> = Cell::new(u32::MAX);
    }
    MINE.with(|mine| {
        if mine.get() == u32::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1));
        }
        mine.get()
    })
}

#[cfg(all(model, not(test)))]
pub(crate) fn thread_number() -> u32 {
    usize::from(shuttle::current::me()) as u32
}
