//! Scenarios for the tests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing test is meant to stop"
)]
#![allow(dead_code, reason = "every test uses some of it")]

use mr_lab::arrival::Arrival;
use mr_lab::row::Row;
use mr_lab::scenario::{Load, Scenario};
use mr_lab::sim;
use mr_lab::size::Sizes;
use mr_mock::Preset;
use std::time::Duration;

/// The numbers of a made-up load, to be changed.
pub(crate) struct Synthetic<'s> {
    pub(crate) rate: &'s mut f64,
    pub(crate) sizes: &'s mut Sizes,
    pub(crate) arrival: &'s mut Arrival,
    pub(crate) duration: &'s mut Duration,
}

/// The made-up load of `scenario`.
pub(crate) fn load(scenario: &mut Scenario) -> Synthetic<'_> {
    match &mut scenario.load {
        Load::Synthetic {
            rate,
            sizes,
            arrival,
            duration,
        } => Synthetic {
            rate,
            sizes,
            arrival,
            duration,
        },
        Load::Recorded(_) => panic!("the load is a recorded one"),
    }
}

/// The example of the mail, with I/Os of 4 KiB where their length makes no difference.
pub(crate) fn small(seconds: u64) -> Scenario {
    let mut scenario = Scenario::default();
    *load(&mut scenario).sizes = Sizes::Fixed(4096);
    *load(&mut scenario).duration = Duration::from_secs(seconds);
    scenario
}

pub(crate) fn run(scenario: &Scenario, policy: &str) -> Row {
    run_on(scenario, "connectx-2008", policy)
}

pub(crate) fn run_on(scenario: &Scenario, preset: &str, policy: &str) -> Row {
    let preset = Preset::named(preset).unwrap();
    sim::run(scenario, &preset, &policy.parse().unwrap()).unwrap()
}

pub(crate) fn assert_near(what: &str, got: f64, wanted: f64, share: f64) {
    let off = (got / wanted - 1.0).abs();
    assert!(off <= share, "{what}: {got}, not {wanted}");
}
