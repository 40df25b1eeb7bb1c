//! The locks and thread primitives of this crate, in one place so that a model checker can stand
//! in for them.

use std::sync::{self, MutexGuard, PoisonError, WaitTimeoutResult};
use std::time::Duration;

/// A lock for critical sections of a few loads and stores that call nothing foreign.
///
/// A spin lock, since it lets go with a plain store: that halves the atomic operations of a lease.
/// Each is used by one thread almost always (see `shard.rs`); whoever does meet another yields.
pub(crate) struct ShortLock<T>(spin::mutex::SpinMutex<T, spin::relax::Yield>);

impl<T> ShortLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(spin::mutex::SpinMutex::new(value))
    }

    pub(crate) fn lock(&self) -> spin::mutex::SpinMutexGuard<'_, T> {
        self.0.lock()
    }
}

/// A blocking lock. Nothing foreign is called under it, so a panic while it is held would be a
/// defect of this crate; the state is used as it is rather than adding a second panic.
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
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
#[derive(Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a notification, at most `timeout`; may return early.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.0
            .wait_timeout(guard, timeout)
            .unwrap_or_else(PoisonError::into_inner)
    }
}
