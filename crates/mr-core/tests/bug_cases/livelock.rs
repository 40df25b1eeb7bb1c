//! Loops that never end.

use crate::setup::{FMR, MR, NO_TIME, Setup};
use mr_core::{Access, ErrorKind};
use mr_mock::{Call, Fault, FaultPlan, When};
use std::time::Duration;

/// Open MPI's eviction loop: 200 entries, and nothing can be had from them.
#[test]
fn a_flush_that_frees_nothing_is_not_progress() {
    let setup = Setup::new(MR, "use-once", 200);
    let never = FaultPlan::none().on(
        Call::Invalidate,
        When::From(1),
        Fault::Fail(ErrorKind::Busy),
    );
    setup.faults.set_plan(never);
    drop((0..200).map(|_| setup.lease()).collect::<Vec<_>>());
    let refused = setup.pool.lease_timeout(vec![0; 8], Access::all(), NO_TIME);
    assert!(refused.is_err());
    let asked = setup.faults.calls(Call::Invalidate);
    assert_eq!(asked, 1, "one try for all, then the wait for the retry");
    // Then exactly one can be had.
    setup.faults.set_plan(FaultPlan::none());
    setup.clock.advance(Duration::from_millis(10));
    setup.pool.step();
    setup.lease().release();
}

#[test]
fn a_fence_that_keeps_failing_does_not_make_the_pool_spin() {
    let setup = Setup::reusing(FMR, "use-n=32");
    setup.lease().release();
    let _live = setup.lease();
    let never = FaultPlan::none().on(Call::Invalidate, When::From(1), Fault::Fail(ErrorKind::Io));
    setup.faults.set_plan(never);
    let mut steps = 0;
    let end = mr_core::Time::from_nanos(30_000_000_000);
    while let Some(at) = setup.pool.next_due().filter(|at| *at < end) {
        setup.clock.advance_to(at);
        setup.pool.step();
        steps += 1;
        assert!(steps < 100);
    }
    assert!(
        setup.faults.calls(Call::Invalidate) >= 10,
        "it is tried again"
    );
}
