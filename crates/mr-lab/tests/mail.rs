//! The proposal of the origin mail, validated: 1000 I/Os of 1 MiB a second on 5000 regions, 4000 of
//! them unmapped at once.

mod common;

use common::{assert_near, load, run, run_on, small};
use mr_core::DrawOrder;
use mr_lab::scenario::Scenario;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn the_proposal_works_as_proposed() {
    let mut scenario = Scenario::default();
    *load(&mut scenario).duration = Duration::from_secs(80);
    let row = run(&scenario, "threshold=4000");
    assert_near("flushes per second", row.flushes_per_s, 0.25, 0.01);
    assert_near("regions per flush", row.regions_per_flush, 4000.0, 0.001);
    assert_near("mean exposure", row.exposure_s.mean, 2.0, 0.01);
    assert_near("longest exposure", row.exposure_s.max, 4.0, 0.01);
    assert_near("stale keys", row.stale_keys.mean, 2002.0, 0.01);
    assert_near(
        "pinned",
        row.pinned_bytes_peak as f64,
        4012.0 * (1 << 20) as f64,
        0.001,
    );
    assert_near("load of flushes", row.flush_load, 0.000_525, 0.01);
    assert_eq!(row.waits, 0);
    assert_eq!(row.ios, 80_000);
    assert_near("throughput", row.throughput_mb_s, 1048.6, 0.001);
}

/// A transfer pays one fetch for its key and one for each line of eight pages (`mtt_line_pages` of the preset).
#[test]
fn an_io_pays_for_its_packets_and_its_compulsory_misses() {
    let mut scenario = Scenario {
        hot_keys: 0,
        ..Scenario::default()
    };
    *load(&mut scenario).duration = Duration::from_secs(20);
    let row = run(&scenario, "threshold=4000");
    assert_near("misses", row.tpt_misses_per_io, 33.0, 0.001);
    assert_near(
        "HCA time",
        row.hca_us_per_io,
        512.0 * 0.1 + 33.0 * 1.0,
        0.001,
    );
    // One map of 256 pages, one soft invalidation, one unmap.
    assert_near("CPU time", row.cpu_us_per_io, 1.0 + 2.56 + 0.1 + 0.5, 0.001);
}

#[test]
fn a_late_flusher_is_no_harm_until_the_regions_run_out() {
    let late = |millis| {
        let mut scenario = small(120);
        scenario.flush_delay = Duration::from_millis(millis);
        run(&scenario, "threshold=4000")
    };
    assert_eq!(late(500).waits, 0);
    assert_eq!(late(980).waits, 0);
    let row = late(1200);
    // 5.2 s from flush to flush; in the last 0.21 s of it every I/O waits for the rest of it.
    assert_near("waits", row.waits as f64, 120.0 / 5.2 * 211.0, 0.05);
    assert_near("mean wait", row.wait_us_mean, 106_000.0, 0.05);
}

#[test]
fn when_traffic_stops_only_an_age_kills_the_keys() {
    let on_off = |max_age, policy| {
        let mut scenario = small(305);
        *load(&mut scenario).arrival = "bursts=1s/60s".parse().unwrap();
        scenario.max_age = max_age;
        run(&scenario, policy)
    };
    let alone = on_off(DAY, "threshold=99");
    assert_near("age without traffic", alone.exposure_s.max, 60.0, 0.01);
    let seed = on_off(DAY, "threshold=4000");
    assert_near(
        "age of a batch that fills slowly",
        seed.exposure_s.max,
        184.0,
        0.01,
    );
    for row in [
        on_off(Duration::from_millis(100), "threshold=99"),
        on_off(Duration::from_millis(100), "threshold=4000"),
        on_off(DAY, "threshold=4000,max-exposure=100ms"),
    ] {
        assert!(
            row.exposure_s.max < 0.103,
            "{}: {:?}",
            row.policy,
            row.exposure_s
        );
    }
    let adaptive = on_off(DAY, "adaptive=5key-s");
    assert!(adaptive.exposure_s.max < 5.1, "{:?}", adaptive.exposure_s);
}

