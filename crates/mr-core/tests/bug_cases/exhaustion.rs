//! Everybody waits for everybody (brpc, Open MPI).

use crate::setup::{MR, Setup};
use mr_core::{Access, Driver, LeaseRefusal};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_holder_who_needs_a_second_region_is_refused_in_time() {
    let setup = Setup::new(MR, "use-once", 1);
    let _held = setup.lease();
    let soon = Duration::from_millis(20);
    let refused = setup.pool.lease_timeout(vec![0; 8], Access::all(), soon);
    let error = refused.unwrap_err();
    assert!(error.buffer.is_some());
    assert!(matches!(
        error.reason,
        LeaseRefusal::Exhausted {
            capacity: 1,
            leased: 1,
            stale: 0,
            quarantined: 0
        }
    ));
    let stats = setup.pool.stats();
    assert_eq!((stats.waits, stats.depleted), (1, 1));
}

/// Whoever has waited longest is served first.
#[test]
fn waiters_are_served_in_the_order_in_which_they_came() {
    let setup = Setup::configured(MR, "immediate", |config| {
        config.capacity = 1;
        config.driver = Driver::Thread;
    });
    let mut held = Some(setup.lease());
    let (served, order) = std::sync::mpsc::channel();
    let waiters: Vec<_> = (0..8)
        .map(|number| {
            let (pool, served) = (Arc::clone(&setup.pool), served.clone());
            let waiter = thread::spawn(move || {
                let lease = pool.lease_timeout(vec![0; 8], Access::all(), LONG).unwrap();
                served.send(number).unwrap();
                drop(lease);
            });
            while setup.pool.stats().waits <= number {
                thread::yield_now();
            }
            waiter
        })
        .collect();
    held.take();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
    drop(served);
    assert!(order.iter().is_sorted());
    assert_eq!(setup.pool.stats().depleted, 0);
}

/// More threads than regions, for many rounds: no wake-up is lost, nobody starves.
#[test]
fn no_wake_up_is_lost_between_many_threads_and_few_regions() {
    for policy in ["use-once", "immediate", "threshold=2"] {
        let setup = Setup::configured(MR, policy, |config| {
            config.capacity = 2;
            config.shards = 4;
            config.driver = Driver::Thread;
        });
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let lease = setup.pool.lease_timeout(vec![0; 8], Access::all(), LONG);
                        lease.unwrap().release();
                    }
                });
            }
        });
        assert_eq!(setup.pool.stats().leases, 1800, "{policy}");
    }
}
