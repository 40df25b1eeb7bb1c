//! A small pool in virtual time over a mock HCA that can be made to fail.

#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use crate::support::{Book, Spy};
use mr_core::{
    Access, DrawOrder, Driver, InvalidationPolicy, ManualClock, OwnedLease, Pool, PoolConfig,
    RemoteKey,
};
use mr_mock::{FaultBackend, FaultControl, FaultPlan, MockHca, Preset};
use mr_policies::Policy;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Backend = Spy<FaultBackend<MockHca>>;
pub(crate) type TestLease = OwnedLease<Backend, Vec<u8>>;

pub(crate) const NO_TIME: Duration = Duration::ZERO;

/// What a test turns and looks at.
pub(crate) struct Setup {
    pub(crate) pool: Arc<Pool<Backend>>,
    pub(crate) hca: MockHca,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) faults: FaultControl,
    pub(crate) book: Book,
}

/// FMRs and SYNC_TPT: one fence for all, and a remap leaves the previous key alive.
pub(crate) const FMR: &[(&str, &str)] = &[("fence", "global"), ("remap", "leaves-previous")];
/// Registrations: a fence per key, and no remap.
pub(crate) const MR: &[(&str, &str)] = &[("fence", "per-key"), ("remap", "impossible")];
/// Memory windows of type 1: a fence per key, and a remap kills the previous key.
pub(crate) const WINDOW: &[(&str, &str)] = &[("fence", "per-key"), ("remap", "kills-previous")];

impl Setup {
    pub(crate) fn new(device: &[(&str, &str)], policy: &str, capacity: u32) -> Self {
        Self::configured(device, policy, |config| config.capacity = capacity)
    }

    pub(crate) fn configured(
        device: &[(&str, &str)],
        policy: &str,
        configure: impl FnOnce(&mut PoolConfig),
    ) -> Self {
        let policy: Policy = policy.parse().unwrap();
        Self::with_policy(device, policy, configure)
    }

    pub(crate) fn with_policy(
        device: &[(&str, &str)],
        policy: impl InvalidationPolicy,
        configure: impl FnOnce(&mut PoolConfig),
    ) -> Self {
        let preset = Preset::named("connectx-2008")
            .unwrap()
            .with(device)
            .unwrap();
        let hca = MockHca::new(&preset);
        let faulty = FaultBackend::new(hca.clone(), FaultPlan::none());
        let faults = faulty.control();
        let spy = Spy::new(faulty);
        let book = spy.book();
        let clock = Arc::new(ManualClock::new());
        clock.advance(Duration::from_secs(1));
        let pool = Pool::builder(spy, policy)
            .clock(Arc::clone(&clock))
            .seed(1)
            .configure(|config| {
                config.capacity = 4;
                config.shards = 1;
                config.driver = Driver::Manual;
                config.lease_timeout = NO_TIME;
                config.flush_timeout = Duration::from_secs(5);
                configure(config);
            })
            .build()
            .unwrap();
        Self {
            pool: Arc::new(pool),
            hca,
            clock,
            faults,
            book,
        }
    }

    /// Two regions, of which the one released last is mapped again first.
    pub(crate) fn reusing(device: &[(&str, &str)], policy: &str) -> Self {
        Self::configured(device, policy, |config| {
            config.capacity = 2;
            config.order = DrawOrder::Lifo;
        })
    }

    pub(crate) fn lease(&self) -> TestLease {
        self.pool
            .lease_owned(vec![0; 64], Access::all(), NO_TIME)
            .unwrap()
    }

    /// Whether the key may be honoured, as far as the backend has said.
    pub(crate) fn is_stale(&self, key: RemoteKey) -> bool {
        let alive = self.book.all();
        alive.iter().any(|(_, entry)| entry.key == Some(key))
    }

    /// Whether a peer gets through with this key.
    pub(crate) fn is_honoured(&self, key: RemoteKey) -> bool {
        self.hca.connect().write(key, 0, &[1]).is_ok()
    }
}
