//! The chores of this workspace: `cargo xtask test`, `cargo xtask lint`.
//!
//! Every command streams what it runs, stops at the first thing that makes the rest pointless, and
//! returns non-zero when anything failed.

mod licences;
mod lint;
mod process;
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
}

fn main() -> ExitCode {
    match run(&Cli::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            process::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &Chore) -> Result<ExitCode> {
    match chore {
        Chore::Test => test::run(),
        Chore::Lint(options) => lint::run(options),
    }
}
