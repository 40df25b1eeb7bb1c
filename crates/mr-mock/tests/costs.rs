//! What operations cost, against figures worked out by hand and published measurements.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{ALL, Memory, hca, map};
use mr_core::{ChainedMap, KeyTag, MapJob, MrBackend, RemoteKey};
use mr_mock::{Costs, MockHca, Operation, Preset, RemotePeer, Transfer};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn cost_of<R>(hca: &MockHca, call: impl FnOnce() -> R) -> Costs {
    let before = hca.costs();
    call();
    hca.costs() - before
}

fn touch(peer: &RemotePeer, key: RemoteKey, len: u64) -> Transfer {
    peer.touch(Operation::Write, key, 0, len).unwrap()
}

/// 1 MiB is 512 packets of 2 KiB and 256 pages: 1 entry and 32 lines to fetch, whatever the
/// policy, for a key that is new.
#[test]
fn a_new_key_of_a_mebibyte_misses_33_times() {
    let hca = hca("connectx-2008", &[]);
    let peer = hca.connect();
    let memory = Memory::new(MIB as usize);
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &memory, 0).remote;
    let first = touch(&peer, key, MIB);
    assert_eq!(first.packets, 512);
    assert_eq!((first.costs.mpt_misses, first.costs.mtt_misses), (1, 32));
    assert_eq!(first.costs.hca_ns, 512 * 100 + 33 * 1_000);
    assert_eq!(first.costs.link_ns, MIB * 1_000_000_000 / 2_000_000_000);
    let counters = hca.counters();
    assert_eq!((counters.mpt_lookups, counters.mtt_lookups), (512, 512));
    assert_eq!((counters.mpt_misses, counters.mtt_misses), (1, 32));

    let second = touch(&peer, key, MIB);
    assert_eq!(second.costs.hca_ns, 512 * 100);

    hca.invalidate(&mut [&mut region]).unwrap();
    let key = map(&hca, &mut region, &memory, 1).remote;
    assert_eq!(touch(&peer, key, MIB).costs.mtt_misses, 32);
}

#[test]
fn moving_bytes_costs_what_touching_does() {
    for start in [0, 1, 4095] {
        let (moved, touched) = (hca("connectx-3", &[]), hca("connectx-3", &[]));
        let memory = Memory::at(start, 300_000);
        let data = vec![1; 250_001];
        let mut transfers = [&moved, &touched].map(|hca| {
            let mut region = hca.alloc().unwrap();
            (hca.connect(), map(hca, &mut region, &memory, 0).remote)
        });
        let [(a, key), (b, _)] = &mut transfers;
        assert_eq!(
            a.write(*key, 7_777, &data),
            b.touch(Operation::Write, *key, 7_777, 250_001)
        );
        assert_eq!(moved.costs(), touched.costs());
        assert_eq!(moved.counters(), touched.counters());
    }
}

/// The origin mail's flush: 4000 regions at 0.5 us and one SYNC_TPT of 100 us.
#[test]
fn a_global_fence_costs_the_same_for_one_region_as_for_many() {
    let hca = hca("connectx-2008", &[("stall_ns", "7_000")]);
    let mut regions: Vec<_> = (0..4000).map(|_| hca.alloc().unwrap()).collect();
    let memory = Memory::new(4096);
    for region in &mut regions {
        map(&hca, region, &memory, 0);
    }
    for batch in [1, 4000] {
        let mut batch: Vec<_> = regions.iter_mut().take(batch).collect();
        let stores = batch.len() as u64 * 500;
        let cost = cost_of(&hca, || hca.invalidate(&mut batch).unwrap());
        let expected = Costs {
            elapsed_ns: stores + 100_000,
            cpu_ns: stores,
            command_ns: 100_000,
            hca_ns: 7_000,
            ..Costs::default()
        };
        assert_eq!(cost, expected);
    }
    assert_eq!(hca.counters().fences, 2);
    assert_eq!(hca.counters().invalidated, 4001);
}

