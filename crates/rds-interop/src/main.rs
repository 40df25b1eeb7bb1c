//! `rds-interop`: the agent of the kernel's RDS, and the matrix with rds-lite as its peer.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program whose output is a table"
)]

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use rds_interop::agent::{Agent, Peer};
use rds_interop::kernel::Transport;
use rds_interop::matrix::{self, Cutter, Outcome, Row, Setup};
use rds_interop::stack::{KernelStack, LiteStack, Stack};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Instant;

/// rds-lite against the kernel's RDS.
#[derive(Parser)]
#[command(name = "rds-interop", version)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Drive the kernel's RDS as others say; needs its modules, and root
    Agent(AgentOptions),
    /// Run the matrix: rds-lite here, an agent of the kernel's RDS there
    Matrix(MatrixOptions),
}

#[derive(Args)]
struct AgentOptions {
    /// What carries RDS
    #[arg(long, value_enum)]
    transport: Transport,
    /// Where to listen for orders; whoever can connect is obeyed
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// The network device whose packets may be lost
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
}

#[derive(Args)]
struct MatrixOptions {
    /// What carries RDS
    #[arg(long, value_enum)]
    transport: Transport,
    /// The agent of the kernel's RDS
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddr,
    /// Addresses of this machine, one below and one above the peer's
    #[arg(long = "address", value_name = "ADDR", required = true)]
    addresses: Vec<IpAddr>,
    /// The network device whose packets may be lost; needs root
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Only the cases whose line contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().role {
        Role::Agent(options) => run_agent(options),
        Role::Matrix(options) => run_matrix(options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("rds-interop: {error:#}");
        ExitCode::from(2)
    })
}

fn run_agent(options: AgentOptions) -> Result<ExitCode> {
    let stack = KernelStack::new(options.transport)?;
    Agent::start(stack, options.listen, options.interface)?.join();
    Ok(ExitCode::FAILURE)
}

fn run_matrix(options: MatrixOptions) -> Result<ExitCode> {
    let stack = LiteStack::new(options.transport, None)?;
    let name = stack.name();
    let faulty_network = options.interface.is_some();
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let agent = Agent::start(stack, here, options.interface)
        .context("the agent of rds-lite could not be started")?;
    let near = Peer {
        name,
        addr: agent.addr(),
    };
    let far = Peer {
        name: "kernel",
        addr: options.peer,
    };
    let setup = Setup {
        transport: options.transport,
        near: (near, options.addresses),
        far: (far, options.peer.ip()),
        faulty_network,
        cuts: (options.transport == Transport::Tcp).then_some(Cutter::Far),
        only: options.only,
    };

    let start = Instant::now();
    println!("{}", Row::header());
    let rows = matrix::run(&setup, |row| println!("{row}"));
    let count = |what: fn(&Outcome) -> bool| rows.iter().filter(|row| what(&row.outcome)).count();
    let passed = count(|outcome| matches!(outcome, Outcome::Passed(_)));
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    // As cargo's tests end, for whoever adds up.
    println!(
        "test result: {verdict}. {passed} passed; {failed} failed; {} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        rows.len() - passed - failed,
        start.elapsed().as_secs_f64()
    );
    Ok(if failed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
