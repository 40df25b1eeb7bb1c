//! `rds stress`.

use crate::setup::{Common, FabricName, PoolOptions, fabric, host, mock_hosts, own_address};
use crate::{Verdict, snapshot};
use anyhow::{Context, Result, anyhow, ensure};
use clap::{ArgAction, Args};
use rds_lite::Host;
use rds_lite::stress::{
    Control, Flags, LiteCarrier, Load, Remarks, Reporter, Side, alone, follow, lead, places,
};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long a load lasts whose sides are both here, if nothing is said: it is a test, and ends.
const ALONE: Duration = Duration::from_secs(5);

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);

/// Without addresses both ends run in this process, over the mock fabric, and everything is
/// verified. With -r alone this side waits for a load; with -s it begins one. Sizes take K, M, G.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    flags: Flags,
    /// Real-time priority: refused, with what to do instead
    #[arg(short = 'R', long)]
    rtprio: bool,
    /// Type of service; only 0
    #[arg(short = 'Q', long, value_name = "N", default_value_t = 0)]
    tos: u8,
    /// Tell on standard error what connections do
    #[arg(short = 'V', long)]
    trace: bool,
    /// Memory is leased before it is named in a message: only 1
    #[arg(long, value_name = "0/1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    rdma_use_get_mr: u8,
    /// Report keys that come back while stale; always on, and they fail the run
    #[arg(long, action = ArgAction::SetTrue)]
    rdma_key_o_meter: bool,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    pool: PoolOptions,
}

pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<Verdict> {
    let flags = &options.flags;
    let has_address = flags.receive_address.is_some() || flags.send_address.is_some();
    options.refuse()?;
    let load = flags.load()?;
    load.check_regions(options.pool.regions)?;
    if options.trace {
        let events = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
        let told = events.with_writer(std::io::stderr).try_init();
        told.map_err(|error| anyhow!("-V: {error}"))?;
    }
    match fabric(&options.common.network, has_address)? {
        FabricName::Mock => embedded(options, load, out),
        network => match flags.send_address {
            Some(peer) => active(options, &load, network, peer, out),
            None => passive(options, network, out),
        },
    }
}

/// Both ends in this process.
fn embedded(options: &Options, mut load: Load, out: &mut impl Write) -> Result<Verdict> {
    load.verify = true;
    if options.flags.time.is_none() {
        load.time = Some(ALONE);
    }
    let load = &load;
    let [(near, one), (far, two)] = mock_hosts(&options.pool, |config| load.configure(config))?;
    if let Some(addr) = options.common.info {
        snapshot::serve(addr, vec![near.clone(), far.clone()])?;
    }
    let port = options.flags.port;
    let sides = [
        start(&near, load, port, (one, two), true)?,
        start(&far, load, port, (two, one), !load.one_way)?,
    ];
    let mut reporter = options.reporter(load);
    alone(load, &sides, &mut reporter, out)?;
    options.report(load, &reporter, &sides, &[near, far], out)
}

/// The side that names the load and begins.
fn active(
    options: &Options,
    load: &Load,
    network: FabricName,
    peer: IpAddr,
    out: &mut impl Write,
) -> Result<Verdict> {
    load.check_rdma(network != FabricName::Tcp)?;
    let flags = &options.flags;
    let own = own_address(flags.receive_address, peer)?;
    let to = SocketAddr::new(peer, flags.port);
    let mut control = Control::connect(own, to, flags.connect_retries, RETRY)?;
    control.offer(load)?;
    let prepared = options.prepare(network, load, (own, peer), true);
    let (host, side) = prepared.inspect_err(|error| control.refuse(&format!("{error:#}")))?;
    let mut reporter = options.reporter(load);
    lead(&mut control, load, &side, &mut reporter, out)?;
    options.report(load, &reporter, &[side], &[host], out)
}

/// The side that waits for a load.
fn passive(options: &Options, network: FabricName, out: &mut impl Write) -> Result<Verdict> {
    let own = options.flags.receive_address;
    let own = own.context("give -r for this host's address")?;
    let at = SocketAddr::new(own, options.flags.port);
    let (mut control, load) = Control::accept(at, None)?;
    let peer = control.peer();
    let prepared = options.prepare(network, &load, (own, peer), !load.one_way);
    let (host, side) = prepared.inspect_err(|error| control.refuse(&format!("{error:#}")))?;
    let mut reporter = options.reporter(&load);
    follow(&mut control, &load, &side, &mut reporter, out)?;
    options.report(&load, &reporter, &[side], &[host], out)
}

