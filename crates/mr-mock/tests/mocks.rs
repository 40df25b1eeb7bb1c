//! The `mockall` mocks, used as a user's unit test would.

#![cfg(feature = "mockall")]

use mr_core::{
    Access, AtRelease, BatchError, Capabilities, ErrorKind, InvalidationPolicy, MrBackend,
    ReleasedRegion,
};
use mr_mock::mocks::{MockBackend, MockPolicy, ScriptedError};

/// Code under test: gives a region back, however it goes.
fn retire<B: MrBackend>(backend: &B, mut region: B::Region) -> Result<(), &'static str> {
    backend
        .invalidate(&mut [&mut region])
        .map_err(|_| "not invalidated")?;
    backend.dealloc(region).map_err(|_| "not freed")
}

#[test]
fn a_backend_can_be_scripted() {
    let mut backend = MockBackend::new();
    backend
        .expect_capabilities()
        .return_const(Capabilities::new(1, 4096));
    backend.expect_alloc().times(1).returning(|| Ok(7));
    backend
        .expect_invalidate()
        .withf(|batch| batch.len() == 1 && *batch[0] == 7)
        .times(1)
        .returning(|_| Err(BatchError::all(ScriptedError(ErrorKind::Io))));
    backend.expect_dealloc().never();
    assert_eq!(backend.capabilities().max_regions, 1);
    let region = backend.alloc().unwrap();
    assert_eq!(retire(&backend, region), Err("not invalidated"));
}

#[test]
fn a_policy_can_be_scripted() {
    let mut policy = MockPolicy::new();
    policy
        .expect_at_release()
        .withf(|region| region.maps == 3)
        .return_const(AtRelease::Reuse);
    let released = ReleasedRegion::new(3, 10, Access::REMOTE_READ);
    assert_eq!(policy.at_release(&released), Some(AtRelease::Reuse));
    let _: &dyn InvalidationPolicy = &policy;
}
