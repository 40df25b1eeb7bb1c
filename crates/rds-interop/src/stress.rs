//! The other side of `rds stress`, over any stack.

use crate::kernel::Transport;
use crate::stack::Stack;
use anyhow::{Context, Result};
use rds_lite::stress::{Control, Load, Remarks, Reporter, Side, follow, lead, places};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// One side of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The address of this side.
    pub own: IpAddr,
    /// The TCP port over which the sides agree; the sockets have the ports behind it.
    pub port: u16,
    /// Who is asked for which load; `None` waits for one.
    pub lead: Option<(IpAddr, Load)>,
}

/// How long the sides may take to find each other.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// How long one waits for who begins; `None` for ever.
    pub wait: Option<Duration>,
    /// How often who begins tries again.
    pub retries: u32,
    /// The time between.
    pub pause: Duration,
}

/// Takes part in a load to its end, and writes a report. Returns what was wrong, if anything was.
///
/// # Errors
///
/// The load was not brought to its end.
pub fn take_part(
    stack: &dyn Stack,
    part: &Part,
    arrival: Arrival,
    reporter: impl FnOnce(&Load) -> Reporter,
    out: &mut impl Write,
) -> Result<Option<String>> {
    let (own, port) = (part.own, part.port);
    let (mut control, load) = match &part.lead {
        Some((peer, load)) => {
            load.check()?;
            let to = SocketAddr::new(*peer, port);
            let mut control = Control::connect(own, to, arrival.retries, arrival.pause)?;
            control.offer(load)?;
            (control, load.clone())
        }
        None => Control::accept(SocketAddr::new(own, port), arrival.wait)?,
    };
    let peer = control.peer();
    let begins = part.lead.is_some();
    let side = start(stack, (own, peer), port, &load, begins || !load.one_way);
    let side = side.inspect_err(|error| control.refuse(&format!("{error:#}")))?;
    let mut reporter = reporter(&load);
    if begins {
        lead(&mut control, &load, &side, &mut reporter, out)?;
    } else {
        follow(&mut control, &load, &side, &mut reporter, out)?;
    }
    let failure = side.failure();
    reporter.end(&load, failure.as_slice(), &Remarks::default(), out)?;
    Ok(failure)
}

fn start(
    stack: &dyn Stack,
    (own, peer): (IpAddr, IpAddr),
    port: u16,
    load: &Load,
    asks: bool,
) -> Result<Side> {
    load.check_rdma(stack.transport() == Transport::Verbs)?;
    let ports = || "-p leaves no ports for -t";
    let own = places(own, port, load).with_context(ports)?;
    let peers = places(peer, port, load).with_context(ports)?;
    stack.carry(load, &own, &peers, asks)
}
