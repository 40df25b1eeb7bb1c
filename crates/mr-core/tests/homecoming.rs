//! What a flush gives back to whoever released it, and what others see of it until that settles it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

#[path = "bug_cases/setup.rs"]
mod setup;
#[path = "../../mr-policies/tests/support/mod.rs"]
mod support;

use mr_core::{Access, Clock, DrawOrder, PoolConfig};
use setup::{FMR, Setup};
use std::thread;
use std::time::Duration;

fn setup(configure: impl FnOnce(&mut PoolConfig)) -> Setup {
    Setup::configured(FMR, "use-once", |config| {
        config.capacity = 200;
        config.shards = 4;
        configure(config);
    })
}

/// Leases and releases `count` buffers of `len` bytes.
fn churn(setup: &Setup, count: usize, len: usize) {
    let lease = |_| setup.pool.lease(vec![0; len], Access::all()).unwrap();
    let leases: Vec<_> = (0..count).map(lease).collect();
    leases.into_iter().for_each(|lease| lease.release());
}

fn churn_elsewhere(setup: &Setup, count: usize, len: usize) {
    thread::scope(|scope| {
        scope.spawn(|| churn(setup, count, len));
    });
}

/// A thread releases, and never comes back to settle what it gets back.
#[test]
fn regions_and_buffers_of_a_thread_that_is_gone_are_found() {
    let setup = setup(|_| {});
    churn_elsewhere(&setup, 200, 8);
    setup.pool.flush().unwrap();
    assert_eq!(setup.pool.stats().regions.clean, 200);
    churn(&setup, 200, 16);
    setup.pool.flush().unwrap();
    let mut back = Vec::new();
    assert_eq!(
        setup.pool.reclaim(&mut back, 400),
        200,
        "the rest was dropped"
    );
    let stats = setup.pool.stats();
    assert_eq!((stats.regions.clean, stats.unclaimed), (200, 0));
    assert_eq!(stats.unclaimed_dropped, 200);
}

/// Nobody has settled anything, and still the exposure of every key is in the statistics.
#[test]
fn the_exposure_of_dead_keys_is_counted_before_they_are_settled() {
    let setup = setup(|_| {});
    churn_elsewhere(&setup, 30, 8);
    churn(&setup, 20, 8);
    setup.clock.advance(Duration::from_millis(2));
    setup.pool.flush().unwrap();
    setup.clock.advance(Duration::from_millis(5));
    let exposure = setup.pool.stats().exposure;
    assert_eq!(exposure.ended.count(), 50);
    assert_eq!(exposure.longest, Duration::from_millis(2));
    assert!((exposure.key_seconds - 0.1).abs() < 1e-9, "{exposure:?}");
    assert_eq!(exposure.oldest, None);
}

#[test]
fn own_buffers_come_first_and_in_the_order_of_their_flushes() {
    for order in [DrawOrder::Random, DrawOrder::Fifo] {
        let setup = setup(|config| config.order = order);
        for len in 1..=3 {
            churn(&setup, 10, len);
            if len == 2 {
                // A lot with a buffer that somebody waits for is settled by the flush.
                let _ = setup.lease().release_pending();
            }
            setup.pool.flush().unwrap();
        }
        let mut back: Vec<Vec<u8>> = Vec::new();
        for most in [4, 0, 15, 100] {
            setup.pool.reclaim(&mut back, most);
        }
        let lens: Vec<_> = back.iter().map(Vec::len).collect();
        assert_eq!(lens, [[1; 10], [2; 10], [3; 10]].concat());
    }
    let setup = setup(|_| {});
    churn_elsewhere(&setup, 10, 1);
    churn(&setup, 10, 2);
    setup.pool.flush().unwrap();
    let mut back = Vec::new();
    assert_eq!(setup.pool.reclaim(&mut back, 12), 12);
    let lens: Vec<_> = back.iter().map(Vec::len).collect();
    assert_eq!(lens, [vec![2; 10], vec![1; 2]].concat());
}

/// What finds no room among the unclaimed is dropped at the flush, not when somebody settles it.
#[test]
fn the_bound_on_unclaimed_buffers_holds_across_shards() {
    let setup = setup(|config| config.max_unclaimed = Some(25));
    for _ in 0..3 {
        churn_elsewhere(&setup, 20, 8);
        churn(&setup, 20, 8);
        setup.pool.flush().unwrap();
    }
    let stats = setup.pool.stats();
    assert_eq!((stats.unclaimed, stats.unclaimed_dropped), (25, 95));
    let mut back = Vec::new();
    assert_eq!(setup.pool.reclaim(&mut back, usize::MAX), 25);
}

/// A flush that a caller runs leaves nothing to do, so it makes nothing due.
#[test]
fn the_end_of_a_flush_does_not_wake_the_driver() {
    let setup = setup(|_| {});
    churn(&setup, 5, 8);
    let due = setup.pool.next_due().unwrap();
    assert!(due > Clock::now(&setup.clock), "nothing is due yet");
    setup.pool.flush().unwrap();
    assert_eq!(setup.pool.next_due(), Some(due));
}
