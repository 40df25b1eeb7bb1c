//! The backend under the pool.

use super::trial::{ALL, Hoard, LEN, Trial, Verdict};
use super::{Harness, Place};
use crate::{Driver, Lease, MrBackend, Pool};
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

type PoolOf<H> = Pool<Arc<<H as Harness>::Backend>, <H as Harness>::Memory>;

const PATIENCE: Duration = Duration::from_secs(30);

/// A pool that flushes when its regions run out, and not for a long time otherwise.
fn pool<H: Harness>(trial: &Trial<H>, capacity: u32) -> PoolOf<H> {
    Pool::builder(Arc::clone(trial.harness.backend()), Hoard)
        .capacity(capacity)
        .max_age(Duration::from_secs(3600))
        .seed(7)
        .build()
        .unwrap()
}

fn place<B: MrBackend, M: crate::DmaBuffer, P: Deref<Target = Pool<B, M>>>(
    lease: &Lease<B, M, P>,
) -> Place {
    Place {
        key: lease.remote_key(),
        addr: lease.remote_addr(),
    }
}

/// Whoever has the memory back has it alone.
pub fn an_ended_lease_gives_memory_that_no_peer_touches<H: Harness>(trial: &Trial<H>) -> Verdict {
    let pool = pool(trial, 2);
    let lease = pool.lease(trial.harness.memory(LEN), ALL).unwrap();
    let place = place(&lease);
    trial.assert_writes(place, b"in time");
    let memory = lease.invalidate().unwrap();
    trial.assert_write_refused(place);
    assert_eq!(&memory.as_ref()[..8], b"in time\0");
    assert!(pool.shutdown(PATIENCE).is_complete());
    Verdict::Holds
}

/// Under a deferred policy a released key works until the flush, and the pool keeps the memory for
/// so long; after it the key is refused, and the memory is as the last write left it.
pub fn before_the_flush_a_late_write_lands_in_memory_of_the_pool<H: Harness>(
    trial: &Trial<H>,
) -> Verdict {
    if trial.backend().capabilities().soft_invalidate {
        return Verdict::RuledOut("a release may already refuse the key");
    }
    let pool = pool(trial, 2);
    let lease = pool.lease(trial.harness.memory(LEN), ALL).unwrap();
    let place = place(&lease);
    lease.release();
    trial.assert_writes(place, b"late");
    let mut back = [0; 4];
    trial.harness.read(place, 0, &mut back).unwrap();
    assert_eq!(&back, b"late");
    let mut reclaimed = Vec::new();
    assert_eq!(pool.reclaim(&mut reclaimed, 9), 0, "the key is alive");

    pool.flush().unwrap();
    trial.assert_write_refused(place);
    trial.assert_read_refused(place);
    assert_eq!(pool.reclaim(&mut reclaimed, 9), 1);
    assert_eq!(&reclaimed[0].as_ref()[..5], b"late\0");
    assert_eq!(pool.stats().exposure.ended.count(), 1);
    assert!(pool.shutdown(PATIENCE).is_complete());
    Verdict::Holds
}

/// 100 I/Os over 4 regions: each byte arrives where it should, and no region is lost.
pub fn many_leases_over_few_regions_add_up<H: Harness>(trial: &Trial<H>) -> Verdict {
    let pool = pool(trial, 4);
    let mut memory = vec![trial.harness.memory(LEN), trial.harness.memory(LEN)];
    for round in 0..100_u8 {
        if memory.is_empty() {
            pool.flush().unwrap();
            pool.reclaim(&mut memory, 9);
        }
        let lease = pool.lease(memory.pop().unwrap(), ALL).unwrap();
        trial.assert_writes(place(&lease), &[round; 8]);
        if round % 3 == 0 {
            let back = lease.invalidate().unwrap();
            assert_eq!(back.as_ref()[..8], [round; 8]);
            memory.push(back);
        } else {
            lease.release();
        }
    }
    let stats = pool.stats();
    assert_eq!((stats.leases, stats.regions.total()), (100, 4));
    assert_eq!((stats.regions.leased, stats.regions.quarantined), (0, 0));
    let report = pool.shutdown(PATIENCE);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.freed, 4);
    Verdict::Holds
}

/// More threads than regions, each ending its leases in both ways.
pub fn threads_that_lease_and_end_leases_add_up<H: Harness>(trial: &Trial<H>) -> Verdict {
    const THREADS: u8 = 4;
    const ROUNDS: u8 = 50;
    let pool = Pool::builder(Arc::clone(trial.harness.backend()), Hoard)
        .capacity(3)
        .configure(|config| config.lease_timeout = PATIENCE)
        .build()
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, trial) = (&pool, trial);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let lease = pool.lease(trial.harness.memory(LEN), ALL).unwrap();
                    let mark = [thread, round, 1, 2];
                    if round % 2 == 0 {
                        trial.assert_writes(place(&lease), &mark);
                        let memory = lease.invalidate().unwrap();
                        assert_eq!(memory.as_ref()[..4], mark);
                    } else {
                        drop(lease);
                    }
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.regions.total(), stats.quarantines), (3, 0));
    assert_eq!((stats.regions.leased, stats.leased.bytes), (0, 0));
    assert!(pool.shutdown(PATIENCE).is_complete());
    Verdict::Holds
}

/// A lease that outlives the end of its pool still ends: its key dies and its region is freed.
pub fn a_pool_ends_before_its_leases<H: Harness>(trial: &Trial<H>) -> Verdict {
    // Without a flusher thread: whether that is joined in time is another question.
    let pool = Pool::builder(Arc::clone(trial.harness.backend()), Hoard)
        .capacity(2)
        .configure(|config| config.driver = Driver::Manual)
        .build()
        .unwrap();
    let pool = Arc::new(pool);
    let lease = pool
        .lease_owned(trial.harness.memory(LEN), ALL, PATIENCE)
        .unwrap();
    let place = place(&lease);
    let report = pool.shutdown(Duration::from_millis(10));
    assert_eq!((report.leased, report.freed), (1, 1), "{report:?}");
    trial.assert_writes(place, b"alive");
    drop(lease);
    trial.assert_write_refused(place);
    assert_eq!(pool.stats().regions.freed, 2);
    Verdict::Holds
}

/// Remote invalidation as an end of a lease.
pub fn a_lease_that_the_peer_ended_gives_its_memory<H: Harness>(trial: &Trial<H>) -> Verdict {
    if !trial.backend().capabilities().remote_invalidate {
        return Verdict::RuledOut("no peer can invalidate its keys");
    }
    let pool = pool(trial, 2);
    let lease = pool.lease(trial.harness.memory(LEN), ALL).unwrap();
    let place = place(&lease);
    let lease = lease.take_if_peer_invalidated().unwrap_err();
    trial.assert_writes(place, b"done");
    trial.harness.invalidate(place.key).unwrap();
    let memory = lease.take_if_peer_invalidated().unwrap();
    trial.assert_write_refused(place);
    assert_eq!(&memory.as_ref()[..5], b"done\0");
    assert_eq!(pool.stats().regions.clean, 2);
    assert!(pool.shutdown(PATIENCE).is_complete());
    Verdict::Holds
}
