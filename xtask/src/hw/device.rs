//! The same programs on a real RDMA device of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::artifacts::Program;
use super::guest::{Call, DEVICE_VARIABLE, TIMED_OUT};
use crate::packages::Unavailable;
use crate::process::note;

const DEVICES: &str = "/sys/class/infiniband";

/// How often a running program is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// Fails with the list of devices if this is none of them.
pub(super) fn check(device: &str) -> Result<()> {
    if !device.is_empty() && Path::new(DEVICES).join(device).is_dir() {
        return Ok(());
    }
    let entries = fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let devices: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let known = if devices.is_empty() {
        "none".to_owned()
    } else {
        devices.join(", ")
    };
    Err(Unavailable(format!(
        "this machine has no RDMA device {device:?}; it has: {known}"
    ))
    .into())
}

/// Runs the calls one after the other until the time is over; the first failure is the status of all.
///
/// # Errors
/// A program cannot be started.
pub(super) fn run(
    device: &str,
    programs: &[Program],
    calls: &[Call],
    environment: &[(String, String)],
    bound: Duration,
) -> Result<u8> {
    let deadline = Instant::now() + bound;
    let mut first = 0;
    for call in calls {
        let path = programs
            .iter()
            .find(|program| program.name == call.program)
            .map(|program| &program.path);
        let mut command =
            Command::new(path.map_or_else(|| PathBuf::from(&call.program), PathBuf::clone));
        command
            .args(&call.arguments)
            .env(DEVICE_VARIABLE, device)
            .envs(environment.iter().cloned());
        let Some(status) = run_until(command.stdin(Stdio::null()), deadline)? else {
            note(&format!("took too long while {} ran", call.program));
            return Ok(TIMED_OUT);
        };
        if status != 0 {
            note(&format!("failed: {} (status {status})", call.program));
        }
        first = if first == 0 { status } else { first };
    }
    Ok(first)
}

/// The exit status, or `None` if the time was over and the program had to be killed.
fn run_until(command: &mut Command, deadline: Instant) -> Result<Option<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    loop {
        if let Some(status) = child.try_wait()? {
            // Ended by a signal: as a shell has it.
            let signal =
                std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
            let code = status.code().or(signal).unwrap_or(255);
            return Ok(Some(u8::try_from(code).unwrap_or(255)));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(GLANCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Call {
        Call::new(["sh", "-c", script].map(str::to_owned)).unwrap()
    }

    fn run_all(calls: &[Call], bound: Duration) -> u8 {
        run(
            "none0",
            &[],
            calls,
            &[("A".to_owned(), "7".to_owned())],
            bound,
        )
        .unwrap()
    }

    #[test]
    fn the_first_failure_counts_and_the_rest_still_runs() {
        let minute = Duration::from_secs(60);
        assert_eq!(
            run_all(
                &[shell("exit 0"), shell("exit $A"), shell("exit 3")],
                minute
            ),
            7
        );
        assert_eq!(
            run_all(&[shell("test $MR_VERBS_DEVICE = none0")], minute),
            0
        );
        assert_eq!(run_all(&[shell("kill -9 $$")], minute), 137);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        assert_eq!(
            run_all(&[shell("exec sleep 1000")], Duration::ZERO),
            TIMED_OUT
        );
    }

    #[test]
    fn an_unknown_device_is_unavailable() {
        assert!(check("no such device").unwrap_err().is::<Unavailable>());
        assert!(check("").is_err());
    }
}
