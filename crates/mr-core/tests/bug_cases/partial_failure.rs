//! A build that fails half-way leaves nothing behind (nixl, NCCL, rds_ib_map_fmr).

use crate::support::Spy;
use mr_core::{BuildError, Driver, ErrorKind, Pool};
use mr_mock::{Call, Fault, FaultBackend, FaultPlan, MockHca, Preset, When};
use mr_policies::Policy;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Built =
    Result<Pool<Spy<FaultBackend<MockHca>>>, BuildError<mr_mock::FaultError<mr_mock::MockError>>>;

fn build(hca: &MockHca, plan: FaultPlan) -> Built {
    Pool::builder(
        Spy::new(FaultBackend::new(hca.clone(), plan)),
        Policy::default(),
    )
    .configure(|config| {
        config.capacity = 6;
        config.driver = Driver::Manual;
    })
    .build()
}

#[test]
fn whichever_region_cannot_be_made_the_others_are_freed() {
    for k in 1..=6 {
        let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
        let plan =
            FaultPlan::none().on(Call::Alloc, When::Nth(k), Fault::Fail(ErrorKind::NoMemory));
        let Err(BuildError::Alloc {
            made,
            wanted,
            leaked,
            ..
        }) = build(&hca, plan)
        else {
            panic!("built");
        };
        assert_eq!((u64::from(made), wanted), (k - 1, 6));
        assert!(leaked.is_none());
        assert_eq!(hca.regions(), 0);
    }
}

#[test]
fn a_rollback_that_fails_too_says_both() {
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let plan = FaultPlan::none()
        .on(Call::Alloc, When::Nth(5), Fault::Fail(ErrorKind::NoMemory))
        .on(Call::Dealloc, When::From(3), Fault::Fail(ErrorKind::Busy));
    let Err(BuildError::Alloc { leaked, .. }) = build(&hca, plan) else {
        panic!("built");
    };
    assert_eq!(leaked.map(|(count, _)| count), Some(2));
    assert_eq!(hca.regions(), 2);
}

#[test]
fn a_build_that_panics_frees_what_it_made() {
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let plan = FaultPlan::none().on(Call::Alloc, When::Nth(4), Fault::Panic);
    assert!(catch_unwind(AssertUnwindSafe(|| build(&hca, plan))).is_err());
    assert_eq!(hca.regions(), 0);
}
