//! A policy or a backend that panics: everyone who waits is told at once, and nothing comes back
//! whose key may be alive.

use crate::scenario::build;
use crate::support::{Buffer, Morgue, Spy};
use mr_core::{
    Access, AtRelease, Driver, FlushError, InvalidationPolicy, LeaseRefusal, Poisoned, PoisonedBy,
    Pool, ReleasedRegion, StillPending,
};
use mr_mock::{Call, Fault, FaultBackend, FaultControl, FaultPlan, MockHca, Preset, When};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// Long enough to tell that a waiter was woken rather than timed out.
const LONG: Duration = Duration::from_secs(60);
const AT_ONCE: Duration = Duration::from_secs(20);

/// Panics when it is told to.
#[derive(Clone, Default)]
struct Bomb(Arc<AtomicBool>);

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bomb")
    }
}

impl InvalidationPolicy for Bomb {
    fn at_release(&self, _: &ReleasedRegion) -> Option<AtRelease> {
        assert!(!self.0.load(Ordering::SeqCst), "as asked for");
        None
    }
}

type BombPool = Arc<Pool<Spy<FaultBackend<MockHca>>, Buffer>>;

fn bomb_pool(plan: FaultPlan, capacity: u32) -> (BombPool, FaultControl, Bomb) {
    let bomb = Bomb::default();
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let faulty = FaultBackend::new(hca, plan);
    let faults = faulty.control();
    let pool = Pool::builder(Spy::new(faulty), bomb.clone())
        .configure(|config| {
            config.capacity = capacity;
            config.lease_timeout = LONG;
            config.flush_timeout = LONG;
        })
        .build()
        .unwrap();
    (Arc::new(pool), faults, bomb)
}

fn buffer() -> Buffer {
    Buffer::new(0, 64, &Morgue::default())
}

#[test]
fn a_lease_that_waits_is_told_at_once() {
    let (pool, _, bomb) = bomb_pool(FaultPlan::none(), 1);
    let held = pool.lease(buffer(), Access::all()).unwrap();
    let started = SystemTime::now();
    let waiter = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || {
            pool.lease(buffer(), Access::all())
                .map(drop)
                .map_err(|e| e.reason)
        })
    };
    while pool.stats().waits == 0 {
        thread::yield_now();
    }
    bomb.0.store(true, Ordering::SeqCst);
    drop(held);
    let refused = waiter.join().unwrap();
    assert!(
        matches!(
            refused,
            Err(LeaseRefusal::Poisoned(Poisoned(PoisonedBy::Policy)))
        ),
        "{refused:?}"
    );
    assert!(started.elapsed().unwrap_or_default() < AT_ONCE);
}

#[test]
fn a_flush_that_waits_is_told_at_once() {
    let hang =
        FaultPlan::none()
            .hang_at_most(LONG * 10)
            .on(Call::Invalidate, When::Nth(1), Fault::Hang);
    let (pool, faults, bomb) = bomb_pool(hang, 4);
    drop(pool.lease(buffer(), Access::all()).unwrap());
    let held = pool.lease(buffer(), Access::all()).unwrap();
    let started = SystemTime::now();
    thread::scope(|scope| {
        let stuck = scope.spawn(|| pool.flush());
        while faults.hanging() == 0 {
            thread::yield_now();
        }
        let waiter = scope.spawn(|| pool.flush());
        thread::yield_now();
        bomb.0.store(true, Ordering::SeqCst);
        drop(held);
        let told = waiter.join().unwrap();
        assert_eq!(
            told,
            Err(FlushError::Poisoned(Poisoned(PoisonedBy::Policy)))
        );
        assert!(started.elapsed().unwrap_or_default() < AT_ONCE);
        faults.release();
        assert!(stuck.join().unwrap().is_err());
    });
    let report = pool.shutdown(Duration::from_secs(5));
    assert_eq!(report.poisoned, Some(Poisoned(PoisonedBy::Policy)));
    assert_eq!((report.stale, report.freed), (1, 3), "{report:?}");
}

