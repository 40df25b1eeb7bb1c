//! What a key allows, and when it stops.

use super::Harness;
use super::trial::{ALL, LEN, Trial, Verdict};
use crate::{Access, KeyTag, MrBackend, Remap};
use std::thread;
use std::time::Duration;

/// Capabilities are within what the trait says, and do not change.
pub fn the_capabilities_make_sense<H: Harness>(trial: &Trial<H>) -> Verdict {
    let capabilities = trial.backend().capabilities();
    assert!(capabilities.max_regions >= 1);
    assert!(capabilities.max_bytes >= 1);
    assert!(capabilities.max_pages >= 1);
    assert!(capabilities.max_batch >= 1);
    assert!(capabilities.page_size.is_power_of_two());
    assert!(matches!(capabilities.tag_bits, 0 | 8));
    assert_eq!(capabilities, trial.backend().capabilities());
    Verdict::Holds
}

/// Both ways, the bytes that were meant and no others.
pub fn a_peer_reads_and_writes_through_a_key<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (mut region, memory, place) = trial.mapped(1);
    trial.harness.write(place, 100, b"from the peer").unwrap();
    let mut back = [0; 15];
    trial.harness.read(place, 99, &mut back).unwrap();
    assert_eq!(&back, b"\0from the peer\0");
    trial.invalidate(&mut region);
    let bytes = memory.as_ref();
    assert_eq!(&bytes[100..113], b"from the peer");
    let others = bytes[..100].iter().chain(&bytes[113..]);
    assert!(others.copied().all(|byte| byte == 0));
    Verdict::Holds
}

/// Reading and writing are apart.
pub fn a_key_allows_what_was_asked_for_and_no_more<H: Harness>(trial: &Trial<H>) -> Verdict {
    let mut region = trial.alloc();
    let mut memory = trial.harness.memory(LEN);
    let place = trial.map_as(&mut region, &mut memory, Access::REMOTE_READ, 1);
    trial.harness.read(place, 0, &mut [0; 8]).unwrap();
    trial.assert_write_refused(place);
    trial.invalidate(&mut region);

    let writable = Access::REMOTE_WRITE | Access::LOCAL_WRITE;
    let place = trial.map_as(&mut region, &mut memory, writable, 2);
    trial.assert_writes(place, b"written");
    trial.assert_read_refused(place);
    trial.invalidate(&mut region);

    let place = trial.map_as(&mut region, &mut memory, Access::LOCAL_WRITE, 3);
    trial.assert_write_refused(place);
    trial.invalidate(&mut region);
    assert_eq!(&memory.as_ref()[..8], b"written\0");
    Verdict::Holds
}

/// Neither a transfer across the end nor one behind it goes through, and nothing there changes.
pub fn a_key_reaches_no_further_than_its_mapping<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (mut region, memory, place) = trial.mapped(1);
    let end = LEN as u64;
    trial.harness.write(place, end - 4, b"last").unwrap();
    trial.assert_write_refused_at(place, end - 4, b"too long");
    trial.assert_write_refused_at(place, end, b"behind");
    trial.invalidate(&mut region);
    assert_eq!(&memory.as_ref()[LEN - 4..], b"last");
    Verdict::Holds
}

/// Neither a tag that a region does not have nor an index that no region has.
pub fn a_key_that_nobody_gave_out_is_refused<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (mut region, memory, place) = trial.mapped(1);
    let mut other_tag = place;
    other_tag.key = place
        .key
        .with_tag(KeyTag::new(place.key.tag().get() ^ 0x80));
    trial.assert_write_refused(other_tag);
    let mut other_index = place;
    other_index.key = crate::RemoteKey::new(place.key.index() ^ 0x5a_0000, place.key.tag());
    trial.assert_write_refused(other_index);
    trial.invalidate(&mut region);
    assert!(memory.as_ref().iter().all(|&byte| byte == 0));
    Verdict::Holds
}

/// Where the backend says so.
pub fn the_tag_is_the_callers_choice<H: Harness>(trial: &Trial<H>) -> Verdict {
    if trial.backend().capabilities().tag_bits == 0 {
        return Verdict::RuledOut("its HCA chooses the tag");
    }
    let mut region = trial.alloc();
    let mut memory = trial.harness.memory(LEN);
    for tag in [0, 1, 0xff, 0, 0x80] {
        let place = trial.map(&mut region, &mut memory, tag);
        assert_eq!(place.key.tag(), KeyTag::new(tag));
        trial.assert_writes(place, &[tag]);
        assert_eq!(memory.as_ref()[0], tag);
        trial.invalidate(&mut region);
    }
    Verdict::Holds
}

