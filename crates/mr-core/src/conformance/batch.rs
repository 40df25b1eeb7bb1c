//! Many regions, one fence.

use super::Harness;
use super::trial::{Region, Trial, Verdict};
use crate::MrBackend;

/// Each key of a batch is dead, the first, the last and those between.
pub fn a_batch_kills_every_key_of_it<H: Harness>(trial: &Trial<H>) -> Verdict {
    let count = trial.backend().capabilities().max_batch.min(8);
    let mut mapped: Vec<_> = (0..count).map(|n| trial.mapped(n as u8)).collect();
    for (_, _, place) in &mapped {
        trial.assert_writes(*place, b"alive");
    }
    let mut batch: Vec<&mut Region<H>> = mapped.iter_mut().map(|(region, ..)| region).collect();
    trial.backend().invalidate(&mut batch).unwrap();
    for (_, memory, place) in &mapped {
        trial.assert_write_refused(*place);
        assert_eq!(&memory.as_ref()[..6], b"alive\0");
    }
    Verdict::Holds
}

/// What the capabilities promise is taken (as far as 1024 regions go), and does what it says.
pub fn the_longest_batch_is_taken<H: Harness>(trial: &Trial<H>) -> Verdict {
    let capabilities = trial.backend().capabilities();
    let count = capabilities
        .max_batch
        .min(capabilities.max_regions as usize)
        .min(1024);
    let mut memory = trial.harness.memory(64);
    let mut regions: Vec<_> = (0..count).map(|_| trial.alloc()).collect();
    // All over the same memory: more than one region may be.
    let places: Vec<_> = regions
        .iter_mut()
        .map(|region| trial.map(region, &mut memory, 1))
        .collect();
    let mut batch: Vec<&mut Region<H>> = regions.iter_mut().collect();
    trial.backend().invalidate(&mut batch).unwrap();
    for place in [places[0], places[count / 2], places[count - 1]] {
        trial.assert_write_refused(place);
    }
    for region in regions {
        trial.backend().dealloc(region).unwrap();
    }
    Verdict::Holds
}

/// The pool may ask for what never got a key, or has lost it.
pub fn a_region_without_a_key_may_be_in_a_batch<H: Harness>(trial: &Trial<H>) -> Verdict {
    let mut blank = trial.alloc();
    trial.invalidate(&mut blank);
    if trial.backend().capabilities().max_batch > 1 {
        let (mut region, _memory, place) = trial.mapped(1);
        trial
            .backend()
            .invalidate(&mut [&mut blank, &mut region])
            .unwrap();
        trial.assert_write_refused(place);
    }
    Verdict::Holds
}

/// A retry after a success that was taken for a failure does no harm, and the region works on.
pub fn an_invalidation_can_be_repeated<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (mut region, mut memory, place) = trial.mapped(1);
    trial.invalidate(&mut region);
    trial.invalidate(&mut region);
    trial.assert_write_refused(place);
    let place = trial.map(&mut region, &mut memory, 2);
    trial.assert_writes(place, b"again");
    trial.invalidate(&mut region);
    Verdict::Holds
}

/// One region of the batch is not the backend's own, so its invalidation fails. The answer says
/// for each of the others what is true, and what failed can be tried again.
pub fn a_half_failed_batch_says_which_half<H: Harness>(trial: &Trial<H>) -> Verdict {
    if trial.backend().capabilities().max_batch < 3 {
        return Verdict::RuledOut("it takes too few regions at once");
    }
    let (mut before, _before_memory, before_place) = trial.mapped(1);
    let (mut after, _after_memory, after_place) = trial.mapped(2);
    let other = trial.harness.another_backend();
    let mut foreign = other.alloc().unwrap();
    let failure = trial
        .backend()
        .invalidate(&mut [&mut before, &mut foreign, &mut after])
        .unwrap_err();
    assert!(!failure.is_dead(1), "{failure}");
    assert!(failure.error(1).is_some());
    for (place, dead) in [
        (before_place, failure.is_dead(0)),
        (after_place, failure.is_dead(2)),
    ] {
        if dead {
            trial.assert_write_refused(place);
        }
    }
    trial
        .backend()
        .invalidate(&mut [&mut before, &mut after])
        .unwrap();
    trial.assert_write_refused(before_place);
    trial.assert_write_refused(after_place);
    other.dealloc(foreign).unwrap();
    Verdict::Holds
}
