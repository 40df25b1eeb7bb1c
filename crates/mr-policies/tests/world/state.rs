//! The pool, the peer, and what the model remembers of both.

use super::steps::Setting;
use crate::support::{Book, Buffer, Morgue, Spy};
use mr_core::{
    Access, BuildError, Driver, ManualClock, OwnedLease, Pending, Pool, RemoteKey, Time,
};
use mr_mock::{Call, Fault, FaultBackend, FaultControl, FaultPlan, MockHca, Preset, RemotePeer};
use mr_policies::Policy;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Backend = Spy<FaultBackend<MockHca>>;

/// The byte that owners write into memory that has come back.
pub(crate) const OWNED: u8 = 0xa5;
/// The byte that the peer writes.
pub(super) const PEER: u8 = 0x5a;

/// A key that was given out.
pub(crate) struct Given {
    pub(crate) name: u64,
    pub(crate) key: RemoteKey,
    pub(crate) place: usize,
    pub(crate) serial: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    pub(crate) released: Option<Time>,
    pub(crate) way: Way,
}

/// Where the buffer of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Under its lease.
    Leased,
    /// With the pool, to be dropped when the key is dead.
    ToDrop,
    /// With the pool, to be reclaimed when the key is dead.
    ToCollect,
    /// With the pool, for a `Pending`.
    ToHand,
    /// With its owner, or gone.
    Over,
}

pub(crate) struct World {
    pub(crate) pool: Arc<Pool<Backend, Buffer>>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) hca: MockHca,
    pub(crate) book: Book,
    pub(crate) given: Vec<Given>,
    pub(crate) owned: Vec<Buffer>,
    pub(crate) counts: Counts,
    /// Buffers of leases that the backend failed to map, whose keys nobody knows.
    pub(crate) limbo: Vec<u64>,
    pub(crate) capacity: u32,
    pub(crate) slowest_flush: Duration,
    pub(super) faults: FaultControl,
    pub(super) plan: Vec<(Call, Fault)>,
    pub(crate) faulted: bool,
    pub(super) peer: RemotePeer,
    pub(crate) leases: Vec<(u64, OwnedLease<Backend, Buffer>)>,
    pub(crate) pendings: Vec<(u64, Pending<Buffer>)>,
    pub(crate) morgue: Morgue,
    pub(super) names: u64,
    pub(super) ends_without_device: bool,
}

/// What the model counts by itself.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) leases: u64,
    pub(crate) refused: u64,
    pub(crate) depleted: u64,
}

impl World {
    /// `None` if the policy cannot hold over this device.
    pub(crate) fn build(policy: &Policy, setting: &Setting) -> Option<Self> {
        let hca = MockHca::new(&preset(setting));
        let peer = hca.connect();
        let hca = hca.for_connection(&peer).unwrap();
        let faulty = FaultBackend::new(hca.clone(), FaultPlan::none());
        let faults = faulty.control();
        let spy = Spy::new(faulty);
        let book = spy.book();
        let clock = Arc::new(ManualClock::new());
        clock.advance(Duration::from_secs(1));
        let built = Pool::builder(spy, policy.clone())
            .clock(Arc::clone(&clock))
            .seed(setting.seed)
            .configure(|config| {
                config.capacity = setting.capacity;
                config.order = setting.order;
                config.shards = setting.shards;
                config.driver = Driver::Manual;
                config.max_unclaimed = Some(1 << 20);
                config.lease_timeout = Duration::ZERO;
                config.flush_timeout = Duration::from_secs(5);
            })
            .build();
        let pool = match built {
            Ok(pool) => Arc::new(pool),
            Err(BuildError::Policy(_)) => return None,
            Err(other) => panic!("not built: {other}"),
        };
        Some(Self {
            peer,
            pool,
            clock,
            hca,
            book,
            given: Vec::new(),
            owned: Vec::new(),
            counts: Counts::default(),
            limbo: Vec::new(),
            capacity: setting.capacity,
            slowest_flush: Duration::ZERO,
            faults,
            plan: Vec::new(),
            faulted: false,
            leases: Vec::new(),
            pendings: Vec::new(),
            morgue: Morgue::default(),
            names: 0,
            ends_without_device: setting.ends_without_device,
        })
    }
}

fn preset(setting: &Setting) -> Preset {
    let soft_invalidate = setting.soft_invalidate.to_string();
    let tag_bits = if setting.chooses_tags { "8" } else { "0" };
    let max_batch = setting.max_batch.to_string();
    let changes = [
        ("fence", setting.fence),
        ("remap", setting.remap),
        ("soft_invalidate", soft_invalidate.as_str()),
        ("tag_bits", tag_bits),
        ("max_batch", max_batch.as_str()),
        ("remote_invalidate", "true"),
        ("page_bytes", "512"),
        ("max_pages", "5"),
        ("mtu_bytes", "256"),
        ("mtt_line_pages", "2"),
        ("mpt_entries", "64"),
        ("mtt_lines", "64"),
    ];
    let preset = Preset::named("connectx-2008").unwrap();
    preset.with(&changes).unwrap()
}
