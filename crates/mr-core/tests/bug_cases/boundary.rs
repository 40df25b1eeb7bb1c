//! Lengths at the edges.

use crate::setup::{FMR, NO_TIME, Setup};
use mr_core::{Access, LeaseRefusal};
use mr_mock::Call;

/// libfabric and Mooncake registered zero bytes; a zero-length bind of a window *unbinds* it.
#[test]
fn zero_and_overlong_buffers_never_reach_the_backend_nor_take_a_region() {
    let setup = Setup::new(FMR, "use-once", 1);
    let max = setup.pool.capabilities().max_bytes as usize;
    let zero = setup.pool.lease_owned(Vec::new(), Access::all(), NO_TIME);
    assert!(matches!(zero.unwrap_err().reason, LeaseRefusal::ZeroLength));
    let long = setup
        .pool
        .lease_owned(vec![0; max + 8192], Access::all(), NO_TIME);
    let error = long.unwrap_err();
    assert!(matches!(error.reason, LeaseRefusal::TooLong { .. }));
    assert_eq!(error.buffer.map(|buffer| buffer.len()), Some(max + 8192));
    assert_eq!(setup.faults.calls(Call::Map), 0);
    assert_eq!(setup.pool.stats().regions.clean, 1);
    let one = setup.pool.lease_owned(vec![0; 1], Access::all(), NO_TIME);
    assert_eq!(one.unwrap().len(), 1);
}
