//! `rds info`.

use crate::setup::{
    FabricName, Format, Network, PoolOptions, fabric, host, mock_hosts, own_address, parse_seconds,
};
use crate::{Verdict, ping, snapshot};
use anyhow::{Context, Result, bail};
use clap::Args;
use mr_core::SystemClock;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

/// The longest snapshot that is read: a bound, should something else answer.
const LONGEST: u64 = 64 << 20;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The kernel has one RDS for all processes; here each process has its own. So this asks a process
/// that was started with `--info ADDR:PORT`. With the address of a host alone, of this kind or the kernel's,
/// it sends that a ping over --fabric, and shows what is known here then. Without an address it shows a
/// short exchange between two hosts in this process. Without a choice it shows everything.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// ADDR:PORT where a process serves its state, or ADDR of a host
    address: Option<Whom>,
    /// Address of this host to send from
    #[arg(long, value_name = "ADDR", requires = "address")]
    source: Option<IpAddr>,
    /// Seconds that a host may take to be connected and to answer
    #[arg(long, value_name = "SEC", default_value = "5", value_parser = parse_seconds)]
    wait: Duration,
    #[command(flatten)]
    network: Network,
    /// Counters
    #[arg(short = 'c', long)]
    counters: bool,
    /// Sockets
    #[arg(short = 'k', long)]
    sockets: bool,
    /// Connections; flags: s(ending) c(onnecting) C(onnected) E(nded)
    #[arg(short = 'n', long)]
    connections: bool,
    /// Messages sent and not acknowledged
    #[arg(short = 'r', long)]
    retransmit: bool,
    /// Messages to be sent
    #[arg(short = 's', long)]
    send: bool,
    /// Messages to be received
    #[arg(short = 't', long)]
    receive: bool,
    /// The pool of regions
    #[arg(short = 'p', long)]
    pool: bool,
    /// Counters that are zero, too
    #[arg(short = 'v', long)]
    verbose: bool,
    /// How output is written
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    pools: PoolOptions,
}

/// Whose state is shown.
#[derive(Clone, Copy, Debug)]
enum Whom {
    Process(SocketAddr),
    Peer(IpAddr),
}

impl FromStr for Whom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let process = || text.parse().map(Self::Process);
        let peer = |_| text.parse().map(Self::Peer);
        process()
            .or_else(peer)
            .map_err(|_| "give ADDR:PORT of a process, or ADDR of a host".into())
    }
}

pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<Verdict> {
    let network = &options.network;
    let mut verdict = Verdict::Good;
    let hosts = match options.address {
        Some(Whom::Process(_)) if network.is_named() || options.source.is_some() => {
            bail!(
                "a process is asked at its ADDR:PORT, whatever its fabric: leave out the options of networks, or \
                 give the address of a host alone"
            )
        }
        Some(Whom::Process(address)) => ask(address)?,
        Some(Whom::Peer(peer)) => {
            let (hosts, answered) = exchange(options, fabric(network, true)?, peer)?;
            if !answered {
                verdict = Verdict::Bad;
            }
            hosts
        }
        None => {
            fabric(network, false)?;
            example(&options.pools)?
        }
    };
    for host in hosts.as_array().context("the answer is no list of hosts")? {
        match options.format {
            Format::Json => writeln!(out, "{host}")?,
            Format::Text => show(options, host, out)?,
        }
    }
    Ok(verdict)
}

fn ask(address: SocketAddr) -> Result<Value> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| {
        format!("nobody serves at {address}: start `rds stress --info {address}`")
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text)?;
    serde_json::from_str(&text).context("the answer is not from `rds`")
}

/// A ping to another machine. Also says whether it was answered.
fn exchange(options: &Options, fabric: FabricName, peer: IpAddr) -> Result<(Value, bool)> {
    let own = own_address(options.source, peer)?;
    let host = host(fabric, &options.network, &options.pools, own, |_| {})?;
    let socket = host.bind(SocketAddr::new(own, 0))?;
    let took = ping::once(&socket, peer, &SystemClock::new(), options.wait)?;
    Ok((Value::Array(vec![snapshot::of(&host)]), took.is_some()))
}

/// One request, one answer.
fn example(pools: &PoolOptions) -> Result<Value> {
    let [(first, one), (second, two)] = mock_hosts(pools, |_| {})?;
    let near = first.bind(SocketAddr::new(one, 4000))?;
    let far = second.bind(SocketAddr::new(two, 4000))?;
    near.send_to(b"request", far.local_addr())?;
    let request = far.recv_message()?;
    far.send_to(b"answer", request.from)?;
    near.recv_message()?;
    Ok(Value::Array(vec![
        snapshot::of(&first),
        snapshot::of(&second),
    ]))
}

fn show(options: &Options, host: &Value, out: &mut impl Write) -> Result<()> {
    let all = !(options.counters
        || options.sockets
        || options.connections
        || options.retransmit
        || options.send
        || options.receive
        || options.pool);
    if all || options.counters {
        counters(&host["counters"], options.verbose, out)?;
    }
    if all || options.sockets {
        let columns = [
            "bound",
            "send_buffer",
            "send_queue_bytes",
            "receive_buffer",
            "receive_queue",
            "receive_queue_bytes",
            "regions",
        ];
        table("RDS Sockets", &host["sockets"], &columns, |_| true, out)?;
    }
    if all || options.connections {
        let columns = [
            "local",
            "remote",
            "next_tx_seq",
            "next_rx_seq",
            "links",
            "version",
            "flags",
        ];
        table(
            "RDS Connections",
            &host["connections"],
            &columns,
            |_| true,
            out,
        )?;
    }
    let columns = ["local", "remote", "sequence", "bytes"];
    for (wanted, queue, title) in [
        (options.receive, "receive", "Receive Message Queue"),
        (options.send, "send", "Send Message Queue"),
        (options.retransmit, "retransmit", "Retransmit Message Queue"),
    ] {
        if all || wanted {
            table(
                title,
                &host["messages"],
                &columns,
                |row| row["queue"] == queue,
                out,
            )?;
        }
    }
    if (all || options.pool)
        && let Some(pool) = host["pool"].as_object()
    {
        writeln!(out, "\nRegions:")?;
        for (name, value) in pool {
            writeln!(out, "{name:>28} {value}")?;
        }
    }
    Ok(())
}

fn counters(counters: &Value, zeros: bool, out: &mut impl Write) -> Result<()> {
    writeln!(out, "\nCounters:\n{:>28} Value", "CounterName")?;
    for counter in counters.as_array().into_iter().flatten() {
        if zeros || counter[1] != 0 {
            writeln!(
                out,
                "{:>28} {}",
                counter[0].as_str().unwrap_or("?"),
                counter[1]
            )?;
        }
    }
    Ok(())
}

fn table(
    title: &str,
    rows: &Value,
    columns: &[&str],
    wanted: impl Fn(&Value) -> bool,
    out: &mut impl Write,
) -> Result<()> {
    writeln!(out, "\n{title}:")?;
    for column in columns {
        write!(out, "{column:>20} ")?;
    }
    writeln!(out)?;
    for row in rows
        .as_array()
        .into_iter()
        .flatten()
        .filter(|row| wanted(row))
    {
        for column in columns {
            let cell = match &row[*column] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            write!(out, "{cell:>20} ")?;
        }
        writeln!(out)?;
    }
    Ok(())
}