/// Starts the tasks of one side.
fn start(
    host: &Host,
    load: &Load,
    port: u16,
    (own, peer): (IpAddr, IpAddr),
    asks: bool,
) -> Result<Side> {
    let ports = || "-p leaves no ports for -t";
    let peers = places(peer, port, load).with_context(ports)?;
    let mut carriers = Vec::new();
    for addr in places(own, port, load).with_context(ports)? {
        let socket = host.bind(addr);
        let socket = socket.with_context(|| format!("cannot bind {addr}"))?;
        carriers.push(LiteCarrier::new(socket, load));
    }
    Ok(Side::start(carriers, &peers, load, asks)?)
}

impl Options {
    /// Refuses the flags of rds-stress that have no meaning here.
    fn refuse(&self) -> Result<()> {
        ensure!(
            !self.rtprio,
            "-R: this tool does not change its priority; start it with `chrt --rr 1 rds stress`"
        );
        ensure!(
            self.tos == 0,
            "-Q: there is one connection between two addresses, for all types of service: only 0"
        );
        ensure!(
            self.rdma_use_get_mr == 1,
            "--rdma-use-get-mr: sending does not map memory, get_mr does: only 1"
        );
        Ok(())
    }

    /// A host of a network, with tasks that run.
    fn prepare(
        &self,
        network: FabricName,
        load: &Load,
        (own, peer): (IpAddr, IpAddr),
        asks: bool,
    ) -> Result<(Host, Side)> {
        load.check_rdma(network != FabricName::Tcp)?;
        load.check_regions(self.pool.regions)?;
        let host = host(network, &self.common.network, &self.pool, own, |config| {
            load.configure(config);
        })?;
        if let Some(addr) = self.common.info {
            snapshot::serve(addr, vec![host.clone()])?;
        }
        let side = start(&host, load, self.flags.port, (own, peer), asks)?;
        Ok((host, side))
    }

    fn reporter(&self, load: &Load) -> Reporter {
        let flags = &self.flags;
        let quiet = flags.report_summary;
        Reporter::new(self.common.format, quiet, flags.report_cpu, load)
    }

    /// The summary, what the pools were exposed to, and what was wrong.
    fn report(
        &self,
        load: &Load,
        reporter: &Reporter,
        sides: &[Side],
        hosts: &[Host],
        out: &mut impl Write,
    ) -> Result<Verdict> {
        let mut failures: Vec<String> = hosts.iter().filter_map(reissued).collect();
        failures.extend(sides.iter().filter_map(Side::failure));
        let mut remarks = Remarks {
            also_right: ", no key came back while stale",
            ..Remarks::default()
        };
        let policy = self.pool.policy.to_string();
        if load.rdma_bytes > 0 {
            remarks.lines.push(format!("policy {policy}"));
            remarks.lines.extend(hosts.iter().filter_map(exposure));
        }
        let pools: Value = hosts.iter().map(snapshot::pool).collect();
        remarks.fields.insert("policy".into(), json!(policy));
        remarks.fields.insert("pools".into(), pools);
        reporter.end(load, &failures, &remarks, out)?;
        Ok(if failures.is_empty() {
            Verdict::Good
        } else {
            Verdict::Bad
        })
    }
}

fn reissued(host: &Host) -> Option<String> {
    let reissued = host.keys_reissued_while_stale();
    (reissued > 0).then(|| format!("{reissued} keys were given out again while stale"))
}

fn exposure(host: &Host) -> Option<String> {
    let stats = host.pool_stats()?;
    Some(format!(
        "pool: {} leases, {} flushes of {:.1} regions; exposure: longest {:?}, at most {} stale keys, {:.6} key-seconds",
        stats.leases,
        stats.flushes,
        stats.regions_per_flush(),
        stats.exposure.longest,
        stats.peak_stale.keys,
        stats.exposure.key_seconds,
    ))
}
