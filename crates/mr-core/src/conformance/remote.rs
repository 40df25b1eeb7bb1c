//! Invalidation by the peer.

use super::Harness;
use super::trial::{Trial, Verdict};
use crate::{MrBackend, RemoteKey};

/// The key is dead, the backend knows, and the region can be mapped again without an invalidation.
pub fn a_peer_can_end_a_mapping<H: Harness>(trial: &Trial<H>) -> Verdict {
    let backend = trial.backend();
    if !backend.capabilities().remote_invalidate {
        return Verdict::RuledOut("no peer can invalidate its keys");
    }
    let (mut region, mut memory, place) = trial.mapped(1);
    let (mut other, _other_memory, other_place) = trial.mapped(1);
    assert!(!backend.invalidated_by_peer(&mut region));
    trial.assert_writes(place, b"done");
    trial.harness.invalidate(place.key).unwrap();
    assert!(!backend.invalidated_by_peer(&mut other));
    assert!(backend.invalidated_by_peer(&mut region));
    trial.assert_writes(other_place, b"alive");

    let next = trial.map(&mut region, &mut memory, 2);
    assert_ne!(next.key, place.key);
    trial.assert_writes(next, b"next");
    trial.assert_write_refused(place);
    backend.invalidate(&mut [&mut region]).unwrap();
    backend.invalidate(&mut [&mut other]).unwrap();
    assert_eq!(&memory.as_ref()[..5], b"next\0");
    Verdict::Holds
}

/// A peer that makes keys up, or uses one of an earlier mapping, ends no lease by it.
pub fn a_peer_that_invalidates_a_wrong_key_ends_no_mapping<H: Harness>(
    trial: &Trial<H>,
) -> Verdict {
    let backend = trial.backend();
    if !backend.capabilities().remote_invalidate {
        return Verdict::RuledOut("no peer can invalidate its keys");
    }
    let (mut region, mut memory, earlier) = trial.mapped(1);
    trial.invalidate(&mut region);
    let made_up = RemoteKey::new(earlier.key.index() ^ 0x5a_0000, earlier.key.tag());
    for (tag, wrong) in [(2, earlier.key), (3, made_up)] {
        let place = trial.map(&mut region, &mut memory, tag);
        // Whether the peer hears of it is up to the HCA.
        let _ = trial.harness.invalidate(wrong);
        assert!(!backend.invalidated_by_peer(&mut region), "by {wrong}");
        trial.harness.recover();
        assert!(!backend.invalidated_by_peer(&mut region), "by {wrong}");
        trial.invalidate(&mut region);
        trial.assert_write_refused(place);
    }
    Verdict::Holds
}

/// A peer that repeats itself ends nothing the second time, nor does the region mind.
pub fn a_peer_that_invalidates_a_key_again_ends_no_other_mapping<H: Harness>(
    trial: &Trial<H>,
) -> Verdict {
    let backend = trial.backend();
    if !backend.capabilities().remote_invalidate {
        return Verdict::RuledOut("no peer can invalidate its keys");
    }
    let (mut other, _memory, other_place) = trial.mapped(1);
    let (mut ended, mut ended_memory, ended_place) = trial.mapped(1);
    trial.harness.invalidate(ended_place.key).unwrap();
    let _ = trial.harness.invalidate(ended_place.key);
    trial.harness.recover();
    assert!(!backend.invalidated_by_peer(&mut other));
    assert!(backend.invalidated_by_peer(&mut ended));
    let next = trial.map(&mut ended, &mut ended_memory, 2);
    assert!(!backend.invalidated_by_peer(&mut ended));
    trial.assert_writes(next, b"mine");
    trial.invalidate(&mut other);
    trial.invalidate(&mut ended);
    trial.assert_write_refused(other_place);
    Verdict::Holds
}
