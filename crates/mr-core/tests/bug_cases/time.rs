//! Time that passes otherwise than expected.

use crate::setup::{FMR, Setup};
use mr_core::{Clock, Time};
use mr_mock::{Call, Fault, FaultPlan, When};
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(100);

fn periodic() -> Setup {
    Setup::new(FMR, "use-once,periodic=100ms", 64)
}

/// One release every 10 ms, and the step exactly when it is due: after `n` periods `n` flushes, at
/// the beat of the first.
#[test]
fn a_steady_load_is_flushed_once_a_period_without_drift() {
    let setup = periodic();
    let mut flushed = Vec::new();
    for _ in 0..1000 {
        setup.lease().release();
        let until = setup.clock.now() + Duration::from_millis(10);
        while let Some(at) = setup.pool.next_due().filter(|at| *at <= until) {
            setup.clock.advance_to(at);
            let before = setup.pool.stats().flushes;
            setup.pool.step();
            if setup.pool.stats().flushes > before {
                flushed.push(at);
            }
        }
        setup.clock.advance_to(until);
    }
    let (first, last) = (flushed[0], flushed[flushed.len() - 1]);
    let periods = last.since(first).as_nanos() / PERIOD.as_nanos();
    assert_eq!(periods as usize, flushed.len() - 1, "one a period");
    assert_eq!(
        last.since(first).as_nanos() % PERIOD.as_nanos(),
        0,
        "no drift"
    );
    assert!(setup.pool.stats().exposure.longest <= PERIOD);
}

/// A process that was suspended for an hour catches up with one flush, not with 36,000.
#[test]
fn missed_periods_are_not_made_up_for() {
    let setup = periodic();
    setup.lease().release();
    setup.clock.advance(Duration::from_secs(3600));
    let next = setup.pool.step();
    let stats = setup.pool.stats();
    assert_eq!((stats.flushes, stats.stale.keys), (1, 0));
    assert_eq!(next, None, "nothing is stale");
    assert_eq!(
        stats.exposure.longest,
        Duration::from_secs(3600),
        "reported"
    );
    setup.lease().release();
    setup.clock.advance(Duration::from_millis(50));
    setup.pool.step();
    assert_eq!(
        setup.pool.stats().flushes,
        1,
        "the next period has just begun"
    );
}

/// Each flush takes two and a half periods: they follow one another, one at a time, and no sooner
/// than a period after the last began.
#[test]
fn a_flush_longer_than_its_period_is_followed_by_one_not_by_three() {
    let setup = periodic();
    let clock = std::sync::Arc::clone(&setup.clock);
    let slow = FaultPlan::none()
        .delay_by(move |time| clock.advance(time))
        .on(
            Call::Invalidate,
            When::From(1),
            Fault::Delay(PERIOD * 5 / 2),
        );
    setup.faults.set_plan(slow);
    let start = setup.clock.now();
    for _ in 0..20 {
        setup.lease().release();
        if let Some(at) = setup.pool.next_due() {
            setup.clock.advance_to(at);
        }
        setup.pool.step();
    }
    let stats = setup.pool.stats();
    let took = setup.clock.now().since(start);
    assert!(u128::from(stats.flushes) <= took.as_nanos() / (PERIOD * 5 / 2).as_nanos() + 1);
    let bound = PERIOD + PERIOD * 5 / 2;
    assert!(
        stats.exposure.longest <= bound,
        "bound and one flush: {:?}",
        stats.exposure.longest
    );
}

/// A clock that stands still: nothing is ever due by time, nothing spins, and bounds by count hold.
#[test]
fn a_clock_that_does_not_advance_makes_nothing_spin() {
    let setup = Setup::new(FMR, "use-once,periodic=100ms,threshold=8", 16);
    for _ in 0..1000 {
        setup.lease().release();
        setup.pool.step();
        assert!(setup.pool.stats().stale.keys <= 16);
    }
    let stats = setup.pool.stats();
    assert_eq!(stats.flushes, 1000 / 8);
    assert_eq!(stats.exposure.longest, Duration::ZERO);
}

/// The end of time: a clock that stands at its last nanosecond.
#[test]
fn the_end_of_time_breaks_nothing() {
    let setup = periodic();
    setup.clock.advance_to(Time::from_nanos(u64::MAX - 5));
    for _ in 0..10 {
        setup.lease().release();
        setup.clock.advance(Duration::from_nanos(1));
        setup.pool.step();
    }
    setup.pool.flush().unwrap();
    assert!(setup.pool.shutdown(Duration::from_secs(5)).is_complete());
}

/// What a shard may release without asking was reckoned from marks that a later answer has made
/// nearer: then a key waited for `max_age` instead of the policy's bound.
#[test]
fn a_policys_latest_answer_counts() {
    let device = &[("fence", "global"), ("remap", "kills-previous")];
    let setup = Setup::configured(device, "use-n=2,max-exposure=30ms", |config| {
        config.capacity = 16;
        config.order = mr_core::DrawOrder::Lifo;
    });
    setup.lease().release();
    let kept = setup.lease();
    let due = |until: Time| {
        while let Some(at) = setup.pool.next_due().filter(|at| *at <= until) {
            setup.clock.advance_to(at);
            setup.pool.step();
        }
        setup.clock.advance_to(until);
    };
    due(setup.clock.now() + Duration::from_millis(100));
    kept.release();
    due(setup.clock.now() + Duration::from_millis(200));
    assert!(setup.pool.stats().exposure.longest <= Duration::from_millis(30));
    assert_eq!(setup.pool.stats().stale.keys, 0);
}
