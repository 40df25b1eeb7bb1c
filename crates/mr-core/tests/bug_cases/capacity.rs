//! Batches longer than the device takes at once (brpc and nbs forgot the slots of invalidations).

use crate::setup::{MR, Setup};
use mr_core::ErrorKind;
use mr_mock::{Call, Fault, FaultPlan, When};

#[test]
fn a_flush_is_cut_into_batches_that_the_device_takes() {
    for (max_batch, calls) in [("1", 10), ("3", 4), ("10", 1), ("64", 1)] {
        let device = [MR, &[("max_batch", max_batch)]].concat();
        let setup = Setup::new(&device, "use-once", 10);
        let keys: Vec<_> = (0..10)
            .map(|_| setup.lease())
            .collect::<Vec<_>>()
            .into_iter()
            .map(|lease| lease.remote_key())
            .collect();
        setup.pool.flush().unwrap();
        assert_eq!(setup.faults.calls(Call::Invalidate), calls);
        assert!(keys.iter().all(|key| !setup.is_honoured(*key)));
        let stats = setup.pool.stats();
        assert_eq!((stats.flushes, stats.flushed_regions), (1, 10));
    }
}

/// A full work queue is back-pressure: what did not fit stays, and is tried again.
#[test]
fn a_batch_that_finds_no_room_is_tried_again() {
    let device = [MR, &[("max_batch", "4")]].concat();
    let setup = Setup::new(&device, "use-once", 8);
    let full = FaultPlan::none().on(
        Call::Invalidate,
        When::Nth(2),
        Fault::Fail(ErrorKind::NoMemory),
    );
    setup.faults.set_plan(full);
    drop((0..8).map(|_| setup.lease()).collect::<Vec<_>>());
    assert!(setup.pool.flush().is_err());
    let counts = setup.pool.stats().regions;
    assert_eq!((counts.clean, counts.quarantined), (4, 4));
    setup.pool.flush().unwrap();
    assert_eq!(setup.pool.stats().regions.clean, 8);
}
