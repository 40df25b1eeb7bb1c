//! `rds`: ping, stress and info, as users of rds-tools know them.

mod info;
mod ping;
mod setup;
mod snapshot;
mod stress;
mod verbs;

use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// Tools for RDS sockets in user space.
#[derive(Parser)]
#[command(name = "rds", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    /// Send datagrams to port 0 of a host and time the answers
    Ping(ping::Options),
    /// Load sockets with requests and answers, and memory with RDMA, and verify all of it
    Stress(stress::Options),
    /// Show counters, sockets, connections and queues of a running `rds`
    Info(info::Options),
}

/// What a tool has found out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// All is well.
    Good,
    /// It ran, and something was wrong with what it saw.
    Bad,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    let outcome = match arguments.tool {
        Tool::Ping(options) => ping::run(&options, &mut out),
        Tool::Stress(options) => stress::run(&options, &mut out),
        Tool::Info(options) => info::run(&options, &mut out),
    };
    match outcome {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::FAILURE,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // With nowhere to write to there is nothing left to say.
            let _ = writeln!(io::stderr(), "rds: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whoever read the output has gone away: that is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
