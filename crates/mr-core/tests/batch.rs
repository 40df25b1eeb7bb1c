//! Leases in batches: waiting, and what can go wrong in the middle.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

#[path = "../../mr-policies/tests/support/mod.rs"]
mod support;

use mr_core::{
    Access, BackendError, BatchError, Capabilities, DeallocError, Driver, ErrorKind, KeyTag, Keys,
    LeaseRefusal, ManualClock, MapJob, MemoryRange, MrBackend, OwnedLease, Pool, RemoteKey,
    Shortage,
};
use mr_mock::{
    Call, Fault, FaultBackend, FaultPlan, MockHca, MockRegion, Preset, RemotePeer, When,
};
use mr_policies::UseOnce;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use support::{Buffer, Morgue};

const ALL: Access = Access::all();
/// Longer than any test: what waits for so long hangs.
const LONG: Duration = Duration::from_secs(3600);

fn hca() -> MockHca {
    MockHca::new(&Preset::named("connectx-5").unwrap())
}

fn pool<B: MrBackend>(backend: B, capacity: u32) -> Arc<Pool<B, Buffer>> {
    let pool = Pool::builder(backend, UseOnce)
        .capacity(capacity)
        .clock(Arc::new(ManualClock::new()))
        .configure(|config| {
            config.driver = Driver::Manual;
            config.max_unclaimed = Some(100);
            // Until the test says so: see `flush`.
            config.max_stale = Some(u32::MAX);
        })
        .build();
    Arc::new(pool.unwrap())
}

fn wanted(morgue: &Morgue, count: u64) -> Vec<(Buffer, Access)> {
    (0..count)
        .map(|name| (Buffer::new(name, 64, morgue), ALL))
        .collect()
}

fn refusal<L: std::fmt::Debug, E: BackendError>(
    leased: Result<L, mr_core::LeaseError<E, Buffer>>,
) -> (LeaseRefusal<E>, Option<u64>) {
    let refused = leased.unwrap_err();
    (refused.reason, refused.buffer.map(|buffer| buffer.name))
}

/// With all regions its own there is nobody to wait for.
#[test]
fn a_batch_longer_than_the_pool_does_not_wait_for_itself() {
    let (pool, morgue) = (pool(hca(), 4), Morgue::default());
    let mut leased = pool.lease_batch(wanted(&morgue, 10), Shortage::Wait(LONG));
    assert_eq!(leased.len(), 10);
    for (name, leased) in (5..10).zip(leased.drain(5..)) {
        let (reason, back) = refusal(leased);
        assert!(matches!(reason, LeaseRefusal::NotTried), "{reason}");
        assert_eq!(back, Some(name));
    }
    let (reason, back) = refusal(leased.pop().unwrap());
    let full = matches!(
        reason,
        LeaseRefusal::Exhausted {
            leased: 4,
            capacity: 4,
            ..
        }
    );
    assert!(full, "{reason}");
    assert_eq!(back, Some(4));
    assert!(leased.iter().all(Result::is_ok));
    assert_eq!(pool.stats().regions.leased, 4);
}

/// Many are drawn with one hold of a lock, but no more than some: the others follow, in their order.
#[test]
fn a_batch_longer_than_one_hold_of_the_lock_is_leased_as_a_whole() {
    let (pool, morgue) = (pool(hca(), 200), Morgue::default());
    let leased = pool.lease_batch(wanted(&morgue, 200), Shortage::TakeFewer);
    let leases: Vec<_> = leased.into_iter().map(Result::unwrap).collect();
    let mut keys: Vec<_> = leases.iter().map(|lease| lease.remote_key()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 200);
    let buffers = leases.into_iter().map(|lease| lease.invalidate().unwrap());
    assert!(buffers.map(|buffer| buffer.name).eq(0..200));
}

/// Those before it are leased, those behind it come back.
#[test]
fn a_buffer_that_fits_no_region_ends_its_batch() {
    let (pool, morgue) = (pool(hca(), 8), Morgue::default());
    for unfit in 0..4 {
        let mut batch = wanted(&morgue, 4);
        batch[unfit].0 = Buffer::new(unfit as u64, 0, &morgue);
        let leased = pool.lease_batch(batch, Shortage::TakeFewer);
        for (place, leased) in leased.into_iter().enumerate() {
            if place < unfit {
                assert_eq!(leased.unwrap().invalidate().unwrap().name, place as u64);
                continue;
            }
            let (reason, back) = refusal(leased);
            assert_eq!(back, Some(place as u64));
            assert_eq!(
                place == unfit,
                matches!(reason, LeaseRefusal::ZeroLength),
                "{reason}"
            );
        }
    }
}

