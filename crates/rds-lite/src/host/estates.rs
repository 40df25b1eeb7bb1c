//! Memory of sockets that are gone: who waits for the death of its keys, and for how long.

use crate::host::{Driving, Shared};
use crate::rdma::{Cookie, Leased, Regions};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Leases to be ended, whose keys are to be killed.
///
/// One thread does that, and only while there are any. Nobody can say how long a backend takes, so whoever
/// closes a socket waits for the thread and not for the backend; and however many sockets close meanwhile,
/// there is one thread that may hang.
#[derive(Default)]
pub(crate) struct Estates {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    leases: Vec<Box<dyn Leased>>,
    /// How often leases were left here, and up to which time they have been dealt with.
    left: u64,
    dealt_with: u64,
    running: bool,
}

/// Has another thread started should this one panic in a backend.
struct Gone<'a>(&'a Estates);

impl Shared {
    /// Ends the leases of a socket that is gone, and sees to it that their keys die. Waits for that as long
    /// as for the end of the host; later it goes on beside.
    pub(crate) fn abandon(&self, regions: Vec<(Cookie, Box<dyn Leased>)>) {
        let Some(pool) = self.memory.regions() else {
            return;
        };
        if regions.is_empty() {
            return;
        }
        let leases = regions.into_iter().map(|(_, lease)| lease).collect();
        if self.driving == Driving::Manual {
            settle(leases, &**pool);
        } else if !self.estates.leave(leases, pool, self.shutdown_timeout) {
            tracing::warn!("a closed socket does not wait any longer for its keys to die");
        }
    }
}

impl Estates {
    /// Says whether all have been dealt with in time.
    fn leave(
        self: &Arc<Self>,
        leases: Vec<Box<dyn Leased>>,
        pool: &Arc<dyn Regions>,
        patience: Duration,
    ) -> bool {
        let mut state = self.lock();
        state.leases.extend(leases);
        state.left += 1;
        let mine = state.left;
        if !state.running {
            state.running = true;
            drop(state);
            self.start(pool);
            state = self.lock();
        }
        let waited = self
            .done
            .wait_timeout_while(state, patience, |state| state.dealt_with < mine);
        let (_state, late) = waited.unwrap_or_else(PoisonError::into_inner);
        !late.timed_out()
    }

    fn start(self: &Arc<Self>, pool: &Arc<dyn Regions>) {
        let (estates, regions) = (Arc::clone(self), Arc::clone(pool));
        let thread = std::thread::Builder::new().name("rds-estates".into());
        let started = thread.spawn(move || {
            let _gone = Gone(&estates);
            while estates.deal(|leases| settle(leases, &*regions)) {}
        });
        if let Err(error) = started {
            tracing::error!(%error, "no thread to kill keys with: the pool's own does it when due");
            while self.deal(|leases| leases.into_iter().for_each(Leased::release)) {}
        }
    }

    /// Has `with` deal with what is here. Says whether there was anything.
    fn deal(&self, with: impl FnOnce(Vec<Box<dyn Leased>>)) -> bool {
        let mut state = self.lock();
        let (leases, left) = (std::mem::take(&mut state.leases), state.left);
        if leases.is_empty() {
            // Whoever comes from now on starts another thread.
            state.running = false;
            return false;
        }
        drop(state);
        with(leases);
        self.lock().dealt_with = left;
        self.done.notify_all();
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().running = false;
        }
    }
}

fn settle(leases: Vec<Box<dyn Leased>>, pool: &dyn Regions) {
    leases.into_iter().for_each(Leased::release);
    if !pool.flush() {
        tracing::warn!("not all keys of a closed socket are dead yet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::{MrError, StillAlive};
    use mr_core::{Access, Pool, PoolStats, RemoteKey, Time};
    use mr_mock::{MockHca, Preset};
    use mr_policies::Policy;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    /// Whose first flush waits to be let go.
    struct Stuck {
        letting_go: Mutex<Receiver<()>>,
        flushes: AtomicUsize,
        stats: PoolStats,
    }

    impl Regions for Stuck {
        fn lease(&self, _: Vec<u8>, _: Access, _: Duration) -> Result<Box<dyn Leased>, MrError> {
            Ok(Box::new(Nothing))
        }
        fn flush(&self) -> bool {
            self.flushes.fetch_add(1, Ordering::SeqCst);
            // An error once the sender is gone.
            let _ = self.letting_go.lock().unwrap().recv();
            true
        }
        fn reclaim(&self, _: &mut Vec<Vec<u8>>) {}
        fn step(&self) -> Option<Time> {
            None
        }
        fn stats(&self) -> PoolStats {
            self.stats.clone()
        }
    }

    #[derive(Debug)]
    struct Nothing;

    impl Leased for Nothing {
        fn key(&self) -> RemoteKey {
            RemoteKey::from_bits(0)
        }
        fn remote_addr(&self) -> u64 {
            0
        }
        fn addr(&self) -> u64 {
            0
        }
        fn release(self: Box<Self>) {}
        fn invalidate(self: Box<Self>) -> Result<Vec<u8>, StillAlive> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn one_thread_hangs_however_many_sockets_close() {
        let (let_go, letting_go) = channel();
        let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
        let unused = Pool::builder(hca, Policy::default()).build::<Vec<u8>>();
        let stuck = Arc::new(Stuck {
            letting_go: Mutex::new(letting_go),
            flushes: AtomicUsize::new(0),
            stats: unused.unwrap().stats(),
        });
        let pool: Arc<dyn Regions> = stuck.clone();
        let estates = Arc::new(Estates::default());
        let lease = || -> Vec<Box<dyn Leased>> { vec![Box::new(Nothing)] };
        for _ in 0..100 {
            assert!(!estates.leave(lease(), &pool, Duration::from_micros(1)));
        }
        drop(let_go);
        assert!(estates.leave(lease(), &pool, Duration::from_secs(20)));
        // What came meanwhile was dealt with together.
        let flushes = stuck.flushes.load(Ordering::SeqCst);
        assert!(flushes <= 3, "{flushes}");
    }
}
