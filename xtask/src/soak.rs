//! `cargo xtask soak`: leases by the million with faults, and more schedules and mutations than CI has
//! time for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::model;
use crate::process::{cargo, run as succeeds};
use crate::tally::Tally;

/// How long to soak.
#[derive(Args)]
pub(crate) struct Options {
    /// Leases in total
    #[arg(long, default_value_t = 100_000_000)]
    leases: u64,
    /// Threads that lease
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// Seed of the policies, devices and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    let soaked = soak(options)?;
    let fuzzed = fuzz(options)?;
    let held = model::check(options.schedules, &mut Tally::default())?;
    Ok(if soaked && fuzzed && held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Leases and releases; fails if a counter, a key or memory is off.
fn soak(options: &Options) -> Result<bool> {
    let mut soak = cargo(&["run", "--locked", "--release", "-p", "mr-policies"]);
    soak.args(["--example", "soak", "--"]);
    soak.args([options.leases, options.threads, options.seed].map(|number| number.to_string()));
    succeeds(&mut soak)
}

/// The fuzz tests of every member that has some, from a fresh seed.
fn fuzz(options: &Options) -> Result<bool> {
    let mut fuzz = cargo(&["test", "--locked", "--profile", "checked", "--no-fail-fast"]);
    fuzz.args(["--test", "fuzz", "--", "--nocapture"]);
    fuzz.env("FUZZ_MUTATIONS", options.mutations.to_string());
    succeeds(&mut fuzz)
}