/// Those that are free go out at once, the others when somebody has released them.
#[test]
fn a_batch_waits_for_regions_of_others() {
    let (pool, morgue) = (pool(hca(), 4), Morgue::default());
    let held: Vec<_> = pool.lease_batch_owned(wanted(&morgue, 3), Shortage::TakeFewer);
    thread::scope(|scope| {
        let batch = scope.spawn(|| {
            let leased = pool.lease_batch_owned(wanted(&morgue, 4), Shortage::Wait(LONG));
            leased.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        });
        let started = Instant::now();
        while pool.stats().waits == 0 || pool.stats().regions.leased < 4 {
            assert!(started.elapsed() < Duration::from_secs(60), "nobody waits");
            thread::yield_now();
        }
        for lease in held {
            lease.unwrap().invalidate().unwrap();
        }
        let leases = batch.join().unwrap();
        let mut keys: Vec<_> = leases.iter().map(OwnedLease::remote_key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4);
    });
    assert_eq!(pool.stats().regions.leased, 0);
}

/// Each has what the other waits for: both end, and nothing is lost.
#[test]
fn two_batches_that_wait_for_each_other_end() {
    let (pool, morgue) = (pool(hca(), 4), Morgue::default());
    let shortage = Shortage::Wait(Duration::from_millis(20));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let leased = pool.lease_batch(wanted(&morgue, 4), shortage);
                    let given = leased.iter().filter(|leased| leased.is_ok()).count();
                    let back = leased.into_iter().filter_map(Result::err);
                    assert_eq!(
                        given + back.filter(|refused| refused.buffer.is_some()).count(),
                        4
                    );
                }
            });
        }
    });
    pool.flush().unwrap();
    let regions = pool.stats().regions;
    assert_eq!((regions.clean, regions.leased), (4, 0), "{regions:?}");
}

#[test]
fn a_batch_of_nothing_is_nothing() {
    let pool = pool(hca(), 2);
    assert!(pool.lease_batch([], Shortage::Wait(LONG)).is_empty());
    assert_eq!(pool.stats().regions.clean, 2);
}

/// Nobody waits, nothing is flushed, and a pool that is closed gives everything back.
#[test]
fn a_batch_that_takes_fewer_does_nothing_to_have_more() {
    let (pool, morgue) = (pool(hca(), 4), Morgue::default());
    drop(pool.lease_batch(wanted(&morgue, 3), Shortage::TakeFewer));
    let leased = pool.lease_batch(wanted(&morgue, 3), Shortage::TakeFewer);
    assert_eq!(leased.iter().filter(|leased| leased.is_ok()).count(), 1);
    let stats = pool.stats();
    assert_eq!((stats.flushes, stats.waits, stats.regions.worn), (0, 0, 3));
    drop(leased);
    let leased = pool.lease_batch(wanted(&morgue, 4), Shortage::Wait(Duration::ZERO));
    assert!(leased.iter().all(Result::is_ok), "it helps to flush");
    drop(leased);
    assert!(pool.shutdown(Duration::from_secs(5)).is_complete());
    let leased = pool.lease_batch(wanted(&morgue, 2), Shortage::Wait(LONG));
    let reasons: Vec<_> = leased.into_iter().map(|leased| refusal(leased).0).collect();
    assert!(matches!(
        reasons[..],
        [LeaseRefusal::Closed, LeaseRefusal::NotTried]
    ));
}

/// A backend whose batches fail in the worst way: nobody knows what became of the second and the
/// fourth region, the third was undone, and those behind were not tried.
#[derive(Debug)]
struct HalfKnown(MockHca);

#[derive(Debug, thiserror::Error)]
#[error("the answer was lost")]
struct Lost;

impl BackendError for Lost {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Io
    }
}

// SAFETY: what is said to be dead the backend inside has said to be dead.
unsafe impl MrBackend for HalfKnown {
    type Region = MockRegion;
    type Error = Lost;

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn alloc(&self) -> Result<MockRegion, Lost> {
        self.0.alloc().map_err(|_| Lost)
    }