/// One LOCAL_INV takes 2 us from post to completion; a chain shares doorbell and completion.
#[test]
fn a_per_key_fence_costs_by_the_key() {
    let hca = hca("connectx-5", &[]);
    let mut regions: Vec<_> = (0..64).map(|_| hca.alloc().unwrap()).collect();
    let one = cost_of(&hca, || hca.invalidate(&mut [&mut regions[0]]).unwrap());
    assert_eq!(one.elapsed_ns, 2_000);
    assert_eq!((one.cpu_ns, one.hca_ns), (200, 100));
    let mut batch: Vec<_> = regions.iter_mut().collect();
    let many = cost_of(&hca, || hca.invalidate(&mut batch).unwrap());
    assert_eq!(many.elapsed_ns, 64 * 50 + 150 + 64 * 100 + 1_700);
    assert_eq!(many.hca_ns, 64 * 100);
    assert_eq!(many.command_ns, 0);
}

#[test]
fn mapping_costs_by_the_page() {
    let pages = |n: usize| Memory::new(n * 4096);
    let cost = |preset, pages: Memory| {
        let hca = hca(preset, &[]);
        let hca = hca.for_connection(&hca.connect()).unwrap();
        let mut region = hca.alloc().unwrap();
        cost_of(&hca, || map(&hca, &mut region, &pages, 0))
    };
    let fmr = cost("connectx-2008", pages(256));
    assert_eq!((fmr.cpu_ns, fmr.hca_ns), (1_000 + 256 * 10, 0));
    // A start inside of a page touches one more.
    let unaligned = cost("connectx-2008", Memory::at(1, 256 * 4096));
    assert_eq!(unaligned.cpu_ns, 1_000 + 257 * 10);
    // A list of up to 8 pages rides in the work request.
    assert_eq!(cost("connectx-5", pages(8)).hca_ns, 200);
    assert_eq!(cost("connectx-5", pages(9)).hca_ns, 770);
    assert_eq!(cost("connectx-5-window", pages(9)).hca_ns, 1_000);
}

/// A chain of maps has one doorbell, with requests behind them or without; maps that are no work requests have
/// none to share.
#[test]
fn a_chain_of_maps_shares_its_doorbell() {
    let memory = Memory::new(4096);
    let costs = |preset, chained: bool| {
        let hca = hca(preset, &[]);
        let peer = hca.connect();
        let hca = hca.for_connection(&peer).unwrap();
        let mut regions: Vec<_> = (0..10).map(|_| hca.alloc().unwrap()).collect();
        let job = |region| MapJob::new(region, memory.range(), ALL, KeyTag::new(3));
        let mut jobs: Vec<_> = regions.iter_mut().map(job).collect();
        let cost = cost_of(&hca, || {
            if chained {
                hca.map_batch_chained(&mut jobs, &mut |place, _| vec![place as u8]);
            } else {
                hca.map_batch(&mut jobs);
            }
        });
        let answers = jobs.into_iter().map(MapJob::into_answer);
        assert!(
            answers
                .into_iter()
                .all(|answer| matches!(answer, Some(Ok(_))))
        );
        assert_eq!(hca.counters().maps, 10);
        let heard = std::iter::from_fn(|| peer.receive()).flatten();
        assert_eq!(heard.count(), if chained { 10 } else { 0 });
        (cost.cpu_ns, cost.hca_ns)
    };
    for chained in [false, true] {
        // Posting one takes 300 ns, 200 of which are the doorbell.
        let frwr = costs("connectx-3-frwr", chained);
        assert_eq!(frwr, (300 + 9 * 100 + 10 * 5, 10 * 1_000));
        assert_eq!(costs("connectx-2008", chained), (10 * (1_000 + 10), 0));
    }
}

/// LITE (SOSP'17) Fig. 8, read off the graph: registration in us by size, within 5 %.
#[test]
fn registration_costs_what_was_measured_on_connectx_3() {
    let measured = [(4, 30), (16, 35), (64, 48), (256, 105), (1024, 330)];
    for (kib, micros) in measured {
        let hca = hca("connectx-3-registration", &[]);
        let mut region = hca.alloc().unwrap();
        let memory = Memory::new(kib << 10);
        let nanos = cost_of(&hca, || map(&hca, &mut region, &memory, 0)).elapsed_ns;
        let error = nanos as f64 / (micros as f64 * 1e3) - 1.0;
        assert!(
            error.abs() < 0.05,
            "{kib} KiB: {nanos} ns, measured {micros} us"
        );
    }
    let hca = hca("connectx-3-registration", &[]);
    let mut region = hca.alloc().unwrap();
    map(&hca, &mut region, &Memory::new(1 << 20), 0);
    let nanos = cost_of(&hca, || hca.invalidate(&mut [&mut region]).unwrap()).elapsed_ns;
    assert!(
        (nanos as f64 / 58e3 - 1.0).abs() < 0.05,
        "{nanos} ns, measured 58 us"
    );
}

