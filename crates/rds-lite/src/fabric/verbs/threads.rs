//! The threads of a fabric: bounded, and waited for at its end.

use super::lock;
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// Threads that each have a connection, and such as only say something. Clones are the same.
#[derive(Clone)]
pub(super) struct Threads {
    state: Arc<State>,
    most: usize,
}

#[derive(Default)]
struct State {
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Default)]
struct Running {
    count: usize,
    /// Those that have begun.
    ids: HashSet<ThreadId>,
}

/// Counts a thread out, also one that panics.
struct Presence(Arc<State>);

impl Drop for Presence {
    fn drop(&mut self) {
        let mut running = lock(&self.0.running);
        running.count -= 1;
        running.ids.remove(&std::thread::current().id());
        self.0.ended.notify_all();
    }
}

impl Threads {
    pub(super) fn new(most: usize) -> Self {
        Self {
            state: Arc::default(),
            most,
        }
    }

    /// Whether one more may be started.
    pub(super) fn has_room(&self) -> bool {
        lock(&self.state.running).count < self.most
    }

    /// Runs something in a thread of its own.
    ///
    /// # Errors
    ///
    /// There are too many, or the system gives none.
    pub(super) fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.start_below(self.most, name, run)
    }

    /// Runs something that takes no time and must not run in the caller; it is counted, and not among those that
    /// may be too many.
    pub(super) fn start_short(&self, run: impl FnOnce() + Send + 'static) {
        if let Err(error) = self.start_below(usize::MAX, "rds-verbs", run) {
            tracing::error!(%error, "no thread, and a host that waits");
        }
    }

    fn start_below(
        &self,
        most: usize,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        {
            let mut running = lock(&self.state.running);
            if running.count >= most {
                let reason = format!("{most} connections are there: raise max_links");
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason));
            }
            running.count += 1;
        }
        // Goes out with the closure where no thread comes to be.
        let presence = Presence(Arc::clone(&self.state));
        let thread = std::thread::Builder::new().name(name.into());
        thread
            .spawn(move || {
                let presence = presence;
                lock(&presence.0.running)
                    .ids
                    .insert(std::thread::current().id());
                run();
            })
            .map(drop)
    }

    /// Waits until all have ended, but for the caller, at most `patience`. Says how many have not.
    pub(super) fn wait(&self, patience: Duration) -> usize {
        let running = lock(&self.state.running);
        let own = usize::from(running.ids.contains(&std::thread::current().id()));
        let waited = self
            .state
            .ended
            .wait_timeout_while(running, patience, |running| running.count > own);
        let running = waited.unwrap_or_else(PoisonError::into_inner).0;
        running.count.saturating_sub(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_bounded_and_waited_for() {
        let threads = Threads::new(1);
        let (send, receive) = std::sync::mpsc::channel::<()>();
        threads
            .start("first", move || assert!(receive.recv().is_err()))
            .unwrap();
        assert!(!threads.has_room());
        let refused = threads.start("second", || {}).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(threads.wait(Duration::ZERO), 1);
        drop(send);
        assert_eq!(threads.wait(Duration::from_secs(60)), 0);
        assert!(threads.has_room());
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let threads = Arc::new(Threads::new(1));
        let (send, receive) = std::sync::mpsc::channel();
        let inner = Arc::clone(&threads);
        threads
            .start("one", move || {
                send.send(inner.wait(Duration::from_secs(60))).unwrap();
            })
            .unwrap();
        assert_eq!(receive.recv(), Ok(0));
        assert_eq!(threads.wait(Duration::from_secs(60)), 0);
    }
}
