//! The order at the end: keys die, then regions are freed, then nothing is left.

use crate::setup::{FMR, MR, Setup, WINDOW};
use mr_core::{Access, Driver, LeaseRefusal};
use std::sync::Arc;
use std::time::Duration;

/// A PD freed with registrations in it (UCX, NVSHMEM, perftest): here the mock refuses to free
/// what is not clean, so a wrong order would be in the report.
#[test]
fn a_shutdown_kills_and_frees_everything_in_order() {
    for (device, policy) in [(FMR, "use-n=4"), (MR, "use-once"), (WINDOW, "use-n=4")] {
        for driver in [Driver::Manual, Driver::Thread] {
            let setup = Setup::configured(device, policy, |config| {
                config.capacity = 8;
                config.driver = driver;
            });
            setup.lease().release();
            let pending = setup.lease().release_pending();
            drop(setup.lease());
            let report = setup.pool.shutdown(Duration::from_secs(20));
            assert!(report.is_complete() && report.freed == 8, "{report:?}");
            assert_eq!(setup.hca.regions(), 0);
            assert!(pending.try_take().is_ok());
            let refused = setup.pool.lease(vec![0; 8], Access::all()).map(drop);
            assert!(matches!(refused.unwrap_err().reason, LeaseRefusal::Closed));
        }
    }
}

#[test]
fn a_lease_that_outlives_the_shutdown_frees_its_region_when_it_ends() {
    for (device, policy) in [(FMR, "use-n=4"), (MR, "use-once"), (WINDOW, "use-n=4")] {
        let setup = Setup::new(device, policy, 4);
        let lease = setup.lease();
        let key = lease.remote_key();
        let report = setup.pool.shutdown(Duration::from_millis(5));
        assert_eq!((report.leased, report.freed), (1, 3), "{report:?}");
        assert!(setup.is_honoured(key), "the lease still holds");
        lease.release();
        assert!(!setup.is_honoured(key));
        assert_eq!(setup.hca.regions(), 0);
        assert!(setup.pool.shutdown(Duration::ZERO).is_complete());
    }
}

/// The last lease drops the pool.
#[test]
fn pool_and_leases_can_be_dropped_in_any_order() {
    for pool_first in [true, false] {
        let setup = Setup::new(FMR, "use-once", 2);
        let (lease, pending) = (setup.lease(), setup.lease().release_pending());
        let Setup { pool, hca, .. } = setup;
        if pool_first {
            drop(pool);
            drop(lease);
        } else {
            drop(lease);
            assert_eq!(Arc::strong_count(&pool), 1);
            drop(pool);
        }
        assert_eq!(hca.regions(), 0);
        assert!(pending.try_take().is_ok());
    }
}
