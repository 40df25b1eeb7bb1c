//! `cargo xtask model`: the pool under the model checkers loom and shuttle.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::process::{cargo, run as succeeds};

/// How much to explore.
#[derive(Args)]
pub(crate) struct Options {
    /// Schedules per scenario and scheduler that shuttle tries
    #[arg(long, default_value_t = 2000)]
    schedules: u32,
}

/// Runs the exhaustive models of the parts, then samples schedules of the whole pool.
///
/// Each checker takes the place of std's primitives by a `--cfg`, so each has a build of its own.
///
/// # Errors
/// Cargo could not be started.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut loom = cargo(&["test", "--locked", "--release", "-p", "mr-core", "--lib"]);
    loom.args(["--target-dir", "target/loom", "pool::models"]);
    loom.env("RUSTFLAGS", "--cfg loom");

    let mut shuttle = cargo(&["test", "--locked", "--release", "-p", "mr-core"]);
    shuttle.args(["--test", "shuttle", "--target-dir", "target/shuttle"]);
    shuttle.env("RUSTFLAGS", "--cfg shuttle");
    shuttle.env("SHUTTLE_RUNS", options.schedules.to_string());

    let held = succeeds(&mut loom)? & succeeds(&mut shuttle)?;
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
