//! The send side of a queue pair: slots, order, completions.

use crate::completion::Status;
use crate::error::{Errno, Error};
use crate::post::Work;
use crate::qp::QueuePair;
use crate::sys::{self, Mw, Scratch, Target};
use crate::wait::{Patience, lock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A send queue with its budget of slots.
///
/// Work requests are numbered as they are posted, and an RC queue pair completes them in this
/// order. So one number says what is done, and only every so many requests, and those that somebody
/// waits for, need a completion of their own. A slot is free again when a completion at or behind
/// it was seen.
///
/// The first failure ends the queue: what was posted before the failed request is done, all behind
/// it is not, and nothing more is taken.
pub(crate) struct SendQueue {
    state: Mutex<State>,
    failed: AtomicBool,
    depth: u64,
    pair: QueuePair,
}

struct State {
    /// Number of the next request.
    next: u64,
    /// All below are done.
    done: u64,
    /// All below have completed in some way: the HCA has let go of their memory.
    over: u64,
    /// Why the first request at or behind `done` was not done.
    failure: Option<Status>,
    scratch: Scratch,
}

/// Why something was not posted, or not seen to complete.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// The queue has no room. It still works.
    Full,
    /// No completion came. The queue is given up.
    TimedOut,
    /// The queue has failed.
    Failed(Status),
    /// libibverbs refused the request. The queue is given up.
    Refused(Errno),
}

impl Trouble {
    pub(crate) fn into_error(
        self,
        what: &'static str,
        wanted: usize,
        queue: &SendQueue,
        patience: &Patience,
    ) -> Error {
        let waited = patience.limit();
        match self {
            Self::Full => Error::QueueFull {
                wanted,
                depth: queue.depth as usize,
                waited,
            },
            Self::TimedOut => Error::TimedOut { what, waited },
            Self::Failed(status) => Error::ConnectionLost { what, status },
            Self::Refused(errno) => Error::system(what, errno),
        }
    }
}

impl SendQueue {
    pub(crate) fn new(pair: QueuePair) -> Self {
        Self {
            state: Mutex::new(State {
                next: 0,
                done: 0,
                over: 0,
                failure: None,
                scratch: Scratch::default(),
            }),
            failed: AtomicBool::new(false),
            depth: u64::from(pair.size().sends),
            pair,
        }
    }

    pub(crate) const fn pair(&self) -> &QueuePair {
        &self.pair
    }

    /// The longest chain that is sure to find room some time.
    ///
    /// Every so many requests one is signalled, so that less than half of the queue can be without
    /// a completion to come.
    pub(crate) fn longest_chain(&self) -> usize {
        (self.depth / 2).max(1) as usize
    }

    /// Whether the queue is known to have failed. One atomic load.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// All requests below this number are done.
    pub(crate) fn done(&self) -> u64 {
        let mut state = lock(&self.state);
        self.take_completions(&mut state);
        state.done
    }

