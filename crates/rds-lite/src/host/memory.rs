//! Regions on their way back: from a release to the owner of the buffer.

use crate::fabric::Sink;
use crate::host::Shared;
use crate::proto::SockId;
use crate::rdma::{Cookie, FreeOutcome, Leased, Region, Regions};
use mr_core::Time;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often a pool is asked for the buffer of a key that did not die at once.
const DEATH_POLL: Duration = Duration::from_millis(10);

/// How long a flush waits for releases that others are in the middle of.
const RELEASES: Duration = Duration::from_secs(1);

/// The pool, and whose buffers it has.
pub(crate) struct Memory {
    regions: Option<Arc<dyn Regions>>,
    sink: Weak<dyn Sink>,
    /// By the address of the buffer: nothing else is there while the pool has it.
    away: Mutex<HashMap<u64, Away>>,
    /// Of loans that the core has ended: those whose leases are not released yet.
    ending: Mutex<usize>,
    none_ending: Condvar,
    /// Held while buffers are on their way from the pool to their owners.
    handing: Mutex<()>,
    /// Keys given out while an earlier use of theirs could still be honoured.
    reissued: AtomicU64,
}

/// A buffer that a pool has.
#[derive(Clone, Copy)]
struct Away {
    sock: SockId,
    cookie: Cookie,
    /// Messages to the socket wait for the key to be dead.
    awaited: bool,
}

impl Memory {
    pub(crate) fn new(regions: Option<Arc<dyn Regions>>, sink: Weak<dyn Sink>) -> Self {
        Self {
            regions,
            sink,
            away: Mutex::new(HashMap::new()),
            ending: Mutex::new(0),
            none_ending: Condvar::new(),
            handing: Mutex::new(()),
            reissued: AtomicU64::new(0),
        }
    }

    pub(crate) fn sink(&self) -> Weak<dyn Sink> {
        Weak::clone(&self.sink)
    }

    pub(crate) fn regions(&self) -> Option<&Arc<dyn Regions>> {
        self.regions.as_ref()
    }

    /// The core, which is locked, has ended so many loans; [`release`](Self::release) is called for each.
    pub(crate) fn will_release(&self, loans: usize) {
        if loans > 0 {
            *lock(&self.ending) += loans;
        }
    }

    /// Ends a lease; its buffer comes back when the policy has had its flush.
    pub(crate) fn release(&self, sock: SockId, cookie: Cookie, lease: Box<dyn Leased>) {
        self.note(&*lease, sock, cookie, false);
        lease.release();
        let mut ending = lock(&self.ending);
        *ending = ending.saturating_sub(1);
        if *ending == 0 {
            self.none_ending.notify_all();
        }
    }

    /// Kills all keys that have been released. That includes those of loans whose end somebody has heard of: who
    /// has the message behind the use may be ahead of the thread that releases the region. Says whether all are
    /// dead.
    pub(crate) fn flush(&self, pool: &dyn Regions) -> bool {
        let ending = lock(&self.ending);
        let waited = self
            .none_ending
            .wait_timeout_while(ending, RELEASES, |ending| *ending > 0);
        let (ending, late) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(ending);
        pool.flush() && !late.timed_out()
    }

    /// Kills a key that messages to the socket wait for.
    pub(crate) fn invalidate(
        &self,
        shared: &Shared,
        sock: SockId,
        cookie: Cookie,
        lease: Box<dyn Leased>,
    ) {
        let addr = lease.addr();
        self.note(&*lease, sock, cookie, true);
        match lease.invalidate() {
            Ok(buffer) => {
                self.lock().remove(&addr);
                self.hand(shared, sock, cookie, buffer);
                shared.with(|core| core.key_dead(sock, cookie));
            }
            Err(alive) => {
                tracing::warn!(%alive, "messages wait for a key to die");
                shared.timer.arm(shared.clock.now() + DEATH_POLL);
            }
        }
    }

    /// Frees a region, killing its key now if asked to.
    pub(crate) fn free(&self, sock: SockId, region: Region, invalidate: bool) -> FreeOutcome {
        let (cookie, lease) = (region.cookie, region.lease);
        let addr = lease.addr();
        self.note(&*lease, sock, cookie, false);
        if !invalidate {
            lease.release();
            return FreeOutcome::InProgress;
        }
        match lease.invalidate() {
            Ok(buffer) => {
                self.lock().remove(&addr);
                FreeOutcome::Dead(buffer)
            }
            Err(alive) => {
                tracing::warn!(%alive, "a key is not dead yet");
                FreeOutcome::InProgress
            }
        }
    }

    /// Gives buffers whose keys are dead to their owners.
    pub(crate) fn reclaim(&self, shared: &Shared) {
        let Some(pool) = self.regions() else {
            return;
        };
        let mut buffers = Vec::new();
        let mut awaited = Vec::new();
        // Who comes second finds what the first has taken from the pool with its owner.
        let handing = lock(&self.handing);
        pool.reclaim(&mut buffers);
        for buffer in buffers {
            // One that is not known was of a socket that has been closed.
            let away = self.lock().remove(&(buffer.as_ptr().addr() as u64));
            if let Some(away) = away {
                self.hand(shared, away.sock, away.cookie, buffer);
                awaited.extend(away.awaited.then_some((away.sock, away.cookie)));
            }
        }
        drop(handing);
        for (sock, cookie) in awaited {
            shared.with(|core| core.key_dead(sock, cookie));
        }
    }

    /// Asks the pool for buffers if messages wait for one. Says when to ask again.
    pub(crate) fn poll_deaths(&self, shared: &Shared, now: Time) -> Option<Time> {
        let awaited = |memory: &Self| memory.lock().values().any(|away| away.awaited);
        if !awaited(self) {
            return None;
        }
        self.reclaim(shared);
        awaited(self).then_some(now + DEATH_POLL)
    }

    pub(crate) fn step(&self) -> Option<Time> {
        self.regions()?.step()
    }

    /// Cookies of a socket whose keys may still be honoured.
    pub(crate) fn stale_of(&self, sock: SockId) -> Vec<Cookie> {
        let away = self.lock();
        let mine = away.values().filter(|away| away.sock == sock);
        let mut cookies: Vec<_> = mine.map(|away| away.cookie).collect();
        cookies.sort_unstable();
        cookies
    }

    /// Looks whether a key that has just been given out may be honoured for somebody else.
    pub(crate) fn meter(&self, cookie: Cookie) {
        let key = cookie.key();
        if self.lock().values().any(|away| away.cookie.key() == key) {
            self.reissued.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn reissued(&self) -> u64 {
        self.reissued.load(Ordering::Relaxed)
    }

    fn note(&self, lease: &dyn Leased, sock: SockId, cookie: Cookie, awaited: bool) {
        let away = Away {
            sock,
            cookie,
            awaited,
        };
        self.lock().insert(lease.addr(), away);
    }

    fn hand(&self, shared: &Shared, sock: SockId, cookie: Cookie, buffer: Vec<u8>) {
        if let Some(signals) = shared.signals_of(sock) {
            let mut returned = signals
                .returned
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            returned.push_back((cookie, buffer));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Away>> {
        lock(&self.away)
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
