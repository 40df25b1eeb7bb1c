//! One model for every policy and every pair of policies: generated operations on the whole pool
//! over the mock HCA, in virtual time, with all invariants checked after each.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod forms;
mod support;
mod world;

use mr_policies::{Named, Policy};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use world::{Setting, Step, World, setting, step};

/// Runs per policy; the longest run has [`STEPS`] steps.
const CASES: u32 = 60;
const STEPS: usize = 80;

const SINGLES: &[&str] = &[
    "immediate",
    "use-once",
    "use-n=2",
    "use-n=255",
    "threshold=3",
    "threshold=70%",
    "threshold=3KiB",
    "periodic=100ms",
    "max-exposure=30ms",
    "adaptive=100key-ms",
    "adaptive=2key-s/150ms",
];

fn singles() -> Vec<String> {
    let named = Named::ALL.iter().map(ToString::to_string);
    SINGLES
        .iter()
        .map(ToString::to_string)
        .chain(named)
        .collect()
}

/// All pairs that do not contradict each other.
fn pairs() -> Vec<String> {
    let singles = singles();
    let pairs = singles.iter().enumerate().flat_map(|(place, first)| {
        let others = singles[place + 1..].iter();
        others.map(move |second| format!("{first},{second}"))
    });
    pairs
        .filter(|text| text.parse::<Policy>().is_ok())
        .collect()
}

fn runs() -> impl Strategy<Value = (Setting, Vec<Step>)> {
    (setting(), prop::collection::vec(step(), 1..=STEPS))
}

/// Runs the model under each policy; on failure says which, with the seed and the shrunk steps.
fn hold(texts: &[String], cases: u32) {
    for text in texts {
        let policy: Policy = text.parse().unwrap();
        let config = ProptestConfig {
            cases,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut runner = TestRunner::new(config);
        let outcome = runner.run(&runs(), |(setting, steps)| {
            let Some(mut world) = World::build(&policy, &setting) else {
                return Ok(());
            };
            for step in &steps {
                world.apply(step);
                world.check();
            }
            world.finish();
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, (setting, steps))) => {
                panic!("{text}: {reason}\nafter {steps:?}\nin {setting:?}")
            }
            Err(TestError::Abort(reason)) => panic!("{text}: {reason}"),
        }
    }
}

/// A policy that is new to the parser must not go untested.
#[test]
fn every_form_is_among_the_singles() {
    for form in forms::forms() {
        let has_it = SINGLES.iter().any(|text| forms::is_of(text, &form));
        assert!(has_it, "add {form} to SINGLES");
    }
}

#[test]
fn every_policy_keeps_the_invariants() {
    hold(&singles(), CASES * 4);
}

/// The pairs in quarters, so that they can run side by side.
fn hold_quarter(quarter: usize) {
    let texts: Vec<_> = pairs().into_iter().skip(quarter).step_by(4).collect();
    assert!(texts.len() > 20, "too few pairs: {texts:?}");
    hold(&texts, CASES);
}

#[test]
fn every_pair_keeps_the_invariants_first_quarter() {
    hold_quarter(0);
}

#[test]
fn every_pair_keeps_the_invariants_second_quarter() {
    hold_quarter(1);
}

#[test]
fn every_pair_keeps_the_invariants_third_quarter() {
    hold_quarter(2);
}

#[test]
fn every_pair_keeps_the_invariants_last_quarter() {
    hold_quarter(3);
}
