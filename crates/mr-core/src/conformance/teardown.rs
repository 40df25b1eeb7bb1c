//! The end of regions.

use super::Harness;
use super::trial::{Trial, Verdict};
use crate::MrBackend;

/// A region with a live key comes back in the error, as it was.
pub fn a_mapped_region_is_not_freed<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (region, memory, place) = trial.mapped(1);
    let refused = trial.backend().dealloc(region).unwrap_err();
    trial.assert_writes(place, b"alive");
    assert_eq!(&memory.as_ref()[..5], b"alive");
    let mut region = refused.region;
    trial.invalidate(&mut region);
    trial.backend().dealloc(region).unwrap();
    Verdict::Holds
}

/// Whatever the order, mapped before or never.
pub fn regions_are_freed_in_any_order<H: Harness>(trial: &Trial<H>) -> Verdict {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut regions: Vec<_> = (0..3).map(|_| Some(trial.alloc())).collect();
        let mut memory = trial.harness.memory(64);
        for region in regions.iter_mut().skip(1).flatten() {
            trial.map(region, &mut memory, 1);
            trial.invalidate(region);
        }
        for place in order {
            trial
                .backend()
                .dealloc(regions[place].take().unwrap())
                .unwrap();
        }
    }
    Verdict::Holds
}

/// Also when another region has its index by now.
pub fn a_freed_regions_last_key_is_refused<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (mut region, memory, place) = trial.mapped(1);
    trial.invalidate(&mut region);
    trial.backend().dealloc(region).unwrap();
    trial.assert_write_refused(place);
    let (mut next, next_memory, next_place) = trial.mapped(2);
    if next_place.key != place.key {
        trial.assert_write_refused(place);
    }
    trial.invalidate(&mut next);
    for memory in [memory, next_memory] {
        assert!(memory.as_ref().iter().all(|&byte| byte == 0));
    }
    Verdict::Holds
}
