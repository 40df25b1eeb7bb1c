//! The chores of this workspace: `cargo xtask test`, `lint`, `model`, `soak`, `bench`, `setup`, `hw`.
//!
//! Every command streams what it runs, stops at the first thing that makes the rest pointless, and
//! returns non-zero when anything failed.

mod bench;
mod hw;
mod libclang;
mod licences;
mod lint;
mod model;
mod packages;
mod process;
mod setup;
mod soak;
mod tally;
mod test;
#[cfg(test)]
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Chores of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Build and run everything that must pass
    Test,
    /// Formatting, clippy, docs, licences and advisories; warnings are errors
    Lint(lint::Options),
    /// Run the pool under the model checkers loom and shuttle
    Model(model::Options),
    /// Lease by the million, with faults and changing policies
    Soak(soak::Options),
    /// Measure what a lease costs, as a table of ratios
    Bench(bench::Options),
    /// Install what the members are built with that need libibverbs
    Setup(setup::Options),
    /// Run tests or a command where there is an RDMA device: in a virtual machine, or on this one
    #[command(after_help = hw::EXIT_STATUS)]
    Hw(hw::Options),
}

/// Exit status when this machine cannot do it, which says nothing about the code; automake's "skipped".
const UNAVAILABLE: u8 = 77;

fn main() -> ExitCode {
    match run(&Cli::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            process::note(&format!("error: {error:#}"));
            ExitCode::from(if error.is::<packages::Unavailable>() {
                UNAVAILABLE
            } else {
                1
            })
        }
    }
}

fn run(chore: &Chore) -> Result<ExitCode> {
    match chore {
        Chore::Test => test::run(),
        Chore::Lint(options) => lint::run(options),
        Chore::Model(options) => model::run(options),
        Chore::Soak(options) => soak::run(options),
        Chore::Bench(options) => bench::run(options),
        Chore::Setup(options) => setup::run(options),
        Chore::Hw(options) => hw::run(options),
    }
}
