//! What a lease costs, as ratios of figures that are measured side by side in one run.
//!
//! One file below `lines` per group of lines of the table. `cargo xtask bench` builds and runs this.

mod backends;
mod churn;
mod hand_written;
mod lines;
mod peer;
mod report;
mod rounds;

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::lines::{LINES, Setting};
use crate::report::Report;

/// Measures the table of docs/speed.md.
#[derive(Parser)]
struct Options {
    /// A tenth of the rounds: wider spreads, seconds rather than a minute
    #[arg(long)]
    quick: bool,
    /// Write all figures here as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure only the groups whose names contain this
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// The program that times UCX's registration cache: see xtask/peers/ucx_rcache.c
    #[arg(long, value_name = "PROGRAM")]
    ucx: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With standard error gone, too, there is nobody left to tell.
            let _ = writeln!(io::stderr().lock(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let setting = Setting {
        quick: options.quick,
        ucx: options.ucx.clone(),
    };
    let mut report = Report::new(options.quick);
    for (name, measure) in LINES {
        let wanted = |only: &String| name.contains(only.as_str());
        if options.only.as_ref().is_none_or(wanted) {
            writeln!(io::stderr().lock(), "measuring: {name}")?;
            let lines = measure(&setting).with_context(|| format!("cannot measure {name}"))?;
            report.add(name, lines);
        }
    }
    writeln!(io::stdout().lock(), "{report}")?;
    if let Some(path) = &options.json {
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        serde_json::to_writer_pretty(&file, &report)?;
        writeln!(&file)?;
    }
    Ok(())
}
