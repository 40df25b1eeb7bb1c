//! What can happen.

use mr_core::{Access, DrawOrder, ErrorKind};
use mr_mock::{Call, Fault};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Bytes that a region of the small mock HCA maps.
pub(crate) const MAX_LEN: usize = 4 * 512;

/// What the pool is built over and with.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) order: DrawOrder,
    pub(crate) fence: &'static str,
    pub(crate) remap: &'static str,
    pub(crate) soft_invalidate: bool,
    pub(crate) chooses_tags: bool,
    pub(crate) max_batch: u32,
    pub(crate) capacity: u32,
    pub(crate) shards: u32,
    pub(crate) seed: u64,
    /// Whether the device is taken away before the end.
    pub(crate) ends_without_device: bool,
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Lease {
        len: usize,
        access: Access,
        waits: bool,
    },
    LeaseChained {
        len: usize,
        access: Access,
    },
    LeaseBatch {
        wanted: Vec<(usize, Access)>,
        waits: bool,
        chained: bool,
    },
    Release(Index),
    ReleasePending(Index),
    Drop(Index),
    Invalidate(Index),
    PeerInvalidates(Index),
    Poll(Index),
    WaitForNoTime(Index),
    DropPending(Index),
    LeaveToPool(Index),
    Reclaim(usize),
    Flush,
    /// Time passes, and the pool is stepped whenever it has asked for it.
    Pass(u32),
    DoWhatIsDue,
    /// A flush is begun and given up before the backend was asked.
    GiveUpFlush,
    /// A flush in slow motion, with so many ms between question and answer.
    SlowFlush(u32),
    /// A remote access through any key that ever was.
    Access {
        key: Index,
        writes: bool,
    },
    /// The next call of this kind goes wrong.
    Fault(Call, Fault),
}

pub(crate) fn setting() -> impl Strategy<Value = Setting> {
    let orders = select(vec![DrawOrder::Random, DrawOrder::Fifo, DrawOrder::Lifo]);
    let device = (
        select(vec!["global", "per-key"]),
        select(vec!["impossible", "leaves-previous", "kills-previous"]),
        any::<bool>(),
        prop::bool::weighted(0.8),
        select(vec![1_u32, 2, 64]),
    );
    let pool = (2_u32..8, select(vec![1_u32, 2]), any::<u64>());
    (orders, device, pool, prop::bool::weighted(0.1)).prop_map(
        |(order, (fence, remap, soft_invalidate, chooses_tags, max_batch), pool, ends)| Setting {
            order,
            fence,
            remap,
            soft_invalidate,
            chooses_tags,
            max_batch,
            capacity: pool.0,
            shards: pool.1,
            seed: pool.2,
            ends_without_device: ends,
        },
    )
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        12 => (1..=MAX_LEN, accesses(), any::<bool>())
            .prop_map(|(len, access, waits)| Step::Lease { len, access, waits }),
        1 => select(vec![0, MAX_LEN + 513, 1 << 20])
            .prop_map(|len| Step::Lease { len, access: Access::all(), waits: true }),
        2 => (1..=MAX_LEN, accesses())
            .prop_map(|(len, access)| Step::LeaseChained { len, access }),
        4 => (batches(), any::<bool>(), any::<bool>())
            .prop_map(|(wanted, waits, chained)| Step::LeaseBatch { wanted, waits, chained }),
        5 => index().prop_map(Step::Release),
        2 => index().prop_map(Step::ReleasePending),
        2 => index().prop_map(Step::Drop),
        2 => index().prop_map(Step::Invalidate),
        1 => index().prop_map(Step::PeerInvalidates),
        2 => index().prop_map(Step::Poll),
        1 => index().prop_map(Step::WaitForNoTime),
        1 => index().prop_map(Step::DropPending),
        1 => index().prop_map(Step::LeaveToPool),
        2 => (0..6_usize).prop_map(Step::Reclaim),
        2 => Just(Step::Flush),
        4 => (0..300_u32).prop_map(Step::Pass),
        1 => (300..3000_u32).prop_map(Step::Pass),
        2 => Just(Step::DoWhatIsDue),
        1 => Just(Step::GiveUpFlush),
        1 => (0..20_u32).prop_map(Step::SlowFlush),
        6 => (index(), any::<bool>()).prop_map(|(key, writes)| Step::Access { key, writes }),
        2 => faults().prop_map(|(call, fault)| Step::Fault(call, fault)),
    ]
}

/// More than the pool has, now and then, and now and then with a buffer that does not fit.
fn batches() -> impl Strategy<Value = Vec<(usize, Access)>> {
    let len = prop_oneof![30 => 1..=MAX_LEN, 1 => Just(0), 1 => Just(MAX_LEN + 513)];
    prop::collection::vec((len, accesses()), 0..10)
}

fn accesses() -> impl Strategy<Value = Access> {
    prop_oneof![
        3 => Just(Access::all()),
        1 => Just(Access::REMOTE_READ),
        1 => Just(Access::REMOTE_WRITE),
    ]
}

fn faults() -> impl Strategy<Value = (Call, Fault)> {
    let kinds = select(vec![
        ErrorKind::NoMemory,
        ErrorKind::Busy,
        ErrorKind::Denied,
        ErrorKind::TimedOut,
        ErrorKind::Io,
    ]);
    let calls = select(vec![
        Call::Map,
        Call::Map,
        Call::Invalidate,
        Call::Invalidate,
    ]);
    (calls, kinds, 0..3).prop_map(|(call, kind, how)| {
        let fault = match how {
            0 => Fault::Fail(kind),
            1 => Fault::HalfDone(kind),
            _ => Fault::LostAnswer(kind),
        };
        (call, fault)
    })
}
