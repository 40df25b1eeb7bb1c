//! `cargo xtask test`: everything that must pass.

use std::process::ExitCode;

use anyhow::Result;

use crate::process::{cargo, must, say, succeeds, watch};
use crate::tally::{Runner, Tally};

/// Builds the default members with their examples, then runs their doctests and their tests.
///
/// Every runner runs even if an earlier one failed. The last lines are the closing lines of the last
/// runner and the sum over all of them.
///
/// # Errors
/// The build failed, or cargo could not be started.
pub(crate) fn run() -> Result<ExitCode> {
    must(&mut cargo(&[
        "build",
        "--locked",
        "--lib",
        "--bins",
        "--examples",
    ]))?;

    let mut tally = Tally::default();
    let mut all_ok = true;
    // The runner with the most to say comes last. What needs a virtual machine (crates/mr-verbs under
    // `cargo xtask hw`) belongs in front of it, as one more runner.
    for (runner, args) in [doctests(), tests()] {
        all_ok &= watch(&mut cargo(args), |line| tally.look(runner, line))?;
    }

    say(&tally.to_string());
    // A runner that counts no failure can still have died, and one that ran nothing proves nothing.
    let passed = all_ok && tally.failed == 0 && tally.passed > 0;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What a runner is called with.
type Call = (Runner, &'static [&'static str]);

fn doctests() -> Call {
    (
        Runner::Libtest,
        &["test", "--locked", "--doc", "--no-fail-fast"],
    )
}

fn tests() -> Call {
    if succeeds("cargo-nextest", &["nextest", "--version"]) {
        let args = &[
            "nextest",
            "run",
            "--locked",
            "--no-fail-fast",
            "--status-level",
            "fail",
        ];
        (Runner::Nextest, args)
    } else {
        (
            Runner::Libtest,
            &[
                "test",
                "--locked",
                "--lib",
                "--bins",
                "--tests",
                "--no-fail-fast",
            ],
        )
    }
}
