//! Calls that never return: a shutdown ends all the same, and names what it leaves behind.

use crate::scenario::{CAPACITY, DEVICES, build};
use crate::support::{Buffer, Morgue};
use mr_core::{Access, Driver, ErrorKind};
use mr_mock::{Call, Fault, FaultPlan, When};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

/// Far beyond what any test waits for.
const FOR_EVER: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_millis(40);

/// A user in a thread of his own, who may get stuck in the backend.
fn use_the_pool(pool: &crate::scenario::TestPool, morgue: &Morgue) {
    for round in 0..3 {
        let mut leases = Vec::new();
        for name in 0..u64::from(CAPACITY) {
            let buffer = Buffer::new(name, 600, morgue);
            let leased = Arc::clone(pool).lease_owned(buffer, Access::all(), Duration::ZERO);
            leases.extend(leased);
        }
        for (nth, lease) in leases.into_iter().enumerate() {
            match (nth + round) % 3 {
                0 => lease.release(),
                1 => drop(lease.invalidate()),
                _ => drop(lease),
            }
        }
    }
}

fn shut_down_while_hanging(device: usize, first: Option<(Call, Fault)>, call: Call, number: u64) {
    let (world, pool) = build(device, Driver::Thread, |_| {
        let plan = FaultPlan::none().hang_at_most(FOR_EVER);
        let plan = first.into_iter().fold(plan, |plan, (call, fault)| {
            plan.on(call, When::Nth(1), fault)
        });
        plan.on(call, When::Nth(number), Fault::Hang)
    });
    let pool = pool.unwrap();
    let morgue = Morgue::default();
    let (done, ended) = mpsc::channel();
    let user = {
        let (pool, morgue) = (Arc::clone(&pool), morgue.clone());
        thread::spawn(move || {
            use_the_pool(&pool, &morgue);
            let _ = done.send(());
        })
    };
    while world.faults.hanging() == 0 && ended.try_recv().is_err() {
        thread::yield_now();
    }
    let started = SystemTime::now();
    let report = pool.shutdown(DEADLINE);
    let took = started.elapsed().unwrap_or_default();
    assert!(took < DEADLINE + Duration::from_secs(3), "{took:?}");
    let named = report.freed
        + report.leased
        + report.quarantined
        + report.stale
        + report.in_flush
        + report.not_freed;
    let hangs = world.faults.hanging() > 0;
    if hangs {
        assert!(!report.is_complete(), "{report:?}");
    } else {
        assert_eq!(named, CAPACITY, "{report:?}");
    }
    // When the device answers after all, nothing is left behind but what has been given up. On a busy
    // machine the call that is to hang may still lie ahead.
    world.faults.set_plan(FaultPlan::none());
    world.faults.release();
    user.join().unwrap();
    let report = pool.shutdown(Duration::from_secs(10));
    let given_up = report.quarantined;
    assert!(given_up == 0 || first.is_some(), "{report:?}");
    assert_eq!(report.freed + given_up, CAPACITY, "{report:?}");
    assert_eq!(world.hca.regions(), given_up as usize);
}

#[test]
fn a_shutdown_ends_whichever_call_does_not_return() {
    for device in 0..DEVICES.len() {
        for call in [Call::Map, Call::Invalidate, Call::Dealloc] {
            for number in 1..=6 {
                shut_down_while_hanging(device, None, call, number);
            }
        }
    }
}

/// The same while the pool recovers from a fault.
#[test]
fn a_shutdown_ends_when_a_call_of_the_recovery_does_not_return() {
    let firsts = [
        (Call::Map, Fault::HalfDone(ErrorKind::Io)),
        (Call::Invalidate, Fault::Fail(ErrorKind::Busy)),
        (Call::Invalidate, Fault::LostAnswer(ErrorKind::TimedOut)),
    ];
    for device in 0..DEVICES.len() {
        for first in firsts {
            for number in 2..=4 {
                shut_down_while_hanging(device, Some(first), Call::Invalidate, number);
            }
        }
    }
}

#[test]
fn dropping_a_pool_that_hangs_in_a_flush_ends() {
    let (world, pool) = build(4, Driver::Thread, |_| {
        let plan = FaultPlan::none().hang_at_most(FOR_EVER);
        plan.on(Call::Invalidate, When::From(1), Fault::Hang)
    });
    let pool = pool.unwrap();
    let buffer = Buffer::new(0, 600, &Morgue::default());
    drop(pool.lease(buffer, Access::all()));
    world.clock.advance(Duration::from_secs(2));
    let started = SystemTime::now();
    drop(pool);
    let took = started.elapsed().unwrap_or_default();
    assert!(
        took < Duration::from_secs(6),
        "the flush timeout is 2 s: {took:?}"
    );
    world.faults.release();
}