    fn map(
        &self,
        region: &mut MockRegion,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, Lost> {
        self.0.map(region, memory, access, tag).map_err(|_| Lost)
    }

    fn map_batch(&self, batch: &mut [MapJob<'_, MockRegion, Lost>]) {
        for (place, job) in batch.iter_mut().enumerate().take(4) {
            job.run(|region, memory, access, tag| self.map(region, memory, access, tag));
            match place {
                1 | 3 => job.answer(Err(Lost)),
                _ => {}
            }
        }
    }

    fn invalidate(&self, batch: &mut [&mut MockRegion]) -> Result<(), BatchError<Lost>> {
        self.0.invalidate(batch).map_err(|_| BatchError::all(Lost))
    }

    fn dealloc(&self, region: MockRegion) -> Result<(), DeallocError<MockRegion, Lost>> {
        self.0.dealloc(region).map_err(|failed| DeallocError {
            region: failed.region,
            error: Lost,
        })
    }
}

fn writes(peer: &RemotePeer, key: RemoteKey) -> bool {
    peer.recover();
    peer.write(key, 0, b"x").is_ok()
}

/// The memory of each key that may be alive stays with the pool until it is dead, wherever in the
/// batch it was; everything else goes on.
#[test]
fn regions_of_a_batch_of_which_nobody_knows_are_quarantined_with_their_memory() {
    let hca = hca();
    let peer = hca.connect();
    let (pool, morgue) = (pool(HalfKnown(hca), 8), Morgue::default());
    let leased = pool.lease_batch(wanted(&morgue, 6), Shortage::Wait(LONG));
    let mut leases = Vec::new();
    let mut back = Vec::new();
    for (place, leased) in leased.into_iter().enumerate() {
        match leased {
            Ok(lease) => {
                assert!(writes(&peer, lease.remote_key()));
                leases.push((place, lease));
            }
            Err(refused) => back.push((
                place,
                matches!(refused.reason, LeaseRefusal::NotTried),
                refused.buffer.is_some(),
            )),
        }
    }
    let given: Vec<_> = leases.iter().map(|(place, _)| *place).collect();
    assert_eq!(given, [0, 2]);
    let lost = |place| (place, false, false);
    let untried = |place| (place, true, true);
    assert_eq!(back, [lost(1), lost(3), untried(4), untried(5)]);
    let regions = pool.stats().regions;
    assert_eq!((regions.quarantined, regions.leased), (2, 2), "{regions:?}");
    assert_eq!(morgue.take(), [4, 5], "what came back was dropped here");
    drop(leases);
    pool.flush().unwrap();
    assert_eq!(pool.stats().regions.clean, 8);
    let mut reclaimed = Vec::new();
    assert_eq!(pool.reclaim(&mut reclaimed, 9), 2);
    let mut names: Vec<_> = reclaimed.iter().map(|buffer| buffer.name).collect();
    names.sort_unstable();
    assert_eq!(names, [1, 3]);
    assert!(pool.shutdown(Duration::from_secs(5)).is_complete());
}

/// What the backend had answered before it panicked is leased; of the rest nothing is known, so its
/// memory is not freed.
#[test]
fn a_backend_that_panics_in_a_batch_has_its_memory_kept() {
    let plan = FaultPlan::none().on(Call::Map, When::Nth(3), Fault::Panic);
    let (pool, morgue) = (pool(FaultBackend::new(hca(), plan), 8), Morgue::default());
    let leased = pool.lease_batch(wanted(&morgue, 5), Shortage::Wait(LONG));
    let outcome: Vec<_> = leased
        .iter()
        .map(|leased| {
            leased
                .as_ref()
                .map_or_else(|refused| refused.buffer.is_some(), |_| true)
        })
        .collect();
    assert_eq!(outcome, [true, true, false, false, false]);
    assert!(
        leased[2]
            .as_ref()
            .unwrap_err()
            .to_string()
            .contains("poisoned")
    );
    drop(leased);
    drop(pool);
    assert_eq!(
        morgue.take(),
        [0_u64; 0],
        "memory was freed that a key may reach"
    );
}

/// A region that was refused in the middle keeps its tag, and the next use of each key is another.
#[test]
fn a_batch_that_is_refused_in_the_middle_can_be_tried_again() {
    let plan = FaultPlan::none().on(Call::Map, When::Every(4), Fault::Fail(ErrorKind::Busy));
    let backend = FaultBackend::new(hca(), plan);
    let (pool, morgue) = (pool(backend, 8), Morgue::default());
    let mut keys = std::collections::HashSet::new();
    let mut todo = wanted(&morgue, 30);
    let mut refused = 0;
    for _ in 0..100 {
        for leased in pool.lease_batch(std::mem::take(&mut todo), Shortage::Wait(Duration::ZERO)) {
            match leased {
                Ok(lease) => assert!(keys.insert(lease.remote_key())),
                Err(error) => {
                    refused += u64::from(matches!(error.reason, LeaseRefusal::Backend(_)));
                    todo.push((error.buffer.unwrap(), ALL));
                }
            }
        }
    }
    assert!(todo.is_empty());
    assert_eq!(keys.len(), 30);
    let stats = pool.stats();
    assert_eq!((stats.leases, stats.refused), (30, refused));
}
