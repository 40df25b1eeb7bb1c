//! Counters that say other than what was.

use crate::setup::{FMR, NO_TIME, Setup};
use mr_core::{Access, ErrorKind};
use mr_mock::{Call, Fault, FaultPlan, When};

/// A lease call that helps with a flush gets a region handed over and draws one as well: the spare
/// one goes back, and is no lease.
#[test]
fn a_region_that_is_put_back_is_not_a_lease() {
    let setup = Setup::new(FMR, "use-once", 2);
    for _ in 0..3 {
        setup.lease().release();
    }
    let stats = setup.pool.stats();
    assert_eq!((stats.leases, stats.waits, stats.depleted), (3, 1, 0));
}

#[test]
fn a_refused_map_is_neither_a_lease_nor_a_reuse_nor_a_wrap() {
    let setup = Setup::reusing(FMR, "use-n=255");
    setup.lease().release();
    let refuse = FaultPlan::none().on(Call::Map, When::From(1), Fault::Fail(ErrorKind::Busy));
    setup.faults.set_plan(refuse);
    for _ in 0..600 {
        let refused = setup.pool.lease_owned(vec![0; 8], Access::all(), NO_TIME);
        assert!(refused.is_err());
    }
    let stats = setup.pool.stats();
    assert_eq!((stats.leases, stats.refused, stats.reused), (1, 600, 0));
    assert_eq!(stats.tag_wraps, 0);
}
