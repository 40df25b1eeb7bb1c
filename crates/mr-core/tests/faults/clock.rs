//! A clock that panics: in the flusher everyone is told, and in no place does it abort the process or
//! bring memory back whose key may be alive.

use crate::support::{Buffer, Morgue, Spy};
use mr_core::{
    Access, Clock, Driver, FlushError, LeaseRefusal, Poisoned, PoisonedBy, Pool, PoolConfig, Time,
};
use mr_mock::{MockHca, Preset};
use mr_policies::Policy;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

const LONG: Duration = Duration::from_secs(60);
const AT_ONCE: Duration = Duration::from_secs(20);
const CAPACITY: u32 = 3;

/// Goes on by a millisecond with every reading, and panics at those from number `bad` to `good`.
struct Broken {
    readings: AtomicU64,
    bad: AtomicU64,
    good: u64,
    /// Only there.
    thread: Option<&'static str>,
}

impl Broken {
    fn new(bad: u64, good: u64, thread: Option<&'static str>) -> Arc<Self> {
        Arc::new(Self {
            readings: AtomicU64::new(0),
            bad: AtomicU64::new(bad),
            good,
            thread,
        })
    }
}

impl Clock for Broken {
    fn now(&self) -> Time {
        let number = self.readings.fetch_add(1, Ordering::SeqCst);
        let here = self.thread.is_none() || thread::current().name() == self.thread;
        let broken = (self.bad.load(Ordering::SeqCst)..self.good).contains(&number);
        assert!(!(here && broken), "as asked for");
        Time::from_nanos(number * 1_000_000)
    }
}

type TestPool = Pool<Spy<MockHca>, Buffer>;

fn build(clock: &Arc<Broken>, configure: impl FnOnce(&mut PoolConfig)) -> TestPool {
    let preset = Preset::named("connectx-2008").unwrap();
    let policy: Policy = "use-n=2,threshold=2".parse().unwrap();
    let builder = Pool::builder(Spy::new(MockHca::new(&preset)), policy);
    let builder = builder
        .clock(Arc::clone(clock))
        .seed(1)
        .configure(|config| {
            config.capacity = CAPACITY;
            config.shards = 1;
            configure(config);
        });
    builder.build().unwrap()
}

/// The thread died, and whoever waited for what it was to do waited on.
#[test]
fn a_flusher_whose_clock_panics_wakes_everyone_and_ends_the_pool() {
    let clock = Broken::new(u64::MAX, u64::MAX, Some("mr-flusher"));
    let pool = build(&clock, |config| {
        config.lease_timeout = LONG;
        config.flush_timeout = LONG;
        config.max_age = LONG * 1000;
    });
    let morgue = Morgue::default();
    let buffer = || Buffer::new(0, 64, &morgue);
    let mut held: Vec<_> = (0..CAPACITY)
        .map(|_| pool.lease(buffer(), Access::all()).unwrap())
        .collect();
    let started = SystemTime::now();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.lease(buffer(), Access::all()).map(drop));
        while pool.stats().waits == 0 {
            thread::yield_now();
        }
        clock.bad.store(0, Ordering::SeqCst);
        // The end of a flush has the flusher look what is due.
        let flushed = pool.flush();
        let by_clock = Poisoned(PoisonedBy::Clock);
        assert!(flushed.is_ok() || flushed == Err(FlushError::Poisoned(by_clock)));
        let refused = waiter.join().unwrap().unwrap_err().reason;
        assert!(
            matches!(refused, LeaseRefusal::Poisoned(by) if by == by_clock),
            "{refused}"
        );
    });
    held.truncate(1);
    assert!(started.elapsed().unwrap_or_default() < AT_ONCE);
    held.clear();
    let report = pool.shutdown(AT_ONCE);
    assert!(!report.flusher_left, "{report:?}");
    assert_eq!((report.leased, report.stale), (0, CAPACITY), "{report:?}");
    assert_eq!(report.poisoned, Some(Poisoned(PoisonedBy::Clock)));
    assert!(started.elapsed().unwrap_or_default() < AT_ONCE);
}

/// What is clean is freed, although the flusher's clock has panicked before.
#[test]
fn a_flusher_whose_clock_has_panicked_frees_what_is_clean() {
    let clock = Broken::new(u64::MAX, u64::MAX, Some("mr-flusher"));
    let pool = build(&clock, |config| config.max_age = LONG * 1000);
    clock.bad.store(0, Ordering::SeqCst);
    let _ = pool.flush();
    while pool
        .try_lease(Buffer::new(0, 64, &Morgue::default()), Access::all())
        .is_ok()
    {
        thread::yield_now();
    }
    let report = pool.shutdown(AT_ONCE);
    assert!(!report.flusher_left && report.not_freed == 0, "{report:?}");
    assert_eq!(report.freed + report.stale, CAPACITY, "{report:?}");
}

/// One reading after the other panics, alone or with all that follow, in a life in one thread. A panic
/// while another is on its way would abort the process.
#[test]
fn whichever_reading_panics_no_memory_comes_back_too_early() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut panicked = 0;
    for bad in 1..60 {
        for good in [bad + 1, u64::MAX] {
            panicked += live(&Broken::new(bad, good, None));
        }
    }
    std::panic::set_hook(hook);
    assert!(
        panicked > 20,
        "{panicked} readings: the life reads it too seldom"
    );
}

/// How many of its calls panicked.
fn live(clock: &Arc<Broken>) -> u32 {
    let pool = build(clock, |config| {
        config.driver = Driver::Manual;
        config.lease_timeout = Duration::ZERO;
    });
    let book = pool.backend().book();
    let morgue = Morgue::default();
    let mut panicked = 0;
    let mut given = Vec::new();
    let mut call = |call: &mut dyn FnMut()| {
        panicked += u32::from(catch_unwind(AssertUnwindSafe(call)).is_err());
    };
    for round in 0..6 {
        call(&mut || {
            let name = given.len() as u64;
            let Ok(lease) = pool.lease(Buffer::new(name, 64, &morgue), Access::all()) else {
                return morgue.take().clear();
            };
            let place = lease.region().unwrap().place;
            given.push((place, book.latest(place).serial));
            match round % 3 {
                0 => lease.release(),
                1 => drop(lease.invalidate()),
                _ => drop(lease),
            }
        });
        call(&mut || {
            pool.step();
        });
        call(&mut || drop(pool.flush()));
        call(&mut || {
            pool.reclaim(&mut Vec::new(), 10);
        });
        for name in morgue.take() {
            let (place, serial) = given[name as usize];
            assert!(!book.is_alive(place, serial), "{name} came back too early");
        }
    }
    let started = SystemTime::now();
    let report = pool.shutdown(Duration::from_millis(1));
    assert!(started.elapsed().unwrap_or_default() < AT_ONCE);
    let named = report.freed + report.leased + report.quarantined + report.stale + report.not_freed;
    // A region that was in nobody's hands but the panicking call's is leased for ever.
    assert_eq!(named + report.in_flush, CAPACITY, "{report:?}");
    panicked
}
