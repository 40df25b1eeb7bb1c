//! Several maps in one call.

use super::trial::{ALL, LEN, Region, Trial, Verdict};
use super::{Harness, Place};
use crate::{BackendError, KeyTag, Keys, MapJob, MemoryRange, MrBackend};

type Error<H> = <<H as Harness>::Backend as MrBackend>::Error;
type Answer<H> = Option<Result<Keys, Error<H>>>;

/// Regions of a batch that any backend takes, in several chains if need be.
const COUNT: usize = 8;

impl<H: Harness> Trial<H> {
    /// A job for each region and its memory, with tags from `tag` on.
    pub(super) fn jobs<'a>(
        &self,
        regions: impl IntoIterator<Item = &'a mut Region<H>>,
        memory: &'a mut [H::Memory],
        tag: u8,
    ) -> Vec<MapJob<'a, Region<H>, Error<H>>>
    where
        Region<H>: 'a,
    {
        let pairs = regions.into_iter().zip(memory).zip(tag..);
        pairs
            .map(|((region, memory), tag)| {
                let range = MemoryRange::of(memory).unwrap();
                MapJob::new(region, range, ALL, KeyTag::new(tag))
            })
            .collect()
    }

    pub(super) fn memory(&self, count: usize) -> Vec<H::Memory> {
        (0..count).map(|_| self.harness.memory(LEN)).collect()
    }

    /// Where a peer finds the memory through these keys.
    pub(super) fn place_of(memory: &H::Memory, keys: Keys) -> Place {
        let addr = memory.as_ref().as_ptr().expose_provenance() as u64;
        let key = keys.remote;
        Place { key, addr }
    }
}

pub(super) fn answers<R, E>(jobs: Vec<MapJob<'_, R, E>>) -> Vec<Option<Result<Keys, E>>> {
    jobs.into_iter().map(MapJob::into_answer).collect()
}

/// Each key of the batch works, and reaches the memory of its own job.
pub fn a_batch_of_maps_gives_each_its_key<H: Harness>(trial: &Trial<H>) -> Verdict {
    let mut regions: Vec<_> = (0..COUNT).map(|_| trial.alloc()).collect();
    let mut memory = trial.memory(COUNT);
    for round in 0..3 {
        let mut jobs = trial.jobs(&mut regions, &mut memory, round * 16);
        trial.backend().map_batch(&mut jobs);
        let answers = answers(jobs);
        let keys: Vec<_> = answers
            .into_iter()
            .map(|keys| keys.unwrap().unwrap())
            .collect();
        let places: Vec<_> = memory
            .iter()
            .zip(&keys)
            .map(|(memory, keys)| Trial::<H>::place_of(memory, *keys))
            .collect();
        for (n, place) in places.iter().enumerate() {
            if trial.backend().capabilities().tag_bits == 8 {
                assert_eq!(place.key.tag(), KeyTag::new(round * 16 + n as u8));
            }
            trial.assert_writes(*place, &[round, n as u8, 7]);
        }
        regions
            .iter_mut()
            .for_each(|region| trial.invalidate(region));
        for (n, memory) in memory.iter().enumerate() {
            assert_eq!(memory.as_ref()[..4], [round, n as u8, 7, 0]);
        }
        for place in [places[0], places[COUNT - 1]] {
            trial.assert_write_refused(place);
        }
    }
    Verdict::Holds
}

/// Nothing is asked, and nothing happens.
pub fn an_empty_batch_of_maps_is_nothing<H: Harness>(trial: &Trial<H>) -> Verdict {
    trial.backend().map_batch(&mut []);
    let (mut region, _memory, place) = trial.mapped(1);
    trial.assert_writes(place, b"works");
    trial.invalidate(&mut region);
    Verdict::Holds
}

/// One region of the batch is not the backend's own. What is said to be mapped works, and the regions
/// behind are as they were, so that they can be mapped.
pub fn a_batch_of_maps_that_fails_half_way_says_which<H: Harness>(trial: &Trial<H>) -> Verdict {
    let foreign_at = 3;
    let other = trial.harness.another_backend();
    let mut regions: Vec<_> = (0..COUNT).map(|_| trial.alloc()).collect();
    let mut memory = trial.memory(COUNT);
    let own = std::mem::replace(&mut regions[foreign_at], other.alloc().unwrap());
    let mut jobs = trial.jobs(&mut regions, &mut memory, 1);
    trial.backend().map_batch(&mut jobs);
    let answers = answers(jobs);
    check_half_way::<H>(trial, &answers, &memory, foreign_at);

    let foreign = std::mem::replace(&mut regions[foreign_at], own);
    other.dealloc(foreign).unwrap();
    for (region, answer) in regions.iter_mut().zip(&answers) {
        if matches!(answer, Some(Ok(_))) {
            trial.invalidate(region);
        }
    }
    let mut jobs = trial.jobs(&mut regions, &mut memory, 100);
    trial.backend().map_batch(&mut jobs);
    for answer in self::answers(jobs) {
        answer.unwrap().unwrap();
    }
    regions
        .iter_mut()
        .for_each(|region| trial.invalidate(region));
    Verdict::Holds
}

/// What is mapped works, the failure at `failed` leaves its region known, and nothing behind it is
/// mapped.
pub(super) fn check_half_way<H: Harness>(
    trial: &Trial<H>,
    answers: &[Answer<H>],
    memory: &[H::Memory],
    failed: usize,
) {
    for (n, (answer, memory)) in answers.iter().zip(memory).enumerate() {
        match answer {
            Some(Ok(keys)) => {
                assert!(n < failed, "{n}");
                trial.assert_writes(Trial::<H>::place_of(memory, *keys), b"mapped");
            }
            Some(Err(error)) => {
                assert_eq!(n, failed, "{error}");
                assert!(error.kind().leaves_region_known(), "{error}");
            }
            None => {}
        }
    }
    assert!(matches!(answers[failed], Some(Err(_))));
}
