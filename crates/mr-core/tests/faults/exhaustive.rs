//! Every fault at every call, alone and in twos.

use crate::scenario::{CAPACITY, DEVICES, KINDS, Life, build, calls};
use mr_core::{BuildError, Driver, ErrorKind};
use mr_mock::{Call, Fault, FaultPlan, When};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

type Strike = (Call, u64, Fault);

/// Calls that recovery from a fault may add to those of a life without one.
const MORE: u64 = 2;

fn all_faults() -> Vec<Fault> {
    let mut faults = Vec::new();
    for kind in KINDS {
        faults.extend([
            Fault::Fail(kind),
            Fault::HalfDone(kind),
            Fault::LostAnswer(kind),
        ]);
    }
    faults.extend([Fault::Delay(Duration::from_millis(700)), Fault::Panic]);
    faults
}

/// One of each sort from which there is something to recover: refused, unknown, half-way, done
/// unheard, panic.
const FIRST: [Fault; 5] = [
    Fault::Fail(ErrorKind::Busy),
    Fault::Fail(ErrorKind::NoDevice),
    Fault::HalfDone(ErrorKind::Io),
    Fault::LostAnswer(ErrorKind::TimedOut),
    Fault::Panic,
];

const SECOND: [Fault; 3] = [
    Fault::Fail(ErrorKind::Busy),
    Fault::LostAnswer(ErrorKind::Io),
    Fault::Panic,
];

fn strikes(device: usize, faults: &[Fault]) -> Vec<Strike> {
    let mut strikes = Vec::new();
    for (call, count) in calls(device) {
        for number in 1..=count + MORE {
            strikes.extend(faults.iter().map(|fault| (call, number, *fault)));
        }
    }
    strikes
}

/// A life with these faults; whatever happens, the checks of the scenario hold.
fn live(device: usize, strikes: &[Strike]) {
    let (world, pool) = {
        let built = catch_unwind(AssertUnwindSafe(|| {
            build(device, Driver::Manual, |clock| {
                let clock = Arc::clone(clock);
                let plan = FaultPlan::none().delay_by(move |time| clock.advance(time));
                let add = |plan: FaultPlan, strike: &Strike| {
                    plan.on(strike.0, When::Nth(strike.1), strike.2)
                };
                strikes.iter().fold(plan, add)
            })
        }));
        let Ok(built) = built else {
            // A panic in `alloc` is the builder's; the regions made so far were freed on the way.
            assert!(strikes.iter().any(|strike| strike.0 == Call::Alloc));
            return;
        };
        built
    };
    match pool {
        Ok(pool) => {
            Life::new(&world, pool).run();
        }
        Err(BuildError::Alloc { made, leaked, .. }) => {
            assert!(made < CAPACITY);
            let leaked = leaked.map_or(0, |(count, _)| count as usize);
            // A `dealloc` that panics takes its region along.
            let gone = strikes
                .iter()
                .filter(|s| (s.0, s.2) == (Call::Dealloc, Fault::Panic));
            assert!(
                world.hca.regions() <= leaked + gone.count(),
                "leaked and not named"
            );
        }
        Err(other) => panic!("{other}"),
    }
}

fn try_all(device: usize, lives: impl Iterator<Item = Vec<Strike>>) {
    // The panics that are asked for would drown what a failure has to say.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let failed = lives.into_iter().find_map(|strikes| {
        let lived = catch_unwind(AssertUnwindSafe(|| live(device, &strikes)));
        lived.err().map(|panic| (strikes, message(&*panic)))
    });
    std::panic::set_hook(hook);
    if let Some((strikes, message)) = failed {
        panic!("{:?} with {strikes:?}: {message}", DEVICES[device]);
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

#[test]
fn every_fault_at_every_call() {
    for device in 0..DEVICES.len() {
        let single = strikes(device, &all_faults());
        assert!(single.len() > 300, "the scenario calls too little");
        try_all(device, single.into_iter().map(|strike| vec![strike]));
    }
}

/// Of all pairs, those whose second fault comes at a later call of the same kind or at any call of
/// another: so also in the midst of the recovery. A pool of which a region could not be made has
/// only the freeing of the others before it.
fn every_second_fault(device: usize) {
    let seconds = strikes(device, &SECOND);
    let firsts = strikes(device, &FIRST);
    let pairs = firsts.iter().flat_map(|first| {
        let follows = |second: &&Strike| match (first.0, second.0) {
            (Call::Alloc, other) => other == Call::Dealloc,
            (_, Call::Alloc) => false,
            (one, other) => one != other || first.1 < second.1,
        };
        let seconds = seconds.iter().filter(follows);
        seconds.map(move |second| vec![*first, *second])
    });
    try_all(device, pairs);
}

#[test]
fn every_second_fault_under_reuse_with_a_global_fence() {
    every_second_fault(0);
}

#[test]
fn every_second_fault_under_immediate_with_a_global_fence() {
    every_second_fault(1);
}

#[test]
fn every_second_fault_under_reuse_with_windows() {
    every_second_fault(2);
}

#[test]
fn every_second_fault_under_immediate_with_registrations() {
    every_second_fault(3);
}

#[test]
fn every_second_fault_under_use_once_with_registrations() {
    every_second_fault(4);
}

#[test]
fn every_second_fault_under_use_once_with_a_global_fence() {
    every_second_fault(5);
}