/// LITE Fig. 4: latency of a 64-byte write to a random one of N regions, over the 1.87 us that
/// it takes when everything hits.
#[test]
fn misses_over_many_regions_cost_what_was_measured_on_connectx_3() {
    for (regions, micros) in [(10, 1.87), (100, 1.87), (1_000, 2.47), (10_000, 2.85)] {
        let hca = hca("connectx-3", &[]);
        let peer = hca.connect();
        let memory = Memory::new(4096);
        let keys: Vec<_> = (0..regions)
            .map(|_| map(&hca, &mut hca.alloc().unwrap(), &memory, 0).remote)
            .collect();
        let mut state = 1u64;
        let mut run = |writes: u64| {
            for _ in 0..writes {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let key = keys[(state >> 33) as usize % keys.len()];
                touch(&peer, key, 64);
            }
        };
        run(20_000);
        let before = hca.costs();
        run(50_000);
        let spent = hca.costs() - before;
        let misses = (spent.mpt_misses + spent.mtt_misses) as f64 / 50_000.0;
        let modelled = 1.87 + misses * 0.5;
        assert!(
            (modelled / micros - 1.0).abs() < 0.03,
            "{regions} regions: {misses} misses a write, {modelled} us, measured {micros} us"
        );
    }
}

#[test]
fn an_hca_without_a_cache_has_no_misses() {
    let preset = Preset::named("soft-roce").unwrap();
    let hca = MockHca::new(&preset);
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(10_000), 0).remote;
    let transfer = touch(&hca.connect(), key, 10_000);
    assert_eq!(transfer.packets, 10);
    assert_eq!(transfer.costs.hca_ns, 10 * preset.packet_ns.value);
    assert_eq!(
        (transfer.costs.mpt_misses, transfer.costs.mtt_misses),
        (0, 0)
    );
    hca.soft_invalidate(&mut region);
    hca.invalidate(&mut [&mut region]).unwrap();
    assert!(hca.connect().write(key, 0, b"dead").is_err());
}

#[test]
fn misses_that_overlap_cost_less() {
    let hca = hca("connectx-3", &[("miss_overlap", "2")]);
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(64), 0).remote;
    assert_eq!(touch(&hca.connect(), key, 64).costs.hca_ns, 171 + 2 * 250);
}

proptest! {
    /// Looking up once per run and counting once per packet is the same as doing both per packet.
    #[test]
    fn runs_count_as_their_packets_do(
        start in 0..4096usize,
        transfers in prop::collection::vec((0..4usize, 0..60_000u64, 1..60_000u64), 1..12),
        mtu in prop::sample::select(vec!["256", "1024", "4096"]),
    ) {
        let changes = [
            ("mtu_bytes", mtu), ("mpt_entries", "2"), ("mpt_ways", "1"),
            ("mtt_lines", "4"), ("mtt_ways", "2"), ("mtt_line_pages", "2"),
        ];
        let mtu: u64 = mtu.parse().unwrap();
        let whole = hca("connectx-3", &changes);
        let single = hca("connectx-3", &changes);
        let memory = Memory::at(start, 120_000);
        let keys: Vec<_> = (0..4)
            .map(|_| {
                let key = map(&whole, &mut whole.alloc().unwrap(), &memory, 0);
                prop_assert_eq!(key, map(&single, &mut single.alloc().unwrap(), &memory, 0));
                Ok(key.remote)
            })
            .collect::<Result<_, _>>()?;
        let (a, b) = (whole.connect(), single.connect());
        for (key, offset, len) in transfers {
            a.touch(Operation::Write, keys[key], offset, len).unwrap();
            for packet in (0..len).step_by(mtu as usize) {
                let part = mtu.min(len - packet);
                b.touch(Operation::Write, keys[key], offset + packet, part).unwrap();
            }
            prop_assert_eq!(whole.counters(), single.counters());
            prop_assert_eq!(whole.costs().hca_ns, single.costs().hca_ns);
        }
    }
}
