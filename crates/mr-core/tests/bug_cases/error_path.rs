//! What failed is neither clean nor forgotten.

use crate::setup::{FMR, MR, Setup};
use mr_core::{BuildError, ErrorKind, Pool};
use mr_mock::{Call, Fault, FaultPlan, MockHca, Preset, When};
use mr_policies::Policy;
use std::time::Duration;

/// `ib_fmr_batch_release` printed a line and put the whole batch on the free list.
#[test]
fn a_batch_that_fails_half_way_is_clean_as_far_as_it_got() {
    for (fault, clean) in [
        (Fault::HalfDone(ErrorKind::Io), 4),
        (Fault::Fail(ErrorKind::Io), 0),
        (Fault::LostAnswer(ErrorKind::Io), 0),
    ] {
        let setup = Setup::new(FMR, "use-once", 8);
        let plan = FaultPlan::none().on(Call::Invalidate, When::Nth(1), fault);
        setup.faults.set_plan(plan);
        (0..8)
            .map(|_| setup.lease())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|l| l.release());
        assert!(setup.pool.flush().is_err());
        let stats = setup.pool.stats();
        assert_eq!(stats.regions.clean, clean);
        assert_eq!(stats.regions.quarantined, 8 - clean);
        assert_eq!(
            (stats.stale.keys, stats.unclaimed),
            (u64::from(8 - clean), clean)
        );
        // The retry comes by itself, with its time.
        setup.clock.advance(Duration::from_millis(10));
        setup.pool.step();
        let stats = setup.pool.stats();
        assert_eq!((stats.regions.clean, stats.unclaimed), (8, 8));
    }
}

/// Close failed and the entry was forgotten all the same (nixl, Mooncake, sglang).
#[test]
fn a_region_that_is_not_freed_at_the_first_try_is_freed_at_the_next() {
    let setup = Setup::new(MR, "use-once", 4);
    let busy = FaultPlan::none().on(Call::Dealloc, When::Nth(2), Fault::Fail(ErrorKind::Busy));
    setup.faults.set_plan(busy);
    let report = setup.pool.shutdown(Duration::from_secs(5));
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(setup.hca.regions(), 0);
}

#[test]
fn a_region_that_is_never_freed_is_named() {
    let setup = Setup::new(MR, "use-once", 4);
    let never = FaultPlan::none().on(Call::Dealloc, When::From(3), Fault::Fail(ErrorKind::Io));
    setup.faults.set_plan(never);
    let report = setup.pool.shutdown(Duration::from_secs(5));
    assert_eq!((report.freed, report.not_freed), (2, 2), "{report:?}");
    assert!(!report.is_complete());
    assert_eq!(setup.pool.stats().regions.total(), 4);
}

/// Permanent failures end, as leaked and counted, and their memory goes nowhere.
#[test]
fn what_cannot_be_invalidated_is_given_up_and_counted() {
    let setup = Setup::new(MR, "use-once", 2);
    let never = FaultPlan::none().on(Call::Invalidate, When::From(1), Fault::Fail(ErrorKind::Io));
    setup.faults.set_plan(never);
    setup.lease().release();
    for _ in 0..200 {
        let Some(at) = setup.pool.next_due() else {
            break;
        };
        setup.clock.advance_to(at);
        setup.pool.step();
    }
    let stats = setup.pool.stats();
    assert_eq!(
        (stats.leaked, stats.regions.quarantined, stats.unclaimed),
        (1, 1, 0)
    );
    assert_eq!(stats.quarantines, 11, "the first failure and ten retries");
    assert_eq!(setup.pool.next_due(), None);
}

/// Without a bound on the number of retries, a region that must never be tried again, after a defect of
/// the pool, was tried again all the same.
#[test]
fn the_number_of_retries_has_a_bound() {
    let build = |retries| {
        let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
        let policy: Policy = "use-once".parse().unwrap();
        let builder = Pool::builder(hca, policy).capacity(1);
        let built = builder.configure(|config| config.max_retries = retries);
        built.build::<Vec<u8>>()
    };
    for retries in [0, 10, 1_000_000] {
        assert!(build(retries).is_ok());
    }
    for retries in [1_000_001, u32::MAX] {
        let refused = build(retries).map(drop);
        let Err(BuildError::Setting { setting, allowed }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(setting, "max_retries");
        assert!(allowed.contains("1000000"), "{allowed}");
    }
}

#[test]
fn without_retries_the_first_failure_is_the_last() {
    let setup = Setup::configured(MR, "use-once", |config| config.max_retries = 0);
    let once = FaultPlan::none().on(Call::Invalidate, When::Nth(1), Fault::Fail(ErrorKind::Io));
    setup.faults.set_plan(once);
    setup.lease().release();
    assert!(setup.pool.flush().is_err());
    let stats = setup.pool.stats();
    assert_eq!(
        (stats.leaked, stats.quarantines, stats.unclaimed),
        (1, 1, 0)
    );
    setup.clock.advance(Duration::from_secs(3600));
    setup.pool.step();
    assert!(setup.pool.flush().is_err(), "it is not clean");
    assert_eq!(setup.faults.calls(Call::Invalidate), 1, "nor tried again");
}
