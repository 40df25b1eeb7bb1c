//! One flush at a time, and who waits for which.

use crate::clock::Deadline;
use crate::exposure::Durations;
use crate::pool::slot::StaleSum;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, thread, thread_number};
use crate::{Scope, Time};
use std::time::Duration;

/// The ticket office of the flushes.
///
/// Flushes are numbered as they start, and only one runs at a time. A flush takes its regions after
/// it has started. So whatever was released before a caller reads [`Gate::ticket`] is dead when the
/// flush of that number has completed: also what another thread's flush had already taken, since
/// that one has completed before.
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Where those wait whose turn comes at the end of a flush, and where those, the flusher first of
    /// all, whom that does not concern.
    turns: Bench,
    changes: Bench,
}

/// Threads sleep here. They are counted, under the gate's lock: to wake nobody costs a system call
/// all the same.
struct Bench {
    woken: Condvar,
    sleepers: AtomicU32,
}

struct State {
    running: bool,
    /// Somebody would have begun a flush, had none been running.
    missed: bool,
    /// The thread that has begun the flush that runs.
    runner: u32,
    /// The number of the latest flush to start, and whether it takes all that is stale.
    started: u64,
    full: bool,
    /// The number of the latest flush to complete, and of the latest full one that killed all it took.
    completed: u64,
    completed_full: u64,
    /// A flush that somebody needs, whatever the policy says.
    demanded: Option<Scope>,
    /// What the flush that runs has taken and not settled.
    in_flush: InFlush,
    last_flush: Time,
    record: FlushRecord,
}

/// Regions in a flush, and their stale keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlush {
    pub(crate) regions: u32,
    pub(crate) sum: StaleSum,
    /// None of their keys was released earlier.
    pub(crate) oldest: Option<Time>,
}

/// How a flush ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// From its begin to its end, if it reached the backend.
    pub(crate) took: Option<Duration>,
    /// The backend was asked about all that the flush had taken.
    pub(crate) asked_all: bool,
    /// The backend did all that it was asked for.
    pub(crate) killed_all: bool,
}

/// What is remembered of all flushes that took at least one region.
#[derive(Clone, Debug)]
pub(crate) struct FlushRecord {
    pub(crate) flushes: u64,
    pub(crate) regions: u64,
    pub(crate) largest: u32,
    pub(crate) durations: Durations,
    pub(crate) peak_stale: u64,
    pub(crate) peak_stale_bytes: u64,
}

/// How a wait at the gate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The flush waited for has completed.
    Done,
    /// No flush runs: the caller is to start one.
    Start,
    /// The time is over.
    TimedOut,
    /// The caller itself is in the flush that runs.
    Within,
}

impl Gate {
    pub(crate) fn new(now: Time) -> Self {
        let record = FlushRecord {
            flushes: 0,
            regions: 0,
            largest: 0,
            durations: Durations::new(),
            peak_stale: 0,
            peak_stale_bytes: 0,
        };
        let state = State {
            running: false,
            missed: false,
            runner: 0,
            started: 0,
            full: false,
            completed: 0,
            completed_full: 0,
            demanded: None,
            in_flush: InFlush::default(),
            last_flush: now,
            record,
        };
        Self {
            state: Mutex::new(state),
            turns: Bench::new(),
            changes: Bench::new(),
        }
    }

    /// The number of the next flush to start.
    pub(crate) fn ticket(&self) -> u64 {
        self.state.lock().started + 1
    }

    /// Starts a flush if none runs. A `full` one takes all that is stale, and what is in quarantine.
    pub(crate) fn enter(&self, full: bool) -> bool {
        let mut state = self.state.lock();
        let free = !state.running;
        state.missed = !free;
        if free {
            state.running = true;
            state.runner = thread_number();
            state.started += 1;
            state.full = full;
            state.demanded = None;
        }
        free
    }

    /// Says what the flush that runs has taken.
    pub(crate) fn took(&self, taken: InFlush, now: Time) {
        let mut state = self.state.lock();
        state.in_flush = taken;
        state.last_flush = now;
        let record = &mut state.record;
        record.flushes += 1;
        record.regions += u64::from(taken.regions);
        record.largest = record.largest.max(taken.regions);
        record.peak_stale = record.peak_stale.max(taken.sum.keys);
        record.peak_stale_bytes = record.peak_stale_bytes.max(taken.sum.bytes);
    }

