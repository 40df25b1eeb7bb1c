//! Maps with the request behind them, for backends that can chain the two.

use super::maps::{answers, check_half_way};
use super::pool::{PATIENCE, PoolOf, place, pool};
use super::trial::{ALL, LEN, Trial, Verdict};
use super::{Harness, PeerError};
use crate::{
    ChainedMap, DmaBuffer, KeyTag, Keys, Lease, LeaseRefusal, LeaseResult, MemoryRange, MrBackend,
    RemoteKey, Shortage,
};
use std::ops::Deref;
use std::sync::Arc;

type Leased<H, P> = LeaseResult<
    Lease<Arc<<H as Harness>::Backend>, <H as Harness>::Memory, P>,
    Arc<<H as Harness>::Backend>,
    <H as Harness>::Memory,
>;

/// A [`Harness`] for a backend that sends requests behind its maps.
///
/// Its checks are run by [`conformance_chained!`](crate::conformance_chained!), beside those of
/// [`conformance!`](crate::conformance!).
pub trait ChainedHarness: Harness<Backend: ChainedMap> {
    /// A request that tells the peer of a key.
    fn request(&self, key: RemoteKey) -> <Self::Backend as ChainedMap>::Request;

    /// The key in the next request that the peer gets; waits for it, in bounded time.
    ///
    /// # Errors
    ///
    /// No request has come.
    fn hear(&self) -> Result<RemoteKey, PeerError>;
}

impl<H: ChainedHarness> Trial<H> {
    fn announce(&self) -> impl Fn(Keys) -> <H::Backend as ChainedMap>::Request {
        |keys| self.harness.request(keys.remote)
    }

    fn announce_each(&self) -> impl FnMut(usize, Keys) -> <H::Backend as ChainedMap>::Request {
        |_, keys| self.harness.request(keys.remote)
    }
}

/// When the peer has the request, the key in it works; and afterwards it dies as others do.
pub fn a_key_that_the_peer_hears_of_works<H: ChainedHarness>(trial: &Trial<H>) -> Verdict {
    let mut region = trial.alloc();
    let mut memory = trial.harness.memory(LEN);
    for round in 0..20 {
        let range = MemoryRange::of(&mut memory).unwrap();
        let tag = KeyTag::new(round);
        let mut request = trial.announce();
        let keys = trial
            .backend()
            .map_chained(&mut region, range, ALL, tag, &mut request)
            .unwrap();
        assert_eq!(trial.harness.hear(), Ok(keys.remote));
        trial.assert_writes(Trial::<H>::place_of(&memory, keys), &[round; 3]);
        trial.invalidate(&mut region);
        assert_eq!(memory.as_ref()[..4], [round, round, round, 0]);
        if round % 10 == 9 {
            trial.assert_write_refused(Trial::<H>::place_of(&memory, keys));
        }
    }
    Verdict::Holds
}

/// All requests arrive, in the order of the jobs, and each key that arrives works.
pub fn requests_behind_a_batch_of_maps_arrive_in_order<H: ChainedHarness>(
    trial: &Trial<H>,
) -> Verdict {
    let mut regions: Vec<_> = (0..40).map(|_| trial.alloc()).collect();
    let mut memory = trial.memory(40);
    for round in 0..3 {
        let mut jobs = trial.jobs(&mut regions, &mut memory, round * 64);
        let mut request = trial.announce_each();
        trial.backend().map_batch_chained(&mut jobs, &mut request);
        let answers = answers(jobs);
        let keys: Vec<_> = answers
            .into_iter()
            .map(|keys| keys.unwrap().unwrap())
            .collect();
        for (n, (memory, keys)) in memory.iter().zip(&keys).enumerate() {
            assert_eq!(trial.harness.hear(), Ok(keys.remote), "request {n}");
            trial.assert_writes(Trial::<H>::place_of(memory, *keys), &[round, n as u8, 7]);
        }
        regions
            .iter_mut()
            .for_each(|region| trial.invalidate(region));
        for (n, memory) in memory.iter().enumerate() {
            assert_eq!(memory.as_ref()[..4], [round, n as u8, 7, 0]);
        }
        trial.assert_write_refused(Trial::<H>::place_of(&memory[39], keys[39]));
    }
    Verdict::Holds
}

