//! `cargo xtask bench`: what a lease costs, as a table of ratios.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::packages;
use crate::process::{cargo, must, must_aside, run as run_command, workspace_root};

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Measure UCX's registration cache, too, which needs its headers
    #[arg(long)]
    peers: bool,
    /// A tenth of the rounds: wider spreads, seconds rather than a minute
    #[arg(long)]
    quick: bool,
    /// Write all figures here as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure only the groups whose names contain this
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Never install packages; say which are missing
    #[arg(long)]
    no_install: bool,
}

/// Builds and runs `mr-bench`.
///
/// # Errors
/// Something could not be built or started, or a peer's package is missing.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let build = &["build", "--locked", "--release", "--package", "mr-bench"];
    must_aside(&mut cargo(build))?;
    let mut bench = Command::new(target().join("release/mr-bench"));
    if options.peers {
        bench.arg("--ucx").arg(build_ucx_peer(options.no_install)?);
    }
    if options.quick {
        bench.arg("--quick");
    }
    if let Some(word) = &options.only {
        bench.arg("--only").arg(word);
    }
    if let Some(file) = &options.json {
        bench.arg("--json").arg(file);
    }
    let ok = run_command(&mut bench)?;
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Compiles the program that times UCX's registration cache.
fn build_ucx_peer(no_install: bool) -> Result<PathBuf> {
    packages::ensure(packages::UCX, no_install)?;
    let directory = target().join("peers");
    fs::create_dir_all(&directory).context("cannot make a directory for the peer")?;
    let program = directory.join("ucx_rcache");
    must(
        Command::new("cc")
            .args(["-O2", "-Wall", "-o"])
            .arg(&program)
            .arg(workspace_root().join("xtask/peers/ucx_rcache.c"))
            .arg("-lucs"),
    )?;
    Ok(program)
}

/// Where cargo builds.
fn target() -> PathBuf {
    let elsewhere = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    workspace_root().join(elsewhere.unwrap_or_else(|| PathBuf::from("target")))
}