    /// Says what has left the flush that runs.
    pub(crate) fn settled(&self, settled: InFlush) {
        let in_flush = &mut self.state.lock().in_flush;
        in_flush.regions -= settled.regions;
        in_flush.sum.remove(&settled.sum);
    }

    /// Ends the flush that runs. One that has put regions back is as if it had never been: whoever
    /// waits for it must start another. Says whether somebody else has [tried](Self::enter) in the
    /// meantime.
    pub(crate) fn leave(&self, ended: Ended) -> bool {
        let mut state = self.state.lock();
        state.running = false;
        if ended.asked_all {
            state.completed = state.started;
        }
        if state.full && ended.asked_all && ended.killed_all {
            state.completed_full = state.started;
        }
        state.in_flush = InFlush::default();
        if let Some(took) = ended.took {
            state.record.durations.record(took);
        }
        let missed = state.missed;
        self.turns.wake(state);
        missed
    }

    /// Waits until flush `ticket` or a later one has completed, a full one if `full`, or until one
    /// can be started.
    pub(crate) fn wait(
        &self,
        ticket: u64,
        full: bool,
        deadline: Deadline,
        stop: impl Fn() -> bool,
    ) -> Turn {
        let mut state = self.state.lock();
        loop {
            if ticket
                <= if full {
                    state.completed_full
                } else {
                    state.completed
                }
            {
                return Turn::Done;
            }
            if !state.running {
                return Turn::Start;
            }
            if state.runner == thread_number() {
                return Turn::Within;
            }
            let left = deadline.left();
            if left.is_zero() || stop() {
                return Turn::TimedOut;
            }
            state = self.turns.sleep(state, left);
        }
    }

    /// Asks for a flush of `scope`, whatever the policy says.
    pub(crate) fn demand(&self, scope: Scope) {
        let mut state = self.state.lock();
        state.demanded = state.demanded.max(Some(scope));
    }

    pub(crate) fn demanded(&self) -> Option<Scope> {
        self.state.lock().demanded
    }

    /// Sleeps until no flush runs, or something else changes, or `timeout` has passed.
    pub(crate) fn sleep_while_running(&self, timeout: Duration) {
        let state = self.state.lock();
        if state.running {
            drop(self.turns.sleep(state, timeout));
        }
    }

    pub(crate) fn in_flush(&self) -> InFlush {
        self.state.lock().in_flush
    }

    pub(crate) fn last_flush(&self) -> Time {
        self.state.lock().last_flush
    }

    pub(crate) fn record(&self) -> FlushRecord {
        self.state.lock().record.clone()
    }

    /// Wakes everyone who waits here.
    pub(crate) fn notify(&self) {
        // Whoever is about to sleep holds the lock from its last look until it sleeps.
        let state = self.state.lock();
        let changes = self.changes.sleepers.load(Ordering::Relaxed);
        self.turns.wake(state);
        if changes > 0 {
            self.changes.woken.notify_all();
        }
    }

    /// Sleeps until [`notify`](Self::notify) or `timeout`, unless `ready` says not to. It is
    /// asked under the gate's lock, and must not come back here.
    pub(crate) fn sleep_unless(&self, ready: impl Fn() -> bool, timeout: Duration) {
        let state = self.state.lock();
        if !ready() {
            drop(self.changes.sleep(state, timeout));
        }
    }

    /// Lets some time pass; ends early if something changes. In a model it lets others run.
    pub(crate) fn pause(&self, time: Duration) {
        if cfg!(any(loom, shuttle)) {
            thread::yield_now();
        } else {
            self.sleep_unless(|| false, time);
        }
    }
}

impl Bench {
    fn new() -> Self {
        Self {
            woken: Condvar::new(),
            sleepers: AtomicU32::new(0),
        }
    }

    fn wake(&self, state: MutexGuard<'_, State>) {
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        drop(state);
        if sleepers > 0 {
            self.woken.notify_all();
        }
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let state = self.woken.wait_timeout(state, timeout);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        state
    }
}
