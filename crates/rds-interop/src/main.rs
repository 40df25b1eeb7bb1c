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
use rds_interop::race;
use rds_interop::stack::{KernelStack, LiteStack, Stack};
use rds_interop::stress::{self, Arrival, Part};
use rds_lite::stress::{Flags, Format, Reporter};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
    /// Be the other side of `rds stress`, over the kernel's RDS; needs its modules, and root
    Stress(StressOptions),
    /// Run the matrix: rds-lite here, an agent of the kernel's RDS there
    Matrix(MatrixOptions),
    /// Answer in races: over the kernel's RDS or rds-lite, as a `race` says; needs root
    RaceAgent(RaceAgentOptions),
    /// The head to head: the kernel's RDS and rds-lite with the same load, by turns; needs root
    Race(RaceOptions),
}

#[derive(Args)]
struct RaceAgentOptions {
    /// Where to listen for orders; whoever can connect is obeyed
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
}

#[derive(Args)]
struct RaceOptions {
    /// The agent on the other machine; RDS has the same address there
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddr,
    /// The address of RDS on this machine
    #[arg(long, value_name = "ADDR")]
    address: IpAddr,
    /// Rounds, in each of which everybody has a turn with each load
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The time of a turn
    #[arg(long, value_name = "MS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(10..=30_000))]
    slice: u64,
    /// Begin no turn after this time, but those of the first round
    #[arg(long, value_name = "SECONDS", default_value_t = 160, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    within: u64,
    /// Only who has this text in its line: "kernel -> rds-lite, lazy"
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// How the figures are written
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
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

/// With -r alone this side waits for a load; with -s it begins one. The flags are those of `rds stress`.
#[derive(Args)]
struct StressOptions {
    /// What carries RDS
    #[arg(long, value_enum)]
    transport: Transport,
    #[command(flatten)]
    flags: Flags,
    /// How the report is written
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
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
    /// The program `rds`, for the cases that run it
    #[arg(long, value_name = "PROGRAM")]
    tool: Option<PathBuf>,
    /// Only the cases whose line contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().role {
        Role::Agent(options) => run_agent(options),
        Role::Stress(options) => run_stress(&options),
        Role::Matrix(options) => run_matrix(options),
        Role::RaceAgent(options) => race::agent::serve(options.listen).map(|()| ExitCode::FAILURE),
        Role::Race(options) => run_race(&options),
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

fn run_stress(options: &StressOptions) -> Result<ExitCode> {
    let flags = &options.flags;
    let load = flags.load()?;
    let part = Part {
        own: flags
            .receive_address
            .context("give -r for this host's address")?,
        port: flags.port,
        lead: flags.send_address.map(|peer| (peer, load)),
    };
    let arrival = Arrival {
        wait: None,
        retries: flags.connect_retries,
        pause: Duration::from_secs(1),
    };
    let reporter = |load: &_| {
        let quiet = flags.report_summary;
        Reporter::new(options.format, quiet, flags.report_cpu, load)
    };
    let stack = KernelStack::new(options.transport)?;
    let mut out = std::io::stdout().lock();
    let failure = stress::take_part(&stack, &part, arrival, reporter, &mut out)?;
    Ok(failure.map_or(ExitCode::SUCCESS, |_| ExitCode::FAILURE))
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
        name: KernelStack::NAME,
        addr: options.peer,
    };
    let setup = Setup {
        transport: options.transport,
        near: (near, options.addresses),
        far: (far, options.peer.ip()),
        faulty_network,
        cuts: (options.transport == Transport::Tcp).then_some(Cutter::Far),
        tool: options.tool,
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

fn run_race(options: &RaceOptions) -> Result<ExitCode> {
    let mut contenders = race::all();
    let only = &options.only;
    if !only.is_empty() {
        let is_meant = |line: &str| only.iter().any(|text| line.contains(text));
        contenders.retain(|contender| is_meant(&contender.to_string()));
        anyhow::ensure!(!contenders.is_empty(), "nobody has {only:?} in its line");
    }
    let setup = race::Setup {
        agent: options.peer,
        address: options.address,
        rounds: options.rounds,
        slice: Duration::from_millis(options.slice),
        within: Duration::from_secs(options.within),
        contenders,
    };
    let report = race::run(&setup, |round, entry| eprintln!("{round}: {entry}"))?;
    match options.format {
        Format::Text => println!("{report}"),
        Format::Json => {
            for figures in report.figures() {
                println!("{}", serde_json::to_string(&figures)?);
            }
        }
    }
    Ok(if report.is_whole() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
