//! The hazard that the pool exists for: a key that works after it should not.

mod common;

use common::{Memory, hca, map};
use mr_core::MrBackend;
use mr_mock::{MockHca, Operation, RefusalReason, StaleSource};

/// Both ways to name a global fence and a per-key fence over the FMR table.
const FENCES: [&str; 2] = ["global", "per-key"];

fn fmr(fence: &str, cache_tag: &str) -> MockHca {
    hca(
        "connectx-2008",
        &[("fence", fence), ("cache_tag", cache_tag)],
    )
}

#[test]
fn a_softly_invalidated_key_still_writes_from_the_cache_until_a_fence() {
    for fence in FENCES {
        for cache_tag in ["full-key", "index"] {
            let hca = fmr(fence, cache_tag);
            let peer = hca.connect();
            let memory = Memory::new(4096);
            let mut region = hca.alloc().unwrap();
            let key = map(&hca, &mut region, &memory, 7).remote;
            assert_eq!(peer.write(key, 0, b"warm").unwrap().stale, None);

            hca.soft_invalidate(&mut region);
            let late = peer.write(key, 0, b"late").unwrap();
            assert_eq!(late.stale, Some(StaleSource::Cache));
            assert_eq!(&memory.bytes()[..4], b"late");

            hca.invalidate(&mut [&mut region]).unwrap();
            let refusal = peer.write(key, 0, b"dead").unwrap_err();
            assert_eq!(refusal.reason, RefusalReason::Invalidated);
            assert_eq!(&memory.bytes()[..4], b"late");

            let counters = hca.counters();
            assert_eq!(counters.packets_ok, 1);
            assert_eq!(counters.packets_stale_cache, 1);
            assert_eq!(counters.packets_refused, 1);
        }
    }
}

#[test]
fn a_softly_invalidated_key_that_is_not_cached_is_dead_at_once() {
    let hca = fmr("global", "full-key");
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(4096), 0).remote;
    hca.soft_invalidate(&mut region);
    let refusal = hca.connect().write(key, 0, b"x").unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Invalidated);
}

#[test]
fn a_released_key_works_from_the_table_and_is_counted_apart() {
    let hca = fmr("global", "full-key");
    let peer = hca.connect();
    let memory = Memory::new(4096);
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &memory, 0).remote;
    hca.note_released(key);
    let late = peer.write(key, 0, b"late").unwrap();
    assert_eq!(late.stale, Some(StaleSource::Table));
    assert_eq!(hca.counters().packets_stale_table, 1);
}

#[test]
fn after_a_remap_the_old_key_reaches_the_old_memory_through_a_full_key_cache() {
    for fence in FENCES {
        let hca = fmr(fence, "full-key");
        let peer = hca.connect();
        let (old, new) = (Memory::new(4096), Memory::new(4096));
        let mut region = hca.alloc().unwrap();
        let old_key = map(&hca, &mut region, &old, 1).remote;
        peer.write(old_key, 0, b"warm").unwrap();
        let new_key = map(&hca, &mut region, &new, 2).remote;
        assert_eq!(peer.write(new_key, 0, b"new!").unwrap().stale, None);

        let late = peer.write(old_key, 0, b"late").unwrap();
        assert_eq!(late.stale, Some(StaleSource::Cache));
        assert_eq!(&old.bytes()[..4], b"late");
        assert_eq!(&new.bytes()[..4], b"new!");

        hca.invalidate(&mut [&mut region]).unwrap();
        for key in [old_key, new_key] {
            assert!(peer.write(key, 0, b"dead").is_err());
            peer.recover();
        }
        assert_eq!(&old.bytes()[..4], b"late");
        assert_eq!(&new.bytes()[..4], b"new!");
    }
}

