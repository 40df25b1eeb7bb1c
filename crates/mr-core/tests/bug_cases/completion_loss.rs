//! A connection or device is lost with work in flight (ceph, xprtrdma).

use crate::setup::{FMR, MR, NO_TIME, Setup, WINDOW};
use mr_core::Access;
use std::time::Duration;

#[test]
fn everything_outstanding_ends_once_when_the_device_is_lost() {
    for device in [FMR, MR, WINDOW] {
        let setup = Setup::new(device, "use-once", 6);
        setup.lease().release();
        let pending = setup.lease().release_pending();
        let (held, other) = (setup.lease(), setup.lease());
        setup.faults.remove_device();
        assert!(held.invalidate().is_err());
        other.release();
        assert!(setup.pool.flush().is_err());
        let refused = setup.pool.lease_owned(vec![0; 8], Access::all(), NO_TIME);
        assert!(refused.is_err());
        let counts = setup.pool.stats().regions;
        assert_eq!((counts.leased, counts.total()), (0, 6), "{counts:?}");
        assert!(
            pending.try_take().is_err(),
            "nobody knows that the key is dead"
        );
        let report = setup.pool.shutdown(Duration::from_millis(100));
        assert_eq!(report.quarantined + report.not_freed, 6, "{report:?}");
    }
}
