//! `cargo xtask model`: the pool under the model checkers loom and shuttle.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::process::{cargo, note, watch};
use crate::tally::{Runner, Tally};

/// How much to explore.
#[derive(Args)]
pub(crate) struct Options {
    /// Schedules per scenario and scheduler that shuttle tries
    #[arg(long, default_value_t = Schedules::default().number)]
    schedules: u32,
    /// Where its choices come from
    #[arg(long, default_value_t = Schedules::default().seed)]
    seed: u64,
}

/// What shuttle tries.
#[derive(Clone, Copy)]
pub(crate) struct Schedules {
    /// Per scenario and scheduler
    pub(crate) number: u32,
    pub(crate) seed: u64,
}

/// Enough for each `cargo xtask test`; a longer run belongs before a release.
impl Default for Schedules {
    fn default() -> Self {
        Self {
            number: 2000,
            seed: 1,
        }
    }
}

/// Runs the models alone.
///
/// # Errors
/// Cargo could not be started.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let schedules = Schedules {
        number: options.schedules,
        seed: options.seed,
    };
    Ok(if check(schedules, &mut Tally::default())? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the exhaustive models of the parts, then samples schedules of the whole pool. Says whether all
/// held, and counts them. A checker that ran no model has not shown anything, and fails.
///
/// The checkers take the place of std's primitives by `--cfg model`, so they have a directory of
/// their own: else each `cargo xtask test` would build everything twice.
///
/// # Errors
/// Cargo could not be started.
pub(crate) fn check(schedules: Schedules, tally: &mut Tally) -> Result<bool> {
    let mut all_held = true;
    for (checker, args) in CHECKERS {
        let mut models = Tally::default();
        let mut command = command(args, schedules);
        let held = watch(&mut command, |line| models.look(Runner::Libtest, line))?;
        if models.passed == 0 {
            note(&format!("{checker} has checked no model"));
        }
        all_held &= held && models.passed > 0;
        tally.add(models);
    }
    Ok(all_held)
}

/// Each checker's tests, and which of them are models.
const CHECKERS: [(&str, &[&str]); 2] = [
    ("loom", &["--lib", "pool::models"]),
    ("shuttle", &["--test", "shuttle"]),
];

fn command(args: &[&str], schedules: Schedules) -> Command {
    let mut command = cargo(&["test", "--locked", "-p", "mr-core", "--profile", "checked"]);
    command.args(["--target-dir", "target/model"]).args(args);
    command.env("RUSTFLAGS", "--cfg model");
    command.env("SHUTTLE_RUNS", schedules.number.to_string());
    command.env("SHUTTLE_SEED", schedules.seed.to_string());
    command
}