#[test]
fn after_a_remap_the_old_key_dies_at_the_new_keys_first_packet_in_an_index_cache() {
    let hca = fmr("global", "index");
    let peer = hca.connect();
    let (old, new) = (Memory::new(4096), Memory::new(4096));
    let mut region = hca.alloc().unwrap();
    let old_key = map(&hca, &mut region, &old, 1).remote;
    peer.write(old_key, 0, b"warm").unwrap();
    let new_key = map(&hca, &mut region, &new, 2).remote;
    assert_eq!(
        peer.write(old_key, 0, b"late").unwrap().stale,
        Some(StaleSource::Cache)
    );
    assert_eq!(peer.write(new_key, 0, b"new!").unwrap().stale, None);
    assert_eq!(
        peer.write(old_key, 0, b"dead").unwrap_err().reason,
        RefusalReason::Invalidated
    );
    assert_eq!(&old.bytes()[..4], b"late");
    assert_eq!(&new.bytes()[..4], b"new!");
}

/// The MPT entry is cached, the line is not: the table is read, where the pages were overwritten.
#[test]
fn after_a_remap_an_old_key_can_reach_the_new_memory() {
    let hca = fmr("global", "full-key");
    let peer = hca.connect();
    let pages = 16 * 4096;
    let (old, new) = (Memory::new(pages), Memory::new(pages));
    let mut region = hca.alloc().unwrap();
    let old_key = map(&hca, &mut region, &old, 1).remote;
    peer.write(old_key, 0, b"first line").unwrap();
    map(&hca, &mut region, &new, 2);
    let second_line = 8 * 4096;
    let late = peer.write(old_key, second_line, b"late").unwrap();
    assert_eq!(late.stale, Some(StaleSource::Cache));
    assert!(old.bytes()[second_line as usize..].iter().all(|&b| b == 0));
    assert_eq!(&new.bytes()[second_line as usize..][..4], b"late");
}

#[test]
fn an_old_key_never_reaches_beyond_a_shorter_new_memory() {
    let hca = fmr("global", "full-key");
    let peer = hca.connect();
    let (old, new) = (Memory::new(16 * 4096), Memory::at(100, 10 * 4096));
    let mut region = hca.alloc().unwrap();
    let old_key = map(&hca, &mut region, &old, 1).remote;
    peer.write(old_key, 0, b"first line").unwrap();
    map(&hca, &mut region, &new, 2);
    for refusal in [
        peer.write(old_key, 11 * 4096, b"late"),
        hca.connect().touch(Operation::Read, old_key, 11 * 4096, 4),
    ] {
        assert_eq!(refusal.unwrap_err().reason, RefusalReason::NoTranslation);
    }
}

#[test]
fn a_remap_that_kills_the_previous_key_kills_it() {
    let hca = hca("connectx-2008", &[("remap", "kills-previous")]);
    let peer = hca.connect();
    let mut region = hca.alloc().unwrap();
    let old_key = map(&hca, &mut region, &Memory::new(4096), 1).remote;
    peer.write(old_key, 0, b"warm").unwrap();
    map(&hca, &mut region, &Memory::new(4096), 2);
    assert_eq!(
        peer.write(old_key, 0, b"late").unwrap_err().reason,
        RefusalReason::Invalidated
    );
}

/// 256 maps later the tag is the same again: a stale key is as good as new, and the owner of the
/// new one may find the old memory behind it.
#[test]
fn a_tag_wraps_after_256_maps() {
    let hca = fmr("global", "full-key");
    let peer = hca.connect();
    let (old, new) = (Memory::new(4096), Memory::new(4096));
    let mut region = hca.alloc().unwrap();
    let held = map(&hca, &mut region, &old, 0).remote;
    peer.write(held, 0, b"warm").unwrap();
    for tag in 1..=255 {
        let key = map(&hca, &mut region, &new, tag).remote;
        assert_ne!(key, held);
        assert_eq!(key.index(), held.index());
    }
    let again = map(&hca, &mut region, &new, 0).remote;
    assert_eq!(again, held);
    let wrong = peer.write(again, 0, b"mine").unwrap();
    assert_eq!(wrong.stale, Some(StaleSource::Cache));
    assert_eq!(&old.bytes()[..4], b"mine");
    assert_eq!(&new.bytes()[..4], &[0; 4]);

    hca.invalidate(&mut [&mut region]).unwrap();
    let key = map(&hca, &mut region, &new, 0).remote;
    assert_eq!(peer.write(key, 0, b"mine").unwrap().stale, None);
    assert_eq!(&new.bytes()[..4], b"mine");
}

