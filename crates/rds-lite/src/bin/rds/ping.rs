//! `rds ping`.

use crate::setup::{
    Common, FabricName, Format, PoolOptions, fabric, host, mock_hosts, own_address, parse_seconds,
};
use crate::{Verdict, snapshot};
use anyhow::{Context, Result};
use clap::Args;
use mr_core::{Clock, SystemClock};
use rds_lite::{Host, RecvError, Socket};
use serde_json::json;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Sockets used in turns: an answer names nothing but the socket.
const SOCKETS: usize = 8;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The host to ping; without one, another host in this process
    address: Option<IpAddr>,
    /// How many pings; for ever without this
    #[arg(short = 'c', long, value_name = "N")]
    count: Option<u64>,
    /// Seconds between two pings
    #[arg(short = 'i', long, value_name = "SEC", default_value = "1", value_parser = parse_seconds)]
    interval: Duration,
    /// Address of this host to send from
    #[arg(short = 'I', long, value_name = "ADDR")]
    source: Option<IpAddr>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    pool: PoolOptions,
}

pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<Verdict> {
    match (
        fabric(&options.common.network, options.address.is_some())?,
        options.address,
    ) {
        (fabric @ (FabricName::Tcp | FabricName::Verbs), Some(peer)) => {
            let own = own_address(options.source, peer)?;
            let host = host(fabric, &options.common.network, &options.pool, own, |_| {})?;
            options.serve(&[&host])?;
            ping(options, &host, own, peer, out)
        }
        _ => {
            let [(near, own), (far, peer)] = mock_hosts(&options.pool, |_| {})?;
            options.serve(&[&near, &far])?;
            let _listens = far.bind(SocketAddr::new(peer, 0))?;
            ping(options, &near, own, peer, out)
        }
    }
}

impl Options {
    /// Shows `rds info` these hosts from now on, if that is wanted.
    fn serve(&self, hosts: &[&Host]) -> Result<()> {
        let hosts = hosts.iter().map(|&host| host.clone()).collect();
        self.common
            .info
            .map_or(Ok(()), |addr| snapshot::serve(addr, hosts))
    }
}

fn ping(
    options: &Options,
    host: &Host,
    own: IpAddr,
    peer: IpAddr,
    out: &mut impl Write,
) -> Result<Verdict> {
    let bind = |_| host.bind(SocketAddr::new(own, 0));
    let sockets: Vec<Socket> = (0..SOCKETS)
        .map(bind)
        .collect::<Result<_, _>>()
        .context("cannot bind a socket")?;
    let clock = SystemClock::new();
    let wait = options.interval.max(Duration::from_secs(1));
    let mut answered = 0;
    let mut number = 0;
    while options.count.is_none_or(|count| number < count) {
        number += 1;
        let socket = &sockets[number as usize % SOCKETS];
        let start = clock.now();
        let took = once(socket, peer, &clock, wait)?;
        answered += u64::from(took.is_some());
        let usec = took.map(|took| took.as_micros() as u64);
        match (options.common.format, usec) {
            (Format::Text, Some(usec)) => writeln!(out, "{number:>4}: {usec} usec")?,
            (Format::Text, None) => writeln!(out, "{number:>4}: no answer in {wait:?}")?,
            (Format::Json, usec) => writeln!(out, "{}", json!({"ping": number, "usec": usec}))?,
        }
        out.flush()?;
        let more = options.count.is_none_or(|count| number < count);
        if more {
            std::thread::sleep(options.interval.saturating_sub(clock.now().since(start)));
        }
    }
    Ok(if answered == number {
        Verdict::Good
    } else {
        Verdict::Bad
    })
}

/// One ping. Says how long the answer took, or that there was none in this time.
pub(crate) fn once(
    socket: &Socket,
    peer: IpAddr,
    clock: &SystemClock,
    wait: Duration,
) -> Result<Option<Duration>> {
    // What came too late for its turn is not for this one.
    while socket.try_recv_message().is_ok() {}
    socket.set_receive_timeout(Some(wait));
    let start = clock.now();
    socket.send_to(&[], SocketAddr::new(peer, 0))?;
    match socket.recv_message() {
        Ok(_) => Ok(Some(clock.now().since(start))),
        Err(RecvError::TimedOut) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
