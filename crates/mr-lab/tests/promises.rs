//! What holds for every load and every policy.

mod common;

use common::load;
use mr_core::DrawOrder;
use mr_lab::LabError;
use mr_lab::arrival::Arrival;
use mr_lab::closed::forecast;
use mr_lab::scenario::Scenario;
use mr_lab::sim;
use mr_lab::size::Sizes;
use mr_mock::Preset;
use mr_policies::Policy;
use proptest::prelude::*;
use std::time::Duration;

const POLICIES: [&str; 12] = [
    "use-once",
    "use-n=3",
    "use-n=32,threshold=1",
    "threshold=7",
    "threshold=50%",
    "threshold=1MiB",
    "periodic=20ms",
    "max-exposure=5ms",
    "adaptive=100key-ms/50ms",
    "immediate",
    "srp",
    "use-n=32,threshold=10,max-exposure=100ms",
];

fn scenarios() -> impl Strategy<Value = Scenario> {
    let sizes = prop_oneof![
        Just(Sizes::Fixed(4096)),
        Just(Sizes::Fixed(1 << 20)),
        Just(Sizes::Range(1, 1 << 18)),
    ];
    let arrivals = prop_oneof![
        Just(Arrival::Steady),
        Just(Arrival::Poisson),
        Just(Arrival::Bursts {
            on: Duration::from_millis(50),
            off: Duration::from_millis(100)
        })
    ];
    let orders = prop_oneof![
        Just(DrawOrder::Random),
        Just(DrawOrder::Fifo),
        Just(DrawOrder::Lifo)
    ];
    let load_numbers = (1.0..3000.0_f64, sizes, arrivals, 0..500_u64);
    let pool_numbers = (10..300_u32, orders, 0..30_u64, any::<u64>());
    let machine_numbers = (1..20_u32, 0..20_u64, 0..100_u32);
    (load_numbers, pool_numbers, machine_numbers).prop_map(|(of_load, of_pool, of_machine)| {
        let mut scenario = Scenario::default();
        *load(&mut scenario).rate = of_load.0;
        *load(&mut scenario).sizes = of_load.1;
        *load(&mut scenario).arrival = of_load.2;
        *load(&mut scenario).duration = Duration::from_millis(of_load.3 + 1);
        scenario.regions = of_pool.0;
        scenario.order = of_pool.1;
        scenario.flush_delay = Duration::from_millis(of_pool.2);
        scenario.seed = of_pool.3;
        scenario.max_age = Duration::from_millis(300);
        scenario.concurrency = of_machine.0;
        scenario.service_time = Duration::from_millis(of_machine.1);
        scenario.hot_keys = of_machine.2;
        scenario
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Every run ends, loses no I/O, keeps the bound on exposure (I7), never has more stale keys
    /// than the regions allow, and gives the same answer again.
    #[test]
    fn runs_are_sound(
        scenario in scenarios(),
        text in prop::sample::select(&POLICIES[..]),
        preset in prop::sample::select(Preset::names()),
    ) {
        let preset = Preset::named(preset).unwrap();
        let policy: Policy = text.parse().unwrap();
        let row = match sim::run(&scenario, &preset, &policy) {
            Err(LabError::Build(_)) if text.contains("use-n") || text == "srp" => return Ok(()),
            row => row.unwrap(),
        };

        let duration = scenario.load.duration().as_secs_f64();
        if let Some(expected) = steady_ios(&scenario) {
            prop_assert!(row.ios.abs_diff(expected) <= 1, "{} of {expected}", row.ios);
        }
        prop_assert!(row.elapsed_s >= duration);

        use mr_core::InvalidationPolicy;
        let bound = policy.exposure_bound().unwrap_or(Duration::MAX).min(scenario.max_age);
        let limit = bound + scenario.flush_delay + 2 * longest_flush(&preset, scenario.regions);
        prop_assert!(row.exposure_s.max <= limit.as_secs_f64(), "{:?} > {limit:?}", row.exposure_s);
        // All alike, they may differ in the last digit.
        prop_assert!(row.exposure_s.mean <= row.exposure_s.max * (1.0 + 1e-9));
        prop_assert!(row.stale_keys.max <= f64::from(scenario.regions) * 255.0);
        prop_assert!(row.stale_keys.mean <= row.stale_keys.max * (1.0 + 1e-9));
        prop_assert!(row.waits <= row.ios);

        let again = sim::run(&scenario, &preset, &policy).unwrap();
        prop_assert_eq!(format!("{row:?}"), format!("{again:?}"));
    }

    /// Arithmetic and simulation agree wherever there is a closed form, not only in the example.
    #[test]
    fn closed_forms_hold_on_steady_loads(
        rate in 50.0..2000.0_f64,
        regions in 200..2000_u32,
        delay in 0..3_u64,
        text in prop::sample::select(&[
            "use-once", "threshold=40", "threshold=20%", "threshold=1MiB", "periodic=100ms",
            "max-exposure=50ms", "adaptive=1key-s", "immediate",
        ][..]),
        preset in prop::sample::select(&["connectx-2008", "connectx-3", "connectx-5"][..]),
    ) {
        let mut scenario = common::small(1);
        *load(&mut scenario).rate = rate;
        scenario.regions = regions;
        scenario.flush_delay = Duration::from_millis(if text == "immediate" { 0 } else { delay });
        let preset = Preset::named(preset).unwrap();
        let policy: Policy = text.parse().unwrap();
        let Some(closed) = forecast(&scenario, &preset, &policy) else {
            return Ok(());
        };
        *load(&mut scenario).duration = Duration::from_secs_f64((60.0 / closed.flushes_per_s).max(2.0));
        let row = sim::run(&scenario, &preset, &policy).unwrap();
        // One I/O more or less in a batch is no disagreement.
        let grain = 1.0 / closed.regions_per_flush.max(1.0) + 0.03;
        for (what, simulated, computed) in [
            ("flushes per second", row.flushes_per_s, closed.flushes_per_s),
            ("regions per flush", row.regions_per_flush, closed.regions_per_flush),
            ("mean exposure", row.exposure_s.mean, closed.exposure_mean_s),
            ("longest exposure", row.exposure_s.max, closed.exposure_max_s),
        ] {
            let off = (simulated / computed - 1.0).abs();
            prop_assert!(off <= grain, "{what}: {simulated}, computed {computed} ({policy})");
        }
    }
}

fn steady_ios(scenario: &Scenario) -> Option<u64> {
    let mut scenario = scenario.clone();
    let duration = scenario.load.duration().as_secs_f64();
    let synthetic = load(&mut scenario);
    let steady = *synthetic.arrival == Arrival::Steady;
    steady.then(|| (*synthetic.rate * duration).ceil() as u64)
}

/// An upper bound on the time of a flush of all regions of a pool.
fn longest_flush(preset: &Preset, regions: u32) -> Duration {
    let pages = 257;
    let per_region =
        preset.unmap_ns.value + pages * preset.unmap_page_ns.value + preset.invalidate_hca_ns.value;
    let fence = preset.sync_ns.value + preset.doorbell_ns.value + preset.completion_ns.value;
    Duration::from_nanos(fence + u64::from(regions) * per_region)
}
