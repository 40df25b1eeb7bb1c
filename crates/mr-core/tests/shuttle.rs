//! The whole pool over the mock HCA under a model checker: thousands of schedules per scenario,
//! drawn at random and by priorities. `cargo xtask model` runs it; `SHUTTLE_RUNS` says how often.
//!
//! No time passes here, so a wake-up that is lost is a deadlock, and shuttle reports it with the
//! schedule that led there.
#![cfg(model)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

#[path = "../../mr-policies/tests/support/mod.rs"]
mod support;

use mr_core::{
    Access, DrawOrder, Driver, ErrorKind, ManualClock, MrBackend, OwnedLease, Pool, PoolConfig,
};
use mr_mock::{Call, Fault, FaultBackend, FaultPlan, MockHca, Preset, When};
use mr_policies::Policy;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, Runner};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use support::{Book, Spy};

type Backend = Spy<FaultBackend<MockHca>>;
type TestPool = Arc<Pool<Backend>>;

const FMR: &[(&str, &str)] = &[("fence", "global"), ("remap", "leaves-previous")];
const WINDOW: &[(&str, &str)] = &[("fence", "per-key"), ("remap", "kills-previous")];
const MR: &[(&str, &str)] = &[("fence", "per-key"), ("remap", "impossible")];
/// In a model: for ever.
const LONG: Duration = Duration::from_secs(1);

fn number<N: FromStr>(variable: &str) -> Option<N> {
    std::env::var(variable).ok()?.parse().ok()
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let runs = number("SHUTTLE_RUNS").unwrap_or(1000);
    let seed = number("SHUTTLE_SEED").unwrap_or(1);
    println!("seed {seed}");
    let scenario = Arc::new(scenario);
    let random = Arc::clone(&scenario);
    let scheduler = RandomScheduler::new_from_seed(seed, runs);
    Runner::new(scheduler, Config::default()).run(move || random());
    let scheduler = PctScheduler::new_from_seed(seed, 3, runs);
    Runner::new(scheduler, Config::default()).run(move || scenario());
}

fn build(
    device: &[(&str, &str)],
    policy: &str,
    plan: FaultPlan,
    configure: impl FnOnce(&mut PoolConfig),
) -> (TestPool, Book) {
    let preset = Preset::named("connectx-2008")
        .unwrap()
        .with(device)
        .unwrap();
    let spy = Spy::new(FaultBackend::new(MockHca::new(&preset), plan));
    let book = spy.book();
    let policy: Policy = policy.parse().unwrap();
    let pool = Pool::builder(spy, policy)
        .clock(ManualClock::new())
        .seed(3)
        .configure(|config| {
            config.capacity = 2;
            config.shards = 2;
            config.max_unclaimed = Some(16);
            // With the one, a region is mapped again soon; with the other, its shard settles it.
            config.order = if thread_rng().gen_bool(0.5) {
                DrawOrder::Lifo
            } else {
                DrawOrder::Random
            };
            config.driver = Driver::Manual;
            config.lease_timeout = LONG;
            config.flush_timeout = LONG;
            configure(config);
        })
        .build()
        .unwrap();
    (Arc::new(pool), book)
}

fn lease(pool: &TestPool) -> OwnedLease<Backend, Vec<u8>> {
    let leased = Arc::clone(pool).lease_owned(vec![0; 8], Access::all(), LONG);
    leased.map_err(|error| error.reason).unwrap()
}