/// Lengths that are no multiple of a page, across several of them.
pub fn a_mapping_may_start_and_end_anywhere<H: Harness>(trial: &Trial<H>) -> Verdict {
    let mut region = trial.alloc();
    for (tag, len) in (1..).zip([1, 63, 4095, 4097, 3 * 4096 + 5]) {
        let mut memory = trial.harness.memory(len);
        let place = trial.map(&mut region, &mut memory, tag);
        let data = vec![tag; len];
        trial.assert_writes(place, &data);
        trial.invalidate(&mut region);
        assert_eq!(memory.as_ref(), data);
    }
    Verdict::Holds
}

/// The promise that all else is built on.
pub fn after_an_invalidation_writes_are_refused<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (mut region, memory, place) = trial.mapped(1);
    trial.assert_writes(place, b"in time");
    trial.invalidate(&mut region);
    trial.assert_write_refused(place);
    assert_eq!(&memory.as_ref()[..8], b"in time\0");
    Verdict::Holds
}

/// The same for reads: a late reader would see what is none of its business.
pub fn after_an_invalidation_reads_are_refused<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (mut region, mut memory, place) = trial.mapped(1);
    trial.harness.read(place, 0, &mut [0; 8]).unwrap();
    trial.invalidate(&mut region);
    memory.as_mut()[..6].copy_from_slice(b"secret");
    trial.assert_read_refused(place);
    Verdict::Holds
}

/// Only the regions of the batch are touched.
pub fn an_invalidation_leaves_other_regions_alone<H: Harness>(trial: &Trial<H>) -> Verdict {
    let (mut ended, _memory, _) = trial.mapped(1);
    let (mut kept, kept_memory, kept_place) = trial.mapped(1);
    trial.invalidate(&mut ended);
    trial.assert_writes(kept_place, b"still here");
    assert_eq!(&kept_memory.as_ref()[..10], b"still here");
    trial.invalidate(&mut kept);
    trial.assert_write_refused(kept_place);
    Verdict::Holds
}

/// Use-n without a flush.
pub fn a_remap_kills_the_previous_key_if_it_says_so<H: Harness>(trial: &Trial<H>) -> Verdict {
    match trial.backend().capabilities().remap {
        Remap::KillsPrevious => {}
        Remap::Impossible => return Verdict::RuledOut("it cannot map a region again"),
        Remap::LeavesPrevious => return Verdict::RuledOut("its previous keys live on"),
    }
    let (mut region, old, old_place) = trial.mapped(1);
    trial.assert_writes(old_place, b"old");
    let mut new = trial.harness.memory(LEN);
    let new_place = trial.map_as(&mut region, &mut new, ALL, 2);
    trial.assert_write_refused(old_place);
    trial.assert_writes(new_place, b"new");
    trial.invalidate(&mut region);
    trial.assert_write_refused(new_place);
    assert_eq!(
        (&old.as_ref()[..4], &new.as_ref()[..4]),
        (&b"old\0"[..], &b"new\0"[..])
    );
    Verdict::Holds
}

/// A write that is under way when the key dies may have come through, in part or not at all; but
/// no byte of it arrives once the invalidation is over.
pub fn a_write_under_way_stops_at_the_invalidation<H: Harness>(trial: &Trial<H>) -> Verdict {
    const BYTES: usize = 1 << 20;
    const ROUNDS: u8 = 24;
    let mut region = trial.alloc();
    let mut memory = trial.harness.memory(BYTES);
    for round in 1..=ROUNDS {
        let place = trial.map(&mut region, &mut memory, round);
        let data = vec![round; BYTES];
        let harness = &trial.harness;
        let (outcome, before, after) = thread::scope(|scope| {
            let writer = scope.spawn(move || harness.write(place, 0, &data));
            // Differently far into the write from round to round.
            thread::sleep(Duration::from_micros(300) * u32::from(round % 8));
            trial.invalidate(&mut region);
            let before = memory.as_ref().to_vec();
            let outcome = writer.join().unwrap();
            (outcome, before, memory.as_ref().to_vec())
        });
        assert!(
            before == after,
            "round {round}: the owner has the memory, and it changed"
        );
        if outcome.is_err() {
            harness.recover();
        }
    }
    Verdict::Holds
}
