//! `cargo xtask soak`: leases by the million, with faults, and more schedules than CI has time for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::process::{cargo, run as succeeds};

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
}

/// Runs the soak; it prints what it has done, and fails if a counter, a key or memory is off.
///
/// # Errors
/// Cargo could not be started.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut soak = cargo(&["run", "--locked", "--release", "-p", "mr-policies"]);
    soak.args(["--example", "soak", "--"]);
    soak.args([options.leases, options.threads, options.seed].map(|number| number.to_string()));
    Ok(if succeeds(&mut soak)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
