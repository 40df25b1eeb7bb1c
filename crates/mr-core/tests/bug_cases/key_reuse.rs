//! Key values that come back while an earlier use may be honoured.

use crate::setup::{FMR, MR, NO_TIME, Setup, WINDOW};
use mr_core::{Access, ErrorKind};
use mr_mock::{Call, Fault, FaultPlan, When};
use std::collections::HashSet;

/// The mlx4 and mthca fault: the tag must not restart at an unmap, a flush or an invalidation.
#[test]
fn no_key_value_comes_back_within_255_maps_of_its_region() {
    for device in [FMR, MR, WINDOW] {
        let setup = Setup::new(device, "use-once", 1);
        let mut keys = Vec::new();
        for round in 0..600 {
            let lease = setup.lease();
            keys.push(lease.remote_key());
            match round % 3 {
                0 => drop(lease.invalidate().unwrap()),
                1 => lease.release(),
                _ => drop(lease),
            }
            setup.pool.flush().unwrap();
        }
        for window in keys.windows(256) {
            let distinct: HashSet<_> = window.iter().collect();
            assert_eq!(distinct.len(), 256);
        }
    }
}

/// A stale key, then as many refused maps of its region as there are tags.
#[test]
fn refused_maps_do_not_bring_a_stale_key_back() {
    let setup = Setup::reusing(FMR, "use-n=255");
    let lease = setup.lease();
    let stale = lease.remote_key();
    lease.release();
    assert!(setup.is_stale(stale));
    let refuse = FaultPlan::none().on(Call::Map, When::From(1), Fault::Fail(ErrorKind::NoMemory));
    setup.faults.set_plan(refuse);
    for _ in 0..255 {
        let refused = setup.pool.lease_owned(vec![0; 8], Access::all(), NO_TIME);
        assert!(refused.is_err());
    }
    setup.faults.set_plan(FaultPlan::none());
    let again = setup.lease();
    assert!(setup.is_stale(stale));
    assert_ne!(again.remote_key(), stale, "two owners of one key");
}

/// With 255 mappings before an invalidation at most, the 256 tags never meet.
#[test]
fn reuse_ends_before_the_tags_wrap() {
    let setup = Setup::reusing(FMR, "use-n=255");
    let mut stale = HashSet::new();
    for _ in 0..255 {
        let lease = setup.lease();
        assert!(stale.insert(lease.remote_key()));
        lease.release();
    }
    assert_eq!(setup.pool.stats().regions.worn, 1, "the 255th was the last");
    assert_eq!(setup.pool.stats().stale.keys, 255);
}
