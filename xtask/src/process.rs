//! Running other programs, and saying so.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::libclang::{self, Libclang};

/// Longest line of a program's output that is kept in one piece, in bytes; longer ones are cut up.
const LINE_MAX: u64 = 64 * 1024;

/// Prints one line of ours.
///
/// A closed standard output is no reason to stop a test run, so a failed write is dropped.
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints one line about what is being done, on standard error: standard output is for results.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The root of the workspace, wherever the command was started.
pub(crate) fn workspace_root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), PathBuf::from)
}

/// The cargo that started us, in the workspace's root, with these arguments, and with a libclang that works.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(args).current_dir(workspace_root());
    if let Libclang::Good { directory, .. } = libclang::find() {
        command.env("LIBCLANG_PATH", directory);
    }
    command
}

/// Whether `program args` can be started and succeeds; its output is dropped.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command with our output as its own, and returns whether it succeeded.
///
/// # Errors
/// It could not be started.
pub(crate) fn run(command: &mut Command) -> Result<bool> {
    announce(command);
    let status = command.status().with_context(|| cannot_start(command))?;
    if !status.success() {
        note(&format!("failed ({status}): {}", shown(command)));
    }
    Ok(status.success())
}

/// Runs a command that must succeed.
///
/// # Errors
/// It could not be started or it failed.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    if !run(command)? {
        bail!("`{}` failed", shown(command));
    }
    Ok(())
}

/// Runs a command that must succeed, with what it prints on our standard error.
///
/// # Errors
/// It could not be started or it failed.
pub(crate) fn must_aside(command: &mut Command) -> Result<()> {
    must(command.stdin(Stdio::null()).stdout(io::stderr()))
}

/// Runs a command and returns its standard output; its errors go to ours.
///
/// # Errors
/// It could not be started, it failed, or its output is not UTF-8.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| cannot_start(command))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", shown(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of `{}` is not UTF-8", shown(command)))
}

/// Runs a command, passes on its output line by line and shows every line to `look` as well. Says
/// whether it succeeded.
///
/// Standard output and standard error come through one pipe, so that their order is kept.
///
/// # Errors
/// It could not be started or its output could not be read.
pub(crate) fn watch(command: &mut Command, look: impl FnMut(&str)) -> Result<bool> {
    watch_status(command, look).map(|status| status.success())
}

/// As [`watch`], for those who tell one failure from another.
///
/// # Errors
/// As there.
pub(crate) fn watch_status(
    command: &mut Command,
    mut look: impl FnMut(&str),
) -> Result<ExitStatus> {
    announce(command);
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| cannot_start(command))?;
    // The command holds our copies of the pipe's writing end; the reader sees its end only without them.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while read_line(&mut lines, &mut line)? {
        let text = String::from_utf8_lossy(&line);
        look(&text);
        say(&text);
    }
    let status = child.wait()?;
    if !status.success() {
        note(&format!("failed ({status}): {}", shown(command)));
    }
    Ok(status)
}

/// Reads one line without its end into `line`; false at the end of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = io::Read::take(input, LINE_MAX).read_until(b'\n', line)?;
    while line
        .last()
        .is_some_and(|&byte| byte == b'\n' || byte == b'\r')
    {
        line.pop();
    }
    Ok(read > 0)
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let mut text = program
        .file_name()
        .unwrap_or(command.get_program())
        .to_string_lossy()
        .into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// Says what is about to run.
pub(crate) fn announce(command: &Command) {
    note(&format!("$ {}", shown(command)));
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start `{}`: is it installed?", shown(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_sees_both_streams_in_order_and_the_status() {
        let mut seen = Vec::new();
        let script = "echo one; echo two >&2; printf 'three\\377'; exit 3";
        let ok = watch(Command::new("sh").args(["-c", script]), |line| {
            seen.push(line.to_owned())
        })
        .unwrap();
        assert!(!ok);
        assert_eq!(seen, ["one", "two", "three\u{fffd}"]);
    }

    #[test]
    fn an_endless_line_is_cut_up() {
        let endless = vec![b'x'; 3 * LINE_MAX as usize / 2];
        let mut input = BufReader::new(endless.as_slice());
        let mut line = Vec::new();
        assert!(read_line(&mut input, &mut line).unwrap());
        assert_eq!(line.len() as u64, LINE_MAX);
        assert!(read_line(&mut input, &mut line).unwrap());
        assert_eq!(line.len() as u64, LINE_MAX / 2);
        assert!(!read_line(&mut input, &mut line).unwrap());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = must(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(
            error.to_string().contains("no-such-program-here"),
            "{error}"
        );
    }
}
