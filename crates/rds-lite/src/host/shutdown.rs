//! The end of a host: bounded as a whole, and nothing is left behind unsaid.

use crate::host::{Driving, Shared};
use crate::proto::Core;
use crate::rdma::Regions;
use mr_core::{Clock, SystemClock, Time};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long the last acknowledgements may take, and how often it is looked whether they have gone.
const LAST_WORD: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(1);

/// What the end of a host has left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Threads of the fabric that had not ended, most of them with a connection that the device does not
    /// let go. They end when it does.
    pub threads: usize,
    /// Regions that are lent still: sockets have them. Their keys live until the sockets are dropped, or
    /// the policy of the pool kills them.
    pub leased: u64,
    /// Released keys that the HCA may honour still. The pool goes on to kill them.
    pub stale: u64,
    /// The backend of the pool had not come back from killing keys: a thread is left with it.
    pub flush_left: bool,
}

impl ShutdownReport {
    /// Whether nothing is left behind.
    pub const fn is_complete(&self) -> bool {
        self.threads == 0 && self.leased == 0 && self.stale == 0 && !self.flush_left
    }
}

/// The time that a shutdown may take. The host's own clock may be any.
struct Limit {
    clock: SystemClock,
    until: Time,
}

impl Limit {
    fn new(patience: Duration) -> Self {
        let clock = SystemClock::new();
        Self {
            until: clock.now() + patience,
            clock,
        }
    }

    fn left(&self) -> Duration {
        self.until.since(self.clock.now())
    }
}

impl Shared {
    /// Ends everything within the host's `shutdown_timeout`: half of it at most is the fabric's, and the
    /// pool has what is left. Called again it does what was left behind.
    pub(crate) fn shut_down(&self) -> ShutdownReport {
        let limit = Limit::new(self.shutdown_timeout);
        self.say_last_word(limit.left().min(LAST_WORD));
        let threads = self.fabric.shut_down(self.shutdown_timeout / 2);
        self.with(Core::shut_down);
        self.timer.stop();
        self.links.close_all();
        self.wake_all();
        let mut report = ShutdownReport {
            threads,
            ..ShutdownReport::default()
        };
        if let Some(regions) = self.memory.regions() {
            report.flush_left = !self.flush(regions, limit.left());
            self.memory.reclaim(self);
            let stats = regions.stats();
            report.leased = stats.leased.keys;
            report.stale = stats.stale.keys;
            // Buffers have come back.
            self.wake_all();
        }
        self.timer.join(limit.left());
        report
    }

    /// Tells peers what has been taken, as far as that goes in this time. Where the user drives the host nothing
    /// goes out meanwhile.
    fn say_last_word(&self, patience: Duration) {
        if self.driving == Driving::Manual {
            return;
        }
        let limit = Limit::new(patience);
        self.with(Core::say_last_word);
        while self.lock().has_more_to_say() && !limit.left().is_zero() {
            std::thread::sleep(GLANCE);
        }
    }

    /// Kills all released keys. Says whether the backend has come back in time.
    ///
    /// In a thread of its own, since nobody can say how long a backend takes; but where the user drives
    /// the host, and nothing happens beside.
    fn flush(&self, regions: &Arc<dyn Regions>, patience: Duration) -> bool {
        if self.driving == Driving::Manual {
            regions.flush();
            return true;
        }
        let (done, wait) = sync_channel(1);
        let regions = Arc::clone(regions);
        let thread = std::thread::Builder::new().name("rds-flush".into());
        let started = thread.spawn(move || {
            regions.flush();
            // Nobody waits any more if it took too long.
            let _ = done.send(());
        });
        match started {
            Ok(_) => wait.recv_timeout(patience).is_ok(),
            Err(error) => {
                tracing::error!(%error, "no thread to kill keys with: the pool's own does it when due");
                true
            }
        }
    }

    fn wake_all(&self) {
        let signals = self.signals.read();
        let signals = signals.unwrap_or_else(std::sync::PoisonError::into_inner);
        for signals in signals.values() {
            signals.readable.raise();
            signals.writable.raise();
        }
    }
}
