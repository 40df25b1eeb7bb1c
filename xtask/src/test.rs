//! `cargo xtask test`: everything that must pass.

use std::process::ExitCode;

use anyhow::Result;

use crate::model;
use crate::process::{cargo, note, say, succeeds, watch, watch_status};
use crate::tally::{Runner, Tally};

/// Runs the tests on a verbs device (in a virtual machine), rds-lite against the kernel's RDS (in two, over TCP and
/// over verbs), the models of the pool, the doctests, and the tests of the default members, whose programs and examples are built
/// with them.
///
/// Every runner runs even if an earlier one failed. The last lines are the closing lines of the last
/// runner and the sum over all of them. Where a virtual machine cannot be had the rest runs, and the
/// last lines say what was skipped; in CI that is a failure.
///
/// # Errors
/// Cargo could not be started.
pub(crate) fn run() -> Result<ExitCode> {
    let mut tally = Tally::default();
    let device = in_machines(&mut tally, &[])?;
    let tcp = in_machines(&mut tally, &["--interop", "tcp"])?;
    let verbs = in_machines(&mut tally, &["--interop", "verbs"])?;
    let machines = [device, tcp, verbs];
    let mut all_ok = !machines.contains(&Machines::Failed);
    all_ok &= model::check(model::Schedules::default(), &mut tally)?;
    for (runner, args) in [doctests(), tests()] {
        all_ok &= watch(&mut cargo(args), |line| tally.look(runner, line))?;
    }
    if machines.contains(&Machines::Missing) {
        all_ok &= !in_ci();
        note(
            "SKIPPED: the tests of mr-verbs, mr-lab and rds-lite on a device, or of rds-lite against the kernel's",
        );
        note(
            "RDS, since this machine cannot run virtual ones; what is missing was said above. `cargo xtask hw`,",
        );
        note("`cargo xtask hw --interop tcp` and `cargo xtask hw --interop verbs` run them alone.");
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

/// How tests in virtual machines have ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Machines {
    Passed,
    Failed,
    Missing,
}

/// Runs `cargo xtask hw` as a process of its own: it has its own exit status for "cannot".
fn in_machines(tally: &mut Tally, options: &[&str]) -> Result<Machines> {
    let hw = [
        "run",
        "--quiet",
        "--locked",
        "--package",
        "xtask",
        "--",
        "hw",
    ];
    let args = [&hw, options].concat();
    let look = |line: &str| tally.look(Runner::Libtest, line);
    let status = watch_status(&mut cargo(&args), look)?;
    Ok(match status.code() {
        Some(0) => Machines::Passed,
        Some(code) if code == i32::from(crate::UNAVAILABLE) => Machines::Missing,
        _ => Machines::Failed,
    })
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Features that have tests of their own.
pub(crate) const FEATURES: &str = "mr-policies/serde,mr-mock/mockall";

/// What a runner is called with.
type Call = (Runner, &'static [&'static str]);

fn doctests() -> Call {
    (
        Runner::Libtest,
        &[
            "test",
            "--locked",
            "--doc",
            "--no-fail-fast",
            "--features",
            FEATURES,
        ],
    )
}

fn tests() -> Call {
    if succeeds("cargo-nextest", &["nextest", "--version"]) {
        let args = &[
            "nextest",
            "run",
            "--locked",
            "--features",
            FEATURES,
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
                "--features",
                FEATURES,
                "--lib",
                "--bins",
                "--examples",
                "--tests",
                "--no-fail-fast",
            ],
        )
    }
}
