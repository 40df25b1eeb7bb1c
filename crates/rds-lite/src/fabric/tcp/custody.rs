//! Who reads from a connection: its thread, or an application's thread that has nothing else to do.
//!
//! Whoever has the [`Reader`] reads. The connection's thread has it at first. An application that waits
//! asks for it, and the next time that something has arrived the thread lends it, and sleeps. From
//! then on an application that waits reads its messages itself: nobody has to be woken to hand them
//! over. It gives the reader back when it has what it waited for; the thread takes it when it is told
//! that somebody else waits, or after [`GRACE`].

use super::reader::Reader;
use crate::fabric::Bell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long nobody reads, about, before the thread does again: half of what a message may be late for
/// a program that looks for messages without waiting for them.
const GRACE: Duration = Duration::from_millis(1);

/// The reader of one connection while nobody reads, and who wants it.
#[derive(Default)]
pub(super) struct Custody {
    state: Mutex<State>,
    changed: Condvar,
    /// There is somebody in `State::wanted`.
    wanted: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The thread has lent it; it is here unless an application has borrowed it.
    lent: bool,
    reader: Option<Box<Reader>>,
    /// How often an application has had it.
    loans: u64,
    /// Wakes the application that would rather read itself.
    wanted: Option<Arc<Bell>>,
    /// The thread shall have it back.
    recalled: bool,
    /// The thread sleeps until it is woken.
    asleep: bool,
    /// Nobody reads any more.
    over: bool,
}

/// What an application gets that asks for the reader.
pub(super) enum Loan {
    /// It reads now.
    Reader(Box<Reader>),
    /// The thread reads. The bell rings when it no longer does.
    Later,
    /// The connection has ended.
    Over,
}

impl Custody {
    /// Lends the reader to an application if one has asked for it, until nobody uses it any more. `None`
    /// if the connection has ended meanwhile.
    pub(super) fn lend(&self, reader: Box<Reader>) -> Option<Box<Reader>> {
        if !self.wanted.load(Ordering::Relaxed) {
            return Some(reader);
        }
        let mut state = self.lock();
        let Some(bell) = state.wanted.take() else {
            return Some(reader);
        };
        self.wanted.store(false, Ordering::Relaxed);
        state.lent = true;
        state.reader = Some(reader);
        bell.ring();
        self.until_unused(state)
    }

    fn until_unused(&self, mut state: MutexGuard<'_, State>) -> Option<Box<Reader>> {
        let mut loans = state.loans;
        let mut timed_out = false;
        while !state.over {
            let unused = timed_out && state.loans == loans;
            if (state.recalled || unused)
                && let Some(reader) = state.reader.take()
            {
                state.recalled = false;
                state.lent = false;
                return Some(reader);
            }
            loans = state.loans;
            if unused {
                // An application has had it all the time, and waits: there is nothing to look after
                // until it stops.
                state.asleep = true;
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                state.asleep = false;
                timed_out = false;
            } else {
                let woken = self.changed.wait_timeout(state, GRACE);
                let waited;
                (state, waited) = woken.unwrap_or_else(PoisonError::into_inner);
                timed_out = waited.timed_out();
            }
        }
        None
    }

    /// The reader, for an application that waits; else it is lent as soon as may be.
    pub(super) fn borrow(&self, bell: &Arc<Bell>) -> Loan {
        let mut state = self.lock();
        if state.over {
            return Loan::Over;
        }
        if !state.recalled
            && let Some(reader) = state.reader.take()
        {
            state.loans += 1;
            return Loan::Reader(reader);
        }
        if state.wanted.is_none() {
            state.wanted = Some(Arc::clone(bell));
            self.wanted.store(true, Ordering::Relaxed);
        }
        Loan::Later
    }

    /// Takes the reader back from an application.
    pub(super) fn give_back(&self, reader: Box<Reader>) {
        let mut state = self.lock();
        state.reader = Some(reader);
        let told = state.asleep || state.recalled;
        drop(state);
        if told {
            self.changed.notify_all();
        }
    }

    /// Makes the thread read as soon as no application does.
    pub(super) fn recall(&self) {
        let mut state = self.lock();
        state.wanted = None;
        self.wanted.store(false, Ordering::Relaxed);
        state.recalled = state.lent;
        let told = state.recalled && state.reader.is_some();
        drop(state);
        if told {
            self.changed.notify_all();
        }
    }

    /// Nobody shall read any more.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.over = true;
        let asked = state.wanted.take();
        drop(state);
        self.changed.notify_all();
        if let Some(bell) = asked {
            bell.ring();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn reader() -> Box<Reader> {
        Box::new(Reader::new())
    }

    /// An application that has borrowed the reader of a thread. Says whether the thread got it back.
    ///
    /// The thread takes back what nobody borrows at once, which a machine that is busy may be too slow for: then
    /// another one lends.
    fn lent<T>(application: impl Fn(&Custody, &Arc<Bell>, Box<Reader>) -> T) -> (T, bool) {
        loop {
            let custody = Custody::default();
            let bell = Arc::new(Bell::new().unwrap());
            assert!(matches!(custody.borrow(&bell), Loan::Later));
            let outcome = thread::scope(|scope| {
                let back = scope.spawn(|| custody.lend(reader()).is_some());
                loop {
                    if let Loan::Reader(reader) = custody.borrow(&bell) {
                        let done = application(&custody, &bell, reader);
                        return Some((done, back.join().unwrap()));
                    }
                    if back.is_finished() {
                        return None;
                    }
                    thread::yield_now();
                }
            });
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// Until the thread sleeps for as long as it takes.
    fn await_sleep(custody: &Custody) {
        while !custody.lock().asleep {
            thread::yield_now();
        }
    }

    #[test]
    fn nothing_is_lent_that_nobody_wants() {
        let custody = Custody::default();
        assert!(custody.lend(reader()).is_some());
        let bell = Arc::new(Bell::new().unwrap());
        assert!(matches!(custody.borrow(&bell), Loan::Later));
        custody.recall();
        assert!(custody.lend(reader()).is_some(), "recalled");
    }

    #[test]
    fn a_reader_that_nobody_uses_goes_back_to_its_thread() {
        let custody = Custody::default();
        let bell = Arc::new(Bell::new().unwrap());
        assert!(matches!(custody.borrow(&bell), Loan::Later));
        assert!(custody.lend(reader()).is_some());
        let ((), back) = lent(|custody, _, reader| {
            await_sleep(custody);
            custody.give_back(reader);
        });
        assert!(back);
    }

    #[test]
    fn a_recall_counts_as_soon_as_the_reader_is_free() {
        let ((), back) = lent(|custody, bell, reader| {
            await_sleep(custody);
            custody.recall();
            custody.give_back(reader);
            assert!(
                matches!(custody.borrow(bell), Loan::Later),
                "nobody comes first"
            );
        });
        assert!(back);
    }

    #[test]
    fn the_end_wakes_thread_and_application() {
        let (over, back) = lent(|custody, bell, _reader| {
            custody.end();
            matches!(custody.borrow(bell), Loan::Over)
        });
        assert!(over && !back);
    }
}