    /// Posts up to [`longest_chain`](Self::longest_chain) requests as one chain with one doorbell,
    /// once there is room. Returns the number of the first. `signal` asks for a completion of the
    /// last; without one it cannot be waited for.
    ///
    /// # Safety
    ///
    /// Windows, registrations and local memory that the works name must exist until the works are
    /// done, or the queue has failed and its queue pair is gone.
    pub(crate) unsafe fn post<'w>(
        &self,
        works: impl ExactSizeIterator<Item = Work<'w>> + Clone,
        signal: bool,
        patience: &mut Patience,
    ) -> Result<u64, Trouble> {
        let count = works.len() as u64;
        self.post_when_room(count, patience, |queue, state| {
            let first = state.next;
            let last = first + count - 1;
            // A chain is not longer than the period, so one of it is due at most.
            let due = queue.next_due(first);
            let signalled = |id| (signal && id == last) || id == due;
            let State { scratch, .. } = state;
            let (pair, works) = (queue.pair.raw(), works.clone());
            // SAFETY: the queue pair exists while `self` does; the rest is the caller's promise.
            let posted = unsafe { sys::post_send(pair, scratch, first, works, signalled) };
            match posted {
                Ok(()) => Ok(()),
                // A part of a chain is never left to itself: give the queue up.
                Err(error) if error.posted > 0 => {
                    state.next += error.posted as u64;
                    Err(Errno::EINVAL)
                }
                Err(error) => Err(error.errno),
            }
        })
    }

    /// Posts a bind of a type 1 window, or, to no bytes, an unbind. Returns its number.
    ///
    /// # Safety
    ///
    /// As [`post`](Self::post).
    pub(crate) unsafe fn post_type_1(
        &self,
        window: Mw,
        target: Target,
        signal: bool,
        patience: &mut Patience,
    ) -> Result<u64, Trouble> {
        self.post_when_room(1, patience, |queue, state| {
            let signalled = signal || queue.next_due(state.next) == state.next;
            // SAFETY: as in `post`.
            unsafe { sys::bind_type_1(queue.pair.raw(), window, state.next, signalled, target) }
        })
    }

    fn post_when_room(
        &self,
        count: u64,
        patience: &mut Patience,
        mut post: impl FnMut(&Self, &mut State) -> Result<(), Errno>,
    ) -> Result<u64, Trouble> {
        debug_assert!((1..=self.longest_chain() as u64).contains(&count));
        loop {
            let mut state = lock(&self.state);
            self.take_completions(&mut state);
            if let Some(failure) = state.failure {
                return Err(Trouble::Failed(failure));
            }
            if state.next - state.done + count <= self.depth {
                let first = state.next;
                match post(self, &mut state) {
                    Ok(()) => {
                        state.next = first + count;
                        return Ok(first);
                    }
                    // The provider counts slots in its own way: that is back-pressure, too.
                    Err(Errno::ENOMEM | Errno::EAGAIN) => {}
                    Err(errno) => {
                        self.give_up_locked(&mut state);
                        return Err(Trouble::Refused(errno));
                    }
                }
            }
            drop(state);
            if !patience.pause() {
                return Err(Trouble::Full);
            }
        }
    }

    /// The first request from this number on that is signalled whatever it is.
    fn next_due(&self, number: u64) -> u64 {
        let period = (self.depth / 2).max(1);
        number + (period - 1 - number % period)
    }

    /// Waits until request `number`, which was signalled, and so all before it, is done.
    pub(crate) fn wait(&self, number: u64, patience: &mut Patience) -> Result<(), Trouble> {
        loop {
            let mut state = lock(&self.state);
            self.take_completions(&mut state);
            if state.done > number {
                return Ok(());
            }
            if let Some(failure) = state.failure {
                return Err(Trouble::Failed(failure));
            }
            drop(state);
            if !patience.pause() {
                self.give_up();
                return Err(Trouble::TimedOut);
            }
        }
    }

    /// Waits until the HCA has let go of all that was posted. `false`: it has not.
    pub(crate) fn drain(&self, patience: &mut Patience) -> bool {
        loop {
            let mut state = lock(&self.state);
            self.take_completions(&mut state);
            if state.over == state.next {
                return true;
            }
            drop(state);
            if !patience.pause() {
                return false;
            }
        }
    }

    /// Ends the queue: its queue pair accepts nothing from the peer and does nothing more.
    pub(crate) fn give_up(&self) {
        self.give_up_locked(&mut lock(&self.state));
    }

    fn give_up_locked(&self, state: &mut State) {
        self.fail(state, Status::Flushed);
        if let Err(errno) = self.pair.break_off() {
            tracing::warn!(%errno, "a queue pair could not be put into error");
        }
    }

    fn fail(&self, state: &mut State, status: Status) {
        state.failure.get_or_insert(status);
        self.failed.store(true, Ordering::Release);
    }

    fn take_completions(&self, state: &mut State) {
        loop {
            let polled = self.pair.sends().poll(|completion| {
                let status = Status::from_raw(completion.status);
                state.over = state.over.max(completion.id + 1);
                if status == Status::Success {
                    state.done = state.done.max(completion.id + 1);
                    return;
                }
                if state.failure.is_none() {
                    state.done = state.done.max(completion.id);
                }
                self.fail(state, status);
            });
            match polled {
                Ok(sys::POLL_BATCH) => {}
                Ok(_) => return,
                Err(errno) => {
                    tracing::error!(%errno, "a completion queue cannot be polled");
                    return self.fail(state, Status::Flushed);
                }
            }
        }
    }
}
