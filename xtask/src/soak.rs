//! `cargo xtask soak`: leases by the million with faults, more schedules and mutations than CI has
//! time for, and all of it from a fresh seed.

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::model::{self, Schedules};
use crate::process::{cargo, run as succeeds, say};
use crate::tally::Tally;
use crate::test::FEATURES;

/// How long to soak.
#[derive(Args)]
pub(crate) struct Options {
    /// Leases in total
    #[arg(long, default_value_t = 100_000_000)]
    leases: u64,
    /// Threads that lease
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// Seed of everything that is drawn [default: a fresh one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Schedules per scenario and scheduler of the models
    #[arg(long, default_value_t = 20_000)]
    schedules: u32,
    /// Mutations per target of the fuzz tests
    #[arg(long, default_value_t = 1_000_000)]
    mutations: u64,
}

/// Runs all three, even if one has failed; each prints what it has done.
///
/// # Errors
/// Cargo could not be started.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(fresh);
    say(&format!(
        "seed {seed} (of what is drawn: FUZZ_SEED, PROPTEST_RNG_SEED, RDS_SEED_BASE)"
    ));
    let soaked = soak(options, seed)?;
    let tested = test(options, seed)?;
    let schedules = Schedules {
        number: options.schedules,
        seed,
    };
    let held = model::check(schedules, &mut Tally::default())?;
    Ok(if soaked && tested && held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The standard library draws the keys of its hashes from the operating system.
fn fresh() -> u64 {
    RandomState::new().hash_one("soak")
}

/// Leases and releases; fails if a counter, a key or memory is off.
fn soak(options: &Options, seed: u64) -> Result<bool> {
    let mut soak = cargo(&["run", "--locked", "--release", "-p", "mr-policies"]);
    soak.args(["--example", "soak", "--"]);
    soak.args([options.leases, options.threads, seed].map(|number| number.to_string()));
    succeeds(&mut soak)
}

/// All tests once more: the fuzz tests for longer, the properties with other cases than CI has, and the
/// simulation of rds-lite from another seed on.
fn test(options: &Options, seed: u64) -> Result<bool> {
    let mut test = cargo(&["test", "--locked", "--profile", "checked", "--no-fail-fast"]);
    test.args(["--features", FEATURES, "--lib", "--bins", "--tests"]);
    test.env("FUZZ_MUTATIONS", options.mutations.to_string());
    test.env("FUZZ_SEED", seed.to_string());
    test.env("PROPTEST_RNG_SEED", seed.to_string());
    test.env("RDS_SEED_BASE", seed.to_string());
    succeeds(&mut test)
}