fn spawn_all(threads: usize, work: impl Fn(usize) + Send + Sync + 'static) -> Vec<JoinHandle<()>> {
    let work = Arc::new(work);
    (0..threads)
        .map(|number| {
            let work = Arc::clone(&work);
            thread::spawn(move || work(number))
        })
        .collect()
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Everything is at rest: the gauges must say so.
fn check_rest(pool: &TestPool, book: &Book) {
    let stats = pool.stats();
    assert_eq!(stats.regions.total(), 2, "{:?}", stats.regions);
    assert_eq!((stats.leased.keys, stats.leased.bytes), (0, 0));
    assert!(
        stats.stale.keys >= book.all().len() as u64,
        "{:?}",
        stats.stale
    );
}

/// More threads than regions: each gets one in the end, whoever flushes, and no wake-up is lost.
#[test]
fn waiters_are_always_served() {
    for (device, policy) in [
        (FMR, "use-once"),
        (FMR, "use-n=2"),
        (MR, "immediate"),
        (WINDOW, "use-n=2"),
    ] {
        explore(move || {
            let (pool, book) = build(device, policy, FaultPlan::none(), |config| {
                config.capacity = 2
            });
            let user = Arc::clone(&pool);
            join_all(spawn_all(4, move |_| {
                lease(&user).release();
                lease(&user).release();
            }));
            check_rest(&pool, &book);
            assert_eq!(pool.stats().leases, 8);
            assert_eq!(pool.stats().depleted, 0);
        });
    }
}

/// Two wait, and the one that is served keeps its region: it is not the only one who may know what can be flushed.
#[test]
fn a_waiter_that_keeps_its_region_passes_on_what_it_was_told() {
    for (device, policy) in [(FMR, "use-once"), (MR, "use-once"), (WINDOW, "use-n=2")] {
        explore(move || {
            let (pool, book) = build(device, policy, FaultPlan::none(), |_| {});
            let (released, killed) = (lease(&pool), lease(&pool));
            let waiter = || {
                let pool = Arc::clone(&pool);
                thread::spawn(move || lease(&pool))
            };
            let waiters = [waiter(), waiter()];
            // The one leaves something to flush, the other a clean region: whoever takes that one may have been
            // told of the first.
            let ends = vec![
                thread::spawn(move || released.release()),
                thread::spawn(move || drop(killed.invalidate().unwrap())),
            ];
            let kept = waiters.map(|waiter| waiter.join().unwrap());
            join_all(ends);
            kept.into_iter().for_each(OwnedLease::release);
            pool.flush().unwrap();
            check_rest(&pool, &book);
        });
    }
}

/// Whoever reclaims finds every buffer whose key a flush has killed, wherever its region is by then.
#[test]
fn what_a_flush_has_killed_is_reclaimed() {
    explore(|| {
        let (pool, book) = build(FMR, "use-once", FaultPlan::none(), |_| {});
        let flushed = Arc::new(AtomicUsize::new(0));
        let (user, done) = (Arc::clone(&pool), Arc::clone(&flushed));
        // One more than there are shards.
        let threads = spawn_all(3, move |_| {
            for _ in 0..2 {
                lease(&user).release();
                user.flush().unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut back = Vec::new();
        for _ in 0..3 {
            let least = flushed.load(Ordering::SeqCst);
            pool.reclaim(&mut back, usize::MAX);
            assert!(back.len() >= least, "{} of {least}", back.len());
            thread::yield_now();
        }
        join_all(threads);
        pool.reclaim(&mut back, usize::MAX);
        assert_eq!(back.len(), 6);
        check_rest(&pool, &book);
        assert_eq!(pool.stats().unclaimed, 0);
    });
}

/// I2: after `flush` returns, what was released before it is dead, whoever has it in hand.
#[test]
fn a_flush_covers_what_was_released_before_it() {
    for (device, policy) in [(FMR, "use-once"), (FMR, "use-n=3"), (WINDOW, "use-n=3")] {
        explore(move || {
            let (pool, book) = build(device, policy, FaultPlan::none(), |_| {});
            let (user, spied) = (Arc::clone(&pool), book.clone());
            join_all(spawn_all(3, move |number| {
                let lease = lease(&user);
                let place = lease.region().unwrap().place;
                let serial = spied.latest(place).serial;
                lease.release();
                if number > 0 {
                    user.flush().unwrap();
                    assert!(!spied.is_alive(place, serial), "alive after a flush");
                }
            }));
            check_rest(&pool, &book);
            pool.flush().unwrap();
            assert_eq!(pool.stats().stale.keys, 0);
            assert_eq!(book.all().len(), 0);
        });
    }
}

/// Of a region that is leased again an earlier key is in no flush's hands; when it comes home while a flush looks
/// at the lists, that flush must not miss it.
#[test]
fn a_flush_covers_a_key_whose_region_comes_home_meanwhile() {
    explore(|| {
        let (pool, book) = build(FMR, "use-n=9", FaultPlan::none(), |config| {
            config.capacity = 1;
        });
        let (user, spied) = (Arc::clone(&pool), book.clone());
        join_all(spawn_all(3, move |number| {
            for _ in 0..2 {
                let lease = lease(&user);
                let place = lease.region().unwrap().place;
                let serial = spied.latest(place).serial;
                lease.release();
                if number == 0 {
                    user.flush().unwrap();
                    assert!(!spied.is_alive(place, serial), "alive after a flush");
                }
            }
        }));
        pool.flush().unwrap();
        assert_eq!(book.all().len(), 0);
    });
}

/// The same for invalidations, of which several share a fence.
#[test]
fn an_invalidation_returns_the_buffer_of_a_dead_key() {
    for (device, policy) in [(FMR, "use-n=3"), (MR, "use-once")] {
        explore(move || {
            let (pool, book) = build(device, policy, FaultPlan::none(), |_| {});
            let (user, spied) = (Arc::clone(&pool), book.clone());
            join_all(spawn_all(3, move |number| {
                let lease = lease(&user);
                let place = lease.region().unwrap().place;
                let serial = spied.latest(place).serial;
                if number == 0 {
                    return lease.release();
                }
                lease.invalidate().unwrap();
                assert!(
                    !spied.is_alive(place, serial),
                    "alive after an invalidation"
                );
            }));
            check_rest(&pool, &book);
        });
    }
}

/// Shutdown against lease, release and flush, with the flusher thread.
#[test]
fn a_shutdown_ends_and_leaves_nothing() {
    for (device, policy) in [
        (FMR, "use-once"),
        (FMR, "use-n=2,threshold=1"),
        (MR, "immediate"),
    ] {
        explore(move || {
            let (pool, book) = build(device, policy, FaultPlan::none(), |config| {
                config.driver = Driver::Thread;
            });
            let user = Arc::clone(&pool);
            let users = spawn_all(2, move |number| {
                let leased = Arc::clone(&user).lease_owned(vec![0; 8], Access::all(), LONG);
                if let Ok(lease) = leased {
                    lease.release();
                }
                if number == 0 {
                    let _ = user.flush();
                }
            });
            pool.shutdown(LONG);
            join_all(users);
            let report = pool.shutdown(LONG);
            assert!(report.is_complete(), "{report:?}");
            assert_eq!(report.freed, 2);
            assert_eq!(book.all().len(), 0);
        });
    }
}

/// With faults: nothing is lost from the books, and nobody hangs.
#[test]
fn faults_lose_nothing() {
    for (device, policy) in [(FMR, "use-n=2"), (MR, "immediate"), (WINDOW, "use-n=2")] {
        explore(move || {
            let plan = FaultPlan::none()
                .on(Call::Map, When::Nth(2), Fault::HalfDone(ErrorKind::Io))
                .on(
                    Call::Invalidate,
                    When::Nth(1),
                    Fault::LostAnswer(ErrorKind::Io),
                );
            let (pool, book) = build(device, policy, plan, |config| config.capacity = 2);
            let user = Arc::clone(&pool);
            join_all(spawn_all(3, move |number| {
                let zero = Duration::ZERO;
                let leased = Arc::clone(&user).lease_owned(vec![0; 8], Access::all(), zero);
                if let Ok(lease) = leased {
                    lease.release();
                }
                if number == 1 {
                    let _ = user.flush();
                }
            }));
            check_rest(&pool, &book);
            while pool.flush().is_err() {}
            assert_eq!(pool.stats().regions.clean, 2, "{:?}", pool.stats().regions);
            assert_eq!(pool.stats().stale.keys, 0);
        });
    }
}

/// A panic while others wait: each is told.
#[test]
fn a_panic_wakes_everyone() {
    explore(|| {
        let plan = FaultPlan::none().on(Call::Map, When::Nth(2), Fault::Panic);
        let (pool, _) = build(MR, "use-once", plan, |config| config.capacity = 1);
        let user = Arc::clone(&pool);
        join_all(spawn_all(3, move |number| {
            let leased = Arc::clone(&user).lease_owned(vec![0; 8], Access::all(), LONG);
            match leased {
                Ok(lease) if number == 0 => drop(lease.release_pending().wait_timeout(LONG)),
                leased => drop(leased),
            }
        }));
        assert!(pool.lease(vec![0; 8], Access::all()).is_err());
        assert!(pool.backend().capabilities().max_regions > 0);
    });
}