#[test]
fn reuse_on_a_queue_has_the_longest_exposure_of_all() {
    let mut scenario = small(320);
    scenario.order = DrawOrder::Fifo;
    scenario.max_age = DAY;
    let row = run(&scenario, "use-n=32,threshold=1");
    // The key of a region's first mapping is stale for 31 turns of all 5000 regions, at 1000 a second: 155 s; the
    // mean over its 32 keys is half of that. Regions that a flush frees are drawn before those that have a
    // mapping left, so these wait a little longer than a round.
    assert_near("mean", row.exposure_s.mean, 77.3, 0.05);
    assert_near("longest", row.exposure_s.max, 155.0, 0.05);
}

/// On a stack only as many regions are in use as I/Os come at a time. A region that a lull leaves
/// at the bottom stays there until as many come again.
#[test]
fn reuse_on_a_stack_has_a_short_mean_and_no_longest() {
    let lifo = |arrival: &str| {
        let mut scenario = small(160);
        *load(&mut scenario).arrival = arrival.parse().unwrap();
        scenario.order = DrawOrder::Lifo;
        scenario.max_age = DAY;
        run(&scenario, "use-n=32,threshold=1")
    };
    let steady = lifo("steady");
    assert!(steady.exposure_s.mean < 0.4, "{:?}", steady.exposure_s);
    let poisson = lifo("poisson");
    assert!(poisson.exposure_s.mean < 0.4, "{:?}", poisson.exposure_s);
    assert!(
        poisson.exposure_s.max > 5.0 * poisson.exposure_s.mean,
        "{:?}",
        poisson.exposure_s
    );
    let bursts = lifo("bursts=1s/60s");
    assert!(bursts.exposure_s.max > 60.0, "{:?}", bursts.exposure_s);
}

#[test]
fn immediate_invalidation_costs_a_fence_per_io_on_the_old_hca_and_hardly_anything_on_a_new_one() {
    let mut scenario = Scenario::default();
    *load(&mut scenario).duration = Duration::from_secs(10);
    let old = run(&scenario, "immediate");
    assert_near("fences", old.flushes_per_s, 1000.0, 0.01);
    assert_near("load", old.flush_load, 0.1005, 0.01);
    assert_near("exposure", old.exposure_s.mean, 100.5e-6, 0.01);
    let new = run_on(&scenario, "connectx-5", "immediate");
    assert_near("exposure", new.exposure_s.mean, 2e-6, 0.01);
    let batched = run_on(&scenario, "connectx-5", "threshold=4000");
    assert!(new.cost_us_per_io < 1.05 * batched.cost_us_per_io);
}

/// Beyond one fence per I/O, I/Os share: a fence that takes 10 ms serves ten of them.
#[test]
fn slow_fences_are_shared() {
    let preset = mr_mock::Preset::named("connectx-2008").unwrap();
    let preset = preset.with(&[("sync_ns", "10000000")]).unwrap();
    let row = mr_lab::sim::run(&small(10), &preset, &"immediate".parse().unwrap()).unwrap();
    assert_near("fences", row.flushes_per_s, 100.0, 0.02);
    assert_near("shared by", row.regions_per_flush, 10.0, 0.02);
    assert_near("longest", row.exposure_s.max, 0.02, 0.02);
}

#[test]
fn a_stall_and_a_cold_cache_delay_those_on_the_wire() {
    let stalled = |stall| {
        let preset = mr_mock::Preset::named("connectx-2008").unwrap();
        let preset = preset.with(&[("stall_ns", stall)]).unwrap();
        let mut scenario = Scenario::default();
        *load(&mut scenario).duration = Duration::from_secs(5);
        *load(&mut scenario).arrival = "poisson".parse().unwrap();
        mr_lab::sim::run(&scenario, &preset, &"threshold=2".parse().unwrap()).unwrap()
    };
    let (without, with) = (stalled("0"), stalled("100000"));
    assert_near(
        "engine",
        with.hca_us_per_io - without.hca_us_per_io,
        50.0,
        0.05,
    );
    assert!(with.latency_us.p50 > without.latency_us.p50);
}
