//! Lists that grow for as long as nobody looks (UCX, vLLM, nixl).

use crate::setup::{FMR, Setup};
use mr_core::Access;
use std::time::Duration;

/// Releases without end under a policy that hardly ever flushes: keys and bytes stay bounded.
#[test]
fn stale_keys_and_bytes_stay_within_the_bounds() {
    for policy in ["use-once", "use-n=255", "use-n=255,periodic=3600s"] {
        let setup = Setup::configured(FMR, policy, |config| {
            config.capacity = 64;
            config.max_stale = Some(32);
            config.max_stale_bytes = 100_000;
            config.max_age = Duration::from_secs(86_400);
            config.max_unclaimed = Some(10);
        });
        for _ in 0..5000 {
            let pool = &setup.pool;
            let lease = pool.lease(vec![0; 4000], Access::all()).unwrap();
            lease.release();
            let stats = pool.stats();
            assert!(stats.stale.bytes <= 104_000, "{policy}: {:?}", stats.stale);
            assert!(stats.unclaimed <= 10);
            let counts = stats.regions;
            assert!(counts.worn + counts.reusable <= 32, "{policy}: {counts:?}");
        }
    }
}

/// Earlier keys of regions that are leased again hold memory, too.
#[test]
fn bytes_behind_earlier_keys_of_leased_regions_count() {
    let setup = Setup::configured(FMR, "use-n=255", |config| {
        config.capacity = 8;
        config.order = mr_core::DrawOrder::Lifo;
        config.max_stale_bytes = 40_000;
    });
    for _ in 0..1000 {
        let one = setup.pool.lease(vec![0; 4000], Access::all()).unwrap();
        let two = setup.pool.lease(vec![0; 4000], Access::all()).unwrap();
        one.release();
        two.release();
        assert!(setup.pool.stats().stale.bytes <= 48_000);
    }
}
