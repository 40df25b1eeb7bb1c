//! After `flush` every key released before it is dead, wherever its region was.

use crate::setup::{FMR, NO_TIME, Setup, WINDOW};
use mr_core::{Access, Driver, ErrorKind, FlushError};
use mr_mock::{Call, Fault, FaultPlan, When};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// `ib_flush_fmr_pool` walked the dirty list, and regions below their remap limit are not on it.
#[test]
fn a_flush_reaches_regions_that_could_be_mapped_again() {
    let setup = Setup::new(FMR, "use-n=32", 4);
    let lease = setup.lease();
    let key = lease.remote_key();
    lease.release();
    assert_eq!(setup.pool.stats().regions.reusable, 1);
    setup.pool.flush().unwrap();
    assert!(!setup.is_honoured(key) && !setup.is_stale(key));
}

/// An earlier key of a region that is leased again: on no list at all.
#[test]
fn a_flush_reaches_earlier_keys_of_leased_regions() {
    let setup = Setup::reusing(FMR, "use-n=32");
    let lease = setup.lease();
    let earlier = lease.remote_key();
    lease.release();
    let live = setup.lease();
    assert!(setup.is_stale(earlier));
    setup.pool.flush().unwrap();
    assert!(!setup.is_stale(earlier) && !setup.is_honoured(earlier));
    assert!(setup.is_honoured(live.remote_key()));
}

#[test]
fn a_flush_whose_fence_fails_says_so_although_no_region_is_in_quarantine() {
    let setup = Setup::reusing(FMR, "use-n=32");
    setup.lease().release();
    let _live = setup.lease();
    let fail = FaultPlan::none().on(Call::Invalidate, When::Nth(1), Fault::Fail(ErrorKind::Busy));
    setup.faults.set_plan(fail);
    let kind = ErrorKind::Busy;
    assert_eq!(setup.pool.flush(), Err(FlushError::Fence { kind }));
    assert_eq!(setup.pool.stats().stale.keys, 1);
    // It is tried again without being asked to, when its age is over.
    setup.clock.advance(Duration::from_secs(1));
    setup.pool.step();
    assert_eq!(setup.pool.stats().stale.keys, 0);
}

/// A region is being mapped again while another thread flushes: its old key is on no list, and
/// not superseded yet.
#[test]
fn a_flush_waits_for_regions_that_are_being_mapped_again() {
    for device in [FMR, WINDOW] {
        let setup = Setup::configured(device, "use-n=32", |config| {
            config.capacity = 2;
            config.order = mr_core::DrawOrder::Lifo;
            config.driver = Driver::Thread;
            config.flush_timeout = Duration::from_secs(60);
        });
        let lease = setup.lease();
        let key = lease.remote_key();
        lease.release();
        let hang = FaultPlan::none().on(Call::Map, When::Nth(1), Fault::Hang);
        setup.faults.set_plan(hang);
        thread::scope(|scope| {
            let pool = Arc::clone(&setup.pool);
            let mapping = scope.spawn(move || pool.lease_owned(vec![0; 8], Access::all(), NO_TIME));
            while setup.faults.hanging() == 0 {
                thread::yield_now();
            }
            let flush = scope.spawn(|| setup.pool.flush());
            thread::sleep(Duration::from_millis(20));
            assert!(!flush.is_finished(), "the key is alive");
            setup.faults.release();
            flush.join().unwrap().unwrap();
            assert!(!setup.is_stale(key) && !setup.is_honoured(key));
            drop(mapping.join().unwrap());
        });
    }
}

/// Whoever waits for a flush that is given up must not take it for done.
#[test]
fn a_flush_that_is_given_up_covers_nobody() {
    let setup = Setup::new(FMR, "use-once", 2);
    let lease = setup.lease();
    let key = lease.remote_key();
    lease.release();
    setup.clock.advance(Duration::from_secs(2));
    let due = setup.pool.due();
    let flush = due.flush.unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| setup.pool.flush());
        thread::sleep(Duration::from_millis(10));
        drop(flush);
        waiter.join().unwrap().unwrap();
    });
    assert!(!setup.is_stale(key));
}

/// The peer ends the lease with the latest key; the earlier ones are not its business.
#[test]
fn a_peers_invalidation_does_not_bury_earlier_keys() {
    let device = [FMR, &[("remote_invalidate", "true")]].concat();
    let setup = Setup::reusing(&device, "use-n=32");
    setup.lease().release();
    let lease = setup.lease();
    setup.hca.connect().invalidate(lease.remote_key()).unwrap();
    lease.take_if_peer_invalidated().unwrap();
    let stats = setup.pool.stats();
    assert_eq!(
        (stats.stale.keys, stats.regions.worn, stats.unclaimed),
        (1, 1, 0)
    );
    setup.pool.flush().unwrap();
    assert_eq!(setup.pool.stats().unclaimed, 1);
}

/// A flush of worn regions only must not stand for one of all.
#[test]
fn two_flushes_of_two_threads_cover_what_each_released_before() {
    let setup = Setup::configured(FMR, "use-n=2,threshold=1", |config| {
        config.capacity = 16;
        config.driver = Driver::Thread;
        config.max_age = Duration::from_secs(3600);
    });
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let long = Duration::from_secs(30);
                    let pool = Arc::clone(&setup.pool);
                    let lease = pool.lease_owned(vec![0; 8], Access::all(), long).unwrap();
                    let place = lease.region().unwrap().place;
                    let serial = setup.book.latest(place).serial;
                    lease.release();
                    setup.pool.flush().unwrap();
                    assert!(!setup.book.is_alive(place, serial));
                }
            });
        }
    });
}