/// Requests of jobs that are said to be mapped arrive; no other request does.
pub fn requests_behind_a_batch_that_fails_half_way_are_those_of_its_maps<H: ChainedHarness>(
    trial: &Trial<H>,
) -> Verdict {
    let foreign_at = 5;
    let other = trial.harness.another_backend();
    let mut regions: Vec<_> = (0..8).map(|_| trial.alloc()).collect();
    let mut memory = trial.memory(8);
    let own = std::mem::replace(&mut regions[foreign_at], other.alloc().unwrap());
    let mut jobs = trial.jobs(&mut regions, &mut memory, 1);
    let mut request = trial.announce_each();
    trial.backend().map_batch_chained(&mut jobs, &mut request);
    let answers = answers(jobs);
    let mapped = answers
        .iter()
        .filter_map(|answer| answer.as_ref()?.as_ref().ok());
    for keys in mapped {
        assert_eq!(trial.harness.hear(), Ok(keys.remote));
    }
    check_half_way::<H>(trial, &answers, &memory, foreign_at);
    let foreign = std::mem::replace(&mut regions[foreign_at], own);
    other.dealloc(foreign).unwrap();
    for (region, answer) in regions.iter_mut().zip(&answers) {
        if matches!(answer, Some(Ok(_))) {
            trial.invalidate(region);
        }
    }
    // The next request that the peer gets is the next that is sent.
    let range = MemoryRange::of(&mut memory[0]).unwrap();
    let mut request = trial.announce();
    let keys = trial
        .backend()
        .map_chained(&mut regions[0], range, ALL, KeyTag::new(99), &mut request)
        .unwrap();
    assert_eq!(trial.harness.hear(), Ok(keys.remote));
    trial.invalidate(&mut regions[0]);
    Verdict::Holds
}

/// More buffers than regions: as many leases as there are regions, whose keys the peer hears of and
/// can use, and every other buffer back.
pub fn a_batch_of_leases_is_announced_as_far_as_it_goes<H: ChainedHarness>(
    trial: &Trial<H>,
) -> Verdict {
    let pool = Arc::new(pool(trial, 6));
    for round in 0..4_u8 {
        let wanted = trial.memory(9).into_iter().map(|memory| (memory, ALL));
        let request = trial.announce_each();
        let shortage = Shortage::TakeFewer;
        let leases = if round % 2 == 0 {
            count_and_use(
                trial,
                &pool,
                pool.lease_batch_chained(wanted, shortage, request),
                round,
            )
        } else {
            let leases = pool.lease_batch_chained_owned(wanted, shortage, request);
            count_and_use(trial, &pool, leases, round)
        };
        assert_eq!(leases, 6);
        pool.flush().unwrap();
        let mut back = Vec::new();
        assert_eq!(pool.reclaim(&mut back, 9), 6);
        let marks = back.iter().map(|memory| memory.as_ref()[..2].to_vec());
        let mut marks: Vec<_> = marks.collect();
        marks.sort_unstable();
        assert_eq!(marks, (0..6).map(|n| vec![round, n]).collect::<Vec<_>>());
    }
    let single = pool.lease_chained(trial.harness.memory(LEN), ALL, trial.announce());
    let owned =
        pool.lease_chained_owned(trial.harness.memory(LEN), ALL, PATIENCE, trial.announce());
    for (key, place) in [
        (
            single.as_ref().unwrap().remote_key(),
            place(single.as_ref().unwrap()),
        ),
        (
            owned.as_ref().unwrap().remote_key(),
            place(owned.as_ref().unwrap()),
        ),
    ] {
        assert_eq!(trial.harness.hear(), Ok(key));
        trial.assert_writes(place, b"single");
    }
    for memory in [single.unwrap().invalidate(), owned.unwrap().invalidate()] {
        assert_eq!(&memory.unwrap().as_ref()[..7], b"single\0");
    }
    assert_eq!(pool.stats().regions.clean, 6);
    assert!(pool.shutdown(PATIENCE).is_complete());
    Verdict::Holds
}

/// Uses what was leased, checks what was not, and releases. Says how many were leased.
fn count_and_use<H: ChainedHarness, P: Deref<Target = PoolOf<H>>>(
    trial: &Trial<H>,
    pool: &PoolOf<H>,
    leased: Vec<Leased<H, P>>,
    round: u8,
) -> usize {
    let mut leases = Vec::new();
    for (n, leased) in leased.into_iter().enumerate() {
        match leased {
            Ok(lease) => {
                assert_eq!(trial.harness.hear(), Ok(lease.remote_key()));
                trial.assert_writes(place(&lease), &[round, n as u8]);
                leases.push(lease);
            }
            Err(refused) if n == leases.len() => {
                assert!(
                    matches!(refused.reason, LeaseRefusal::Exhausted { .. }),
                    "{refused}"
                );
                assert_eq!(refused.buffer.unwrap().len(), LEN);
            }
            Err(refused) => {
                assert!(
                    matches!(refused.reason, LeaseRefusal::NotTried),
                    "{refused}"
                );
                assert_eq!(refused.buffer.unwrap().len(), LEN);
            }
        }
    }
    let count = leases.len();
    assert_eq!(pool.stats().regions.leased as usize, count);
    leases.into_iter().for_each(|lease| lease.release());
    count
}
