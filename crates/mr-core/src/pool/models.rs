//! Exhaustive models of the parts that threads meet in, under loom: `cargo xtask model`.
//!
//! Every interleaving of a few threads is tried. No time passes, so a lost wake-up is a deadlock,
//! and loom reports it. The whole pool is too much for this; it is model-checked by sampling in
//! `tests/shuttle.rs`.

#![expect(unsafe_code, reason = "a backend is an unsafe trait")]

use super::credit::{Budget, Credit};
use super::depot::Depot;
use super::gate::{Ended, Gate, Turn};
use super::shard::Boxed;
use super::slot::Slot;
use super::wait::Queue;
use crate::clock::Deadline;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, ShortLock};
use crate::{
    Access, BackendError, BatchError, Capabilities, DeallocError, DrawOrder, ErrorKind, KeyTag,
    Keys, MemoryRange, MrBackend, Time,
};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

/// A backend of which no model calls anything.
struct Nothing;

#[derive(Debug, thiserror::Error)]
#[error("nothing")]
struct NoError;

impl BackendError for NoError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unsupported
    }
}

// SAFETY: it never says that a key is dead, since it never says anything.
unsafe impl MrBackend for Nothing {
    type Region = ();
    type Error = NoError;

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(1, 1)
    }

    fn alloc(&self) -> Result<(), NoError> {
        Err(NoError)
    }

    fn map(&self, (): &mut (), _: MemoryRange<'_>, _: Access, _: KeyTag) -> Result<Keys, NoError> {
        Err(NoError)
    }

    fn invalidate(&self, _: &mut [&mut ()]) -> Result<(), BatchError<NoError>> {
        Err(BatchError::all(NoError))
    }

    fn dealloc(&self, region: ()) -> Result<(), DeallocError<(), NoError>> {
        let error = NoError;
        Err(DeallocError { region, error })
    }
}

type TestSlot = Boxed<Nothing, Vec<u8>>;

fn slot(id: u32) -> TestSlot {
    Box::new(Slot::new((), id, KeyTag::new(0)))
}

fn never() -> Deadline {
    Deadline::after(Duration::MAX)
}

/// Stale keys on a list, those that are dead, and the gate before the flush of them.
struct Flushing {
    gate: Gate,
    stale: ShortLock<Vec<usize>>,
    dead: Mutex<[bool; 3]>,
}

impl Flushing {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(Time::ZERO),
            stale: ShortLock::new(Vec::new()),
            dead: Mutex::new([false; 3]),
        })
    }

    /// As `Core::begin` and `Flush::run`: takes what is there after it has started.
    fn try_flush(&self, killed_all: bool) -> bool {
        if !self.gate.enter(true) {
            return false;
        }
        let taken = std::mem::take(&mut *self.stale.lock());
        let mut dead = self.dead.lock();
        for key in taken {
            dead[key] = true;
        }
        drop(dead);
        self.gate.leave(Ended {
            took: None,
            asked_all: true,
            killed_all,
        });
        true
    }

    /// As `Core::flush`.
    fn release_and_flush(&self, key: usize) {
        self.stale.lock().push(key);
        let ticket = self.gate.ticket();
        loop {
            match self.gate.wait(ticket, true, never(), || false) {
                Turn::Done => break,
                Turn::Start => {
                    self.try_flush(true);
                }
                turn => panic!("{turn:?}"),
            }
        }
        assert!(self.dead.lock()[key], "the ticket was honoured too early");
    }
}

/// Two waiters and a flusher: each waiter's key is dead when its call returns, whoever flushed.
#[test]
fn tickets_cover_what_was_released_before_them() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let flushing = Flushing::new();
        let waiters: Vec<_> = (0..2)
            .map(|key| {
                let flushing = Arc::clone(&flushing);
                thread::spawn(move || flushing.release_and_flush(key))
            })
            .collect();
        flushing.try_flush(true);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// A flush that did not kill all it took is no flush to a waiter for all.
#[test]
fn a_failed_flush_covers_nobody() {
    loom::model(|| {
        let flushing = Flushing::new();
        let waiter = {
            let flushing = Arc::clone(&flushing);
            thread::spawn(move || {
                let ticket = flushing.gate.ticket();
                let turn = flushing.gate.wait(ticket, true, never(), || false);
                assert_eq!(turn, Turn::Start);
            })
        };
        flushing.try_flush(false);
        waiter.join().unwrap();
    });
}

/// Two shards whose releases are counted against a mark.
struct Crediting {
    budget: Budget,
    shards: [ShortLock<(Credit, u64)>; 2],
    flush_due: AtomicBool,
}

