//! The command line.

mod args;
mod measure;
mod output;
mod presets;
mod progress;
mod run;

use args::{Cli, Command};
use clap::Parser;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::io::Write;

/// Runs the command that `args` (the program's name first) say; answers go to `out`, everything
/// else to `err`.
///
/// Returns the exit code: 0, 1 if `--check` finds a disagreement or the lab fails, 2 if what it
/// was given is at fault. Nothing is written to `out` before the answer is complete.
pub fn main(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(answer) => return no_command(&answer, out, err),
    };
    let command = cli.command.unwrap_or(Command::Compare(cli.compare));
    let result = match command {
        Command::Compare(args) => run::compare(&args, out),
        Command::Replay(args) => run::replay(&args, out),
        Command::Sweep(args) => run::sweep(&args, out),
        Command::Presets(args) => presets::run(&args, out),
        Command::Measure(args) => measure::run(&args, out),
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            // If stderr is gone as well there is nobody left to tell.
            let _ = writeln!(err, "mr-lab: {error}");
            error.exit_code()
        }
    }
}

/// Help and version are answers, all else is a fault of the command line.
fn no_command(answer: &clap::Error, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    // Nothing is left to do if it cannot be told.
    let _ = match answer.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => write!(out, "{}", answer.render()),
        _ => write!(err, "{}", answer.render()),
    };
    u8::try_from(answer.exit_code()).unwrap_or(2)
}
