//! `cargo xtask lint`: what a reviewer should not have to look for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::licences;
use crate::process::{cargo, run as run_command, say, succeeds};
use crate::test::FEATURES;

/// How to lint.
#[derive(Args)]
pub(crate) struct Options {
    /// Build and install cargo-deny first if it is missing (takes minutes)
    #[arg(long)]
    install: bool,
}

/// Runs every check, even after one has failed, and names those that failed.
///
/// # Errors
/// A tool could not be started.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut failed = Vec::new();
    let mut note = |check: &'static str, ok: bool| {
        if !ok {
            failed.push(check);
        }
    };

    note(
        "format",
        run_command(&mut cargo(&["fmt", "--all", "--check"]))?,
    );

    let scope = scope();
    let mut clippy = cargo(&["clippy", "--locked", "--all-targets"]);
    note(
        "clippy",
        run_command(clippy.args(scope).args(["--", "-D", "warnings"]))?,
    );

    let mut doc = cargo(&["doc", "--locked", "--no-deps"]);
    note(
        "docs",
        run_command(doc.args(scope).env("RUSTDOCFLAGS", "-D warnings"))?,
    );

    note("licences", dependencies(options.install)?);

    if failed.is_empty() {
        say("lint: all checks passed");
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("lint: FAILED: {}", failed.join(", ")));
    Ok(ExitCode::FAILURE)
}

/// All members with all features where libibverbs is installed, else the default ones with those that have tests.
fn scope() -> &'static [&'static str] {
    if succeeds("pkg-config", &["--exists", "libibverbs", "librdmacm"]) {
        return &["--workspace", "--all-features"];
    }
    say(
        "NOT CHECKED: mr-verbs, and what mr-lab, rds-lite and rds-interop have behind the feature `verbs`, since libibverbs \
         or librdmacm is missing (`cargo xtask setup` installs them)",
    );
    &["--features", FEATURES]
}

/// Licences, sources and advisories of all dependencies, as `deny.toml` has it.
fn dependencies(install: bool) -> Result<bool> {
    let present = || succeeds("cargo-deny", &["--version"]);
    if install && !present() && !run_command(&mut cargo(&["install", "--locked", "cargo-deny"]))? {
        return Ok(false);
    }
    if present() {
        return run_command(&mut cargo(&["deny", "--locked", "check"]));
    }
    let ok = licences::check()?;
    say(
        "NOT CHECKED: advisories against the dependencies (cargo-deny is missing; --install builds it)",
    );
    Ok(ok)
}