impl Crediting {
    const MARK: u64 = 3;

    fn new() -> Arc<Self> {
        Arc::new(Self {
            budget: Budget::new(),
            shards: [const { (Credit { keys: 0, bytes: 0 }, 0) }; 2].map(ShortLock::new),
            flush_due: AtomicBool::new(false),
        })
    }

    /// As `Shard::release` and `Core::ask`.
    fn release(&self, shard: usize) {
        let mut mine = self.shards[shard].lock();
        mine.1 += 1;
        if !mine.0.pay(0) {
            self.budget.refill(&mut mine.0);
            if !mine.0.pay(0) {
                drop(mine);
                self.ask();
            }
        }
    }

    fn ask(&self) {
        let look = self.budget.look();
        let mut stale = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.0 = Credit::default();
            stale += shard.1;
        }
        if stale >= Self::MARK {
            self.flush_due.store(true, Ordering::SeqCst);
        } else {
            let credit = Credit {
                keys: Self::MARK - stale - 1,
                bytes: u64::MAX,
            };
            self.budget.grant(&look, credit);
        }
    }
}

/// Whichever release reaches a mark, somebody asks the policy with all of them in view.
#[test]
fn no_mark_is_passed_on_credit() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let crediting = Crediting::new();
        let other = {
            let crediting = Arc::clone(&crediting);
            thread::spawn(move || {
                crediting.release(1);
                crediting.release(1);
            })
        };
        crediting.release(0);
        crediting.release(0);
        other.join().unwrap();
        assert!(crediting.flush_due.load(Ordering::SeqCst));
    });
}

/// A list, and those who wait for what is put on it.
struct Waiting {
    queue: Queue<Nothing, Vec<u8>>,
    list: ShortLock<Vec<TestSlot>>,
}

impl Waiting {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Queue::new(),
            list: ShortLock::new(Vec::new()),
        })
    }

    /// As `Core::give_back` and `Core::serve`.
    fn give(&self, slot: TestSlot) {
        self.list.lock().push(slot);
        self.serve();
    }

    fn serve(&self) {
        while !self.queue.is_empty() {
            let Some(slot) = self.list.lock().pop() else {
                return self.queue.poke();
            };
            if let Some(slot) = self.queue.hand(slot) {
                self.list.lock().push(slot);
            }
        }
    }

    /// As `Core::draw_patiently`.
    fn get(&self) -> TestSlot {
        let waiter = self.queue.join();
        let slot = loop {
            if let Some(slot) = self.list.lock().pop() {
                break slot;
            }
            if let Some(slot) = waiter.sleep(Duration::MAX) {
                break slot;
            }
        };
        if let Some(spare) = self.queue.leave(&waiter) {
            self.give(spare);
        }
        slot
    }
}

/// A region that is put on a list while somebody looks for one is never missed.
#[test]
fn no_wake_up_is_lost_between_a_waiter_and_a_giver() {
    loom::model(|| {
        let waiting = Waiting::new();
        let waiter = {
            let waiting = Arc::clone(&waiting);
            thread::spawn(move || waiting.get().id)
        };
        waiting.give(slot(7));
        assert_eq!(waiter.join().unwrap(), 7);
    });
}

/// Two waiters and two regions: each gets one, and none is lost on the way.
#[test]
fn two_waiters_get_two_regions() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let waiting = Waiting::new();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let waiting = Arc::clone(&waiting);
                thread::spawn(move || waiting.get().id)
            })
            .collect();
        waiting.give(slot(1));
        waiting.give(slot(2));
        let mut got: Vec<_> = waiters.into_iter().map(|w| w.join().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    });
}

/// Magazines that are stored and fetched at the same time: every region is in one place.
#[test]
fn the_depot_neither_loses_nor_doubles_a_region() {
    loom::model(|| {
        let depot = Arc::new(Depot::new(1, DrawOrder::Fifo));
        depot.store(&mut vec![slot(0), slot(1)], Time::ZERO);
        let other = {
            let depot = Arc::clone(&depot);
            thread::spawn(move || fetch(&depot))
        };
        depot.store(&mut vec![slot(2)], Time::ZERO);
        let mut all = fetch(&depot);
        all.extend(other.join().unwrap());
        while depot.regions() > 0 {
            all.extend(fetch(&depot));
        }
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}

fn fetch(depot: &Depot<Nothing, Vec<u8>>) -> Vec<u32> {
    let magazine = depot.fetch();
    let regions = magazine.iter().flat_map(|magazine| &magazine.regions);
    regions.map(|slot| slot.id).collect()
}