/// The HCA fetched the entry afresh and still has the line of an earlier use of the same value.
#[test]
fn a_fresh_entry_over_an_old_line_is_told_from_a_good_one() {
    let hca = hca("connectx-2008", &[("mpt_entries", "1"), ("mpt_ways", "1")]);
    let peer = hca.connect();
    let (old, new) = (Memory::new(4096), Memory::new(4096));
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &old, 0).remote;
    peer.write(key, 0, b"warm").unwrap();
    assert_eq!(map(&hca, &mut region, &new, 0).remote, key);
    let other = map(&hca, &mut hca.alloc().unwrap(), &Memory::new(64), 0).remote;
    peer.write(other, 0, b"evicts the entry").unwrap();
    let wrong = peer.write(key, 0, b"mine").unwrap();
    assert_eq!((wrong.costs.mpt_misses, wrong.costs.mtt_misses), (1, 0));
    assert_eq!(wrong.stale, Some(StaleSource::Cache));
    assert_eq!(&old.bytes()[..4], b"mine");
    assert_eq!(new.bytes(), [0; 4096]);
}

/// With a global fence everyone's entries go; with a per-key fence only those of the batch.
#[test]
fn a_global_fence_empties_the_caches_for_everyone() {
    for (fence, misses_of_the_bystander) in [("global", 2), ("per-key", 0)] {
        let hca = fmr(fence, "full-key");
        let peer = hca.connect();
        let mut regions = [hca.alloc().unwrap(), hca.alloc().unwrap()];
        let memory = Memory::new(4096);
        let keys: Vec<_> = regions
            .iter_mut()
            .map(|region| map(&hca, region, &memory, 0).remote)
            .collect();
        for &key in &keys {
            peer.write(key, 0, b"warm").unwrap();
        }
        let [first, _] = &mut regions;
        hca.invalidate(&mut [first]).unwrap();
        let costs = peer.write(keys[1], 0, b"warm").unwrap().costs;
        assert_eq!(costs.mpt_misses + costs.mtt_misses, misses_of_the_bystander);
        assert!(peer.write(keys[0], 0, b"dead").is_err());
    }
}

/// A per-key fence evicts the lines with the key: when the value comes back, it must not find the
/// pages of its former life.
#[test]
fn a_key_value_that_comes_back_after_a_fence_finds_its_new_memory() {
    for fence in FENCES {
        for cache_tag in ["full-key", "index"] {
            let hca = fmr(fence, cache_tag);
            let peer = hca.connect();
            let mut region = hca.alloc().unwrap();
            let mut before: Option<(Memory, Vec<u8>)> = None;
            for (round, pages) in [20, 3, 20, 3].into_iter().enumerate() {
                let memory = Memory::new(pages * 4096);
                let key = map(&hca, &mut region, &memory, 9).remote;
                let data = vec![round as u8 + 1; pages * 4096];
                assert_eq!(peer.write(key, 0, &data).unwrap().stale, None);
                assert_eq!(memory.bytes(), data);
                if let Some((old, then)) = before {
                    assert_eq!(old.bytes(), then);
                }
                hca.invalidate(&mut [&mut region]).unwrap();
                before = Some((memory, data));
            }
        }
    }
}

#[test]
fn a_fence_also_evicts_the_lines_of_longer_mappings_before_the_last() {
    for fence in FENCES {
        for cache_tag in ["full-key", "index"] {
            let hca = fmr(fence, cache_tag);
            let peer = hca.connect();
            let mut region = hca.alloc().unwrap();
            let [long, short, again] = [20, 3, 20].map(|pages| Memory::new(pages * 4096));
            let key = map(&hca, &mut region, &long, 9).remote;
            peer.write(key, 0, &[1; 20 * 4096]).unwrap();
            map(&hca, &mut region, &short, 8);
            hca.invalidate(&mut [&mut region]).unwrap();
            let key = map(&hca, &mut region, &again, 9).remote;
            assert_eq!(peer.write(key, 0, &[2; 20 * 4096]).unwrap().stale, None);
            assert_eq!(again.bytes(), [2; 20 * 4096]);
            assert_eq!(long.bytes(), [1; 20 * 4096]);
        }
    }
}
