//! One region with two owners (free lists with ABA, double releases).

use crate::setup::{FMR, MR, Setup, WINDOW};
use mr_core::{Access, Driver};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const REGIONS: u32 = 4;
const LONG: Duration = Duration::from_secs(60);

/// Every lease puts its stamp on its region, and must find none there.
#[test]
fn no_region_has_two_owners() {
    for (device, policy) in [(FMR, "use-n=8"), (MR, "use-once"), (WINDOW, "immediate")] {
        let setup = Setup::configured(device, policy, |config| {
            config.capacity = REGIONS;
            config.shards = 4;
            config.driver = Driver::Thread;
        });
        let owned: [AtomicBool; REGIONS as usize] = Default::default();
        thread::scope(|scope| {
            for number in 0..16 {
                let (pool, owned) = (&setup.pool, &owned);
                scope.spawn(move || {
                    for round in 0..100 {
                        let lease = pool.lease_timeout(vec![0; 8], Access::all(), LONG).unwrap();
                        let stamp = &owned[lease.region_id() as usize];
                        assert!(!stamp.swap(true, Ordering::SeqCst), "{policy}: two owners");
                        assert!(stamp.swap(false, Ordering::SeqCst));
                        match (number + round) % 4 {
                            0 => drop(lease),
                            1 => drop(lease.invalidate().unwrap()),
                            _ => lease.release(),
                        }
                    }
                });
            }
        });
        setup.pool.flush().unwrap();
        let stats = setup.pool.stats();
        assert_eq!(
            (stats.regions.clean, stats.leases),
            (REGIONS, 1600),
            "{policy}"
        );
    }
}