/// The flusher panics in the backend with a lease waiting for what it was flushing.
#[test]
fn a_backend_that_panics_in_the_flusher_wakes_everyone() {
    let (world, pool) = build(4, Driver::Thread, |_| {
        FaultPlan::none().on(Call::Invalidate, When::From(1), Fault::Panic)
    });
    let pool = pool.unwrap();
    for _ in 0..3 {
        drop(pool.lease(buffer(), Access::all()).unwrap());
    }
    world.clock.advance(Duration::from_secs(2));
    let started = SystemTime::now();
    let refused = loop {
        match pool.lease_timeout(buffer(), Access::all(), LONG) {
            Ok(lease) => drop(lease),
            Err(error) => break error.reason,
        }
    };
    assert!(
        matches!(
            refused,
            LeaseRefusal::Poisoned(Poisoned(PoisonedBy::Backend))
        ),
        "{refused}"
    );
    assert!(started.elapsed().unwrap_or_default() < AT_ONCE);
    assert!(matches!(pool.flush(), Err(FlushError::Poisoned(_))));
    let report = pool.shutdown(Duration::from_secs(5));
    assert!(!report.is_complete() && !report.flusher_left, "{report:?}");
    assert_eq!(
        report.freed + report.quarantined + report.stale,
        3,
        "{report:?}"
    );
}

/// Stepping a poisoned pool does nothing, rather than putting the same regions back for ever.
#[test]
fn a_poisoned_pool_is_never_due() {
    let (world, pool) = build(4, Driver::Manual, |_| {
        FaultPlan::none().on(Call::Map, When::Nth(2), Fault::Panic)
    });
    let pool = pool.unwrap();
    drop(pool.lease(buffer(), Access::all()).unwrap());
    assert!(pool.lease(buffer(), Access::all()).is_err());
    world.clock.advance(Duration::from_secs(100));
    assert_eq!(pool.step(), None);
}

/// Whoever waits for a buffer is told, too; it gets the buffer if a flush under way still kills the key.
#[test]
fn a_wait_for_a_buffer_is_told_at_once() {
    let hang =
        FaultPlan::none()
            .hang_at_most(LONG * 10)
            .on(Call::Invalidate, When::Nth(1), Fault::Hang);
    let (pool, faults, bomb) = bomb_pool(hang, 4);
    let flushed = pool
        .lease(buffer(), Access::all())
        .unwrap()
        .release_pending();
    let started = SystemTime::now();
    thread::scope(|scope| {
        let flush = scope.spawn(|| pool.flush());
        while faults.hanging() == 0 {
            thread::yield_now();
        }
        let stale = pool
            .lease(buffer(), Access::all())
            .unwrap()
            .release_pending();
        let held = pool.lease(buffer(), Access::all()).unwrap();
        let waiters = [flushed, stale].map(|pending| scope.spawn(|| pending.wait_timeout(LONG)));
        thread::yield_now();
        bomb.0.store(true, Ordering::SeqCst);
        drop(held);
        let told = waiters.map(|waiter| waiter.join().unwrap().unwrap_err());
        assert!(started.elapsed().unwrap_or_default() < AT_ONCE);
        let by_policy = StillPending::Poisoned(Poisoned(PoisonedBy::Policy));
        for error in &told {
            assert_eq!(error.reason, by_policy);
        }
        faults.release();
        assert!(flush.join().unwrap().is_err());
        let [flushed, stale] = told.map(|error| error.pending);
        assert!(flushed.try_take().is_ok(), "its flush has ended well");
        // The pool says so to those as well who come later.
        let error = stale.wait_timeout(LONG).unwrap_err();
        assert_eq!(error.reason, by_policy);
        assert!(error.pending.try_take().is_err());
    });
    assert!(started.elapsed().unwrap_or_default() < AT_ONCE);
}

#[test]
fn a_wait_for_a_buffer_ends_with_its_time() {
    let (_, pool) = build(4, Driver::Manual, |_| FaultPlan::none());
    let pool = pool.unwrap();
    let pending = pool
        .lease(buffer(), Access::all())
        .unwrap()
        .release_pending();
    let short = Duration::from_millis(5);
    let error = pending.wait_timeout(short).unwrap_err();
    assert_eq!(error.reason, StillPending::TimedOut { waited: short });
    pool.flush().unwrap();
    assert!(error.pending.wait_timeout(short).is_ok());
}
