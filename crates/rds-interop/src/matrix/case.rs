//! What a case is, and the list of all.

use super::{congestion, faults, rdma, tool, traffic};
use crate::agent::Peer;
use crate::kernel::Transport;
use anyhow::{Result, bail};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// An agent at one of its addresses.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) peer: &'a Peer,
    pub(super) ip: IpAddr,
}

/// Between whom a case runs.
pub(super) struct Pair<'a> {
    pub(super) from: Side<'a>,
    pub(super) to: Side<'a>,
    /// The address of the near agent, which is one of them.
    pub(super) near: IpAddr,
    pub(super) transport: Transport,
    /// The program `rds` on the near agent's machine, for cases that need it.
    pub(super) tool: Option<&'a Path>,
    pub(super) ports: &'a Ports,
    /// Who can cut connections, for cases that need it.
    pub(super) cutter: &'a Peer,
    /// When the case has to be over.
    pub(super) until: Instant,
}

impl<'a> Pair<'a> {
    /// The same, the other way.
    pub(super) fn back(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ..*self
        }
    }

    /// The time that is left.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Whether there is time left, as a step's bound.
    pub(super) fn check(&self) -> Result<Duration> {
        match self.left() {
            Duration::ZERO => bail!("took too long"),
            left => Ok(left),
        }
    }
}

/// Ports and names that were not used before.
pub(super) struct Ports(AtomicU16);

impl Default for Ports {
    fn default() -> Self {
        Self(AtomicU16::new(4000))
    }
}

impl Ports {
    pub(super) fn next(&self, ip: IpAddr) -> SocketAddr {
        SocketAddr::new(ip, self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// From whom to whom.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    There,
    Back,
    /// At the same time.
    Both,
}

impl Direction {
    pub(super) fn shown(self, near: &str, far: &str) -> String {
        match self {
            Self::There => format!("{near} -> {far}"),
            Self::Back => format!("{far} -> {near}"),
            Self::Both => format!("{near} <-> {far}"),
        }
    }
}

/// What a case needs beside two stacks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    FaultyNetwork,
    Cutter,
    Tool,
}

/// Runs a case. When it passes it may have a remark.
type Run = fn(&Pair<'_>) -> Result<String>;

/// A case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) directions: &'static [Direction],
    pub(super) needs: Needs,
    pub(super) bound: Duration,
    pub(super) run: Run,
}

const EACH_WAY: &[Direction] = &[Direction::There, Direction::Back];
const THERE: &[Direction] = &[Direction::There];
const BOTH: &[Direction] = &[Direction::Both];

/// All cases of a transport, in the order in which they run.
pub(super) fn all(transport: Transport) -> Vec<Case> {
    let case = |name, directions, seconds, run| Case {
        name,
        directions,
        needs: Needs::Nothing,
        bound: Duration::from_secs(seconds),
        run,
    };
    let mut all = vec![
        case("first contact", EACH_WAY, 60, faults::first_contact as Run),
        case("ping", EACH_WAY, 30, traffic::pings),
        case("0 B to 1 MiB", EACH_WAY, 60, traffic::sizes),
        case("10,000 mixed sizes", EACH_WAY, 90, traffic::mixed),
        case("mixed sizes both ways", BOTH, 90, traffic::both_ways),
        case("4 x 4 sockets", EACH_WAY, 60, traffic::sockets),
        case("receiver stops reading", EACH_WAY, 90, congestion::stalled),
        case("receiver restarts", EACH_WAY, 90, faults::receiver_restarts),
        case("sender restarts", EACH_WAY, 90, faults::sender_restarts),
    ];
    all.push(Case {
        needs: Needs::Cutter,
        ..case("connection cut", EACH_WAY, 90, faults::connection_cut)
    });
    if transport == Transport::Tcp {
        // The kernel has its own rules for what it has no room for.
        let to_lite = &[Direction::Back];
        all.push(case(
            "receiver without buffers",
            to_lite,
            90,
            congestion::no_buffers,
        ));
    }
    if transport == Transport::Verbs {
        all.extend([
            case("RDMA write", EACH_WAY, 60, rdma::writes as Run),
            case("RDMA read", EACH_WAY, 60, rdma::reads),
            case("RDMA at any offset", EACH_WAY, 60, rdma::any_offset),
            case("RDMA use-once", EACH_WAY, 60, rdma::use_once),
            case("RDMA with a dead key", EACH_WAY, 120, rdma::dead_key),
            case("RDMA, owner restarts", EACH_WAY, 120, rdma::owner_restarts),
        ]);
        all.push(Case {
            needs: Needs::FaultyNetwork,
            ..case(
                "RDMA, 1 % of packets lost",
                EACH_WAY,
                120,
                rdma::over_losses,
            )
        });
    }
    let network: [(_, Run); 6] = [
        ("0.1 % of packets lost", |pair| {
            faults::network(pair, faults::LOST[0])
        }),
        ("1 % of packets lost", |pair| {
            faults::network(pair, faults::LOST[1])
        }),
        ("0.1 % doubled", |pair| {
            faults::network(pair, faults::DOUBLED[0])
        }),
        ("1 % doubled", |pair| {
            faults::network(pair, faults::DOUBLED[1])
        }),
        ("0.1 % reordered", |pair| {
            faults::network(pair, faults::REORDERED[0])
        }),
        ("1 % reordered", |pair| {
            faults::network(pair, faults::REORDERED[1])
        }),
    ];
    all.extend(network.map(|(name, run)| Case {
        needs: Needs::FaultyNetwork,
        ..case(name, BOTH, 120, run)
    }));
    let mut tools = vec![
        case("rds ping", THERE, 30, tool::ping as Run),
        case("rds stress, rds info", EACH_WAY, 60, tool::stress),
    ];
    if transport == Transport::Verbs {
        tools.push(case("rds stress -D 64K", EACH_WAY, 60, tool::stress_rdma));
    }
    all.extend(tools.into_iter().map(|case| Case {
        needs: Needs::Tool,
        ..case
    }));
    all
}
