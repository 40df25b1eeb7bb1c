//! What a case is, and the list of all.

use super::{congestion, faults, rdma, streams, tool, traffic};
use crate::agent::Peer;
use crate::kernel::Transport;
use crate::stack::KernelStack;
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

    /// Whether the kernel has the memory that is lent. It ends no connection before all that was lent through
    /// it is back, and makes no other meanwhile.
    pub(super) fn kernel_lends(&self) -> bool {
        self.to.peer.name == KernelStack::NAME
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
const TO_KERNEL: &[Direction] = &[Direction::There];
const TO_LITE: &[Direction] = &[Direction::Back];
const BOTH: &[Direction] = &[Direction::Both];

fn case(name: &'static str, directions: &'static [Direction], seconds: u64, run: Run) -> Case {
    Case {
        name,
        directions,
        needs: Needs::Nothing,
        bound: Duration::from_secs(seconds),
        run,
    }
}

/// All cases of a transport, in the order in which they run.
pub(super) fn all(transport: Transport) -> Vec<Case> {
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
    all.extend(match transport {
        Transport::Tcp => over_tcp(),
        Transport::Verbs => over_verbs(),
    });
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
        case("rds ping, rds info", TO_KERNEL, 60, tool::ping as Run),
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

/// Cases of what TCP alone has.
fn over_tcp() -> Vec<Case> {
    let cut = case("connection cut", EACH_WAY, 90, faults::connection_cut);
    vec![
        Case {
            needs: Needs::Cutter,
            ..cut
        },
        // The kernel has its own rules for what it has no room for.
        case(
            "receiver without buffers",
            TO_LITE,
            90,
            congestion::no_buffers,
        ),
    ]
}

/// Cases with memory, and those that need it.
fn over_verbs() -> Vec<Case> {
    let mut all = vec![
        case(
            "connection cut",
            EACH_WAY,
            120,
            streams::datagrams_cut as Run,
        ),
        case("RDMA write", EACH_WAY, 60, rdma::writes),
        case("RDMA read", EACH_WAY, 60, rdma::reads),
        case("RDMA at any offset", EACH_WAY, 60, rdma::any_offset),
        case("RDMA use-once", EACH_WAY, 60, rdma::use_once),
        case("RDMA, use kills", EACH_WAY, 120, rdma::use_kills),
        case("RDMA with a dead key", EACH_WAY, 120, rdma::dead_key),
        case("RDMA mixed, depth 8", BOTH, 120, streams::mixed),
        case("RDMA, owner restarts", EACH_WAY, 120, rdma::owner_restarts),
        case(
            "RDMA x 8, owner restarts",
            EACH_WAY,
            120,
            streams::owner_restarts,
        ),
        case(
            "RDMA x 8, user restarts",
            EACH_WAY,
            120,
            streams::user_restarts,
        ),
        case("RDMA x 8, cut", EACH_WAY, 120, streams::cut),
    ];
    let network: [(_, _, Run); 8] = [
        ("3 s of silence", EACH_WAY, streams::datagrams_outage),
        // The other way it is the kernel that does not get over it.
        ("RDMA x 8, 3 s of silence", TO_KERNEL, streams::outage),
        ("RDMA, 0.1 % lost", EACH_WAY, |pair| {
            rdma::over_faults(pair, faults::LOST[0])
        }),
        ("RDMA, 1 % lost", EACH_WAY, |pair| {
            rdma::over_faults(pair, faults::LOST[1])
        }),
        ("RDMA, 0.1 % doubled", EACH_WAY, |pair| {
            rdma::over_faults(pair, faults::DOUBLED[0])
        }),
        ("RDMA, 1 % doubled", EACH_WAY, |pair| {
            rdma::over_faults(pair, faults::DOUBLED[1])
        }),
        ("RDMA, 0.1 % reordered", EACH_WAY, |pair| {
            rdma::over_faults(pair, faults::REORDERED[0])
        }),
        ("RDMA, 1 % reordered", EACH_WAY, |pair| {
            rdma::over_faults(pair, faults::REORDERED[1])
        }),
    ];
    all.extend(network.map(|(name, directions, run)| Case {
        needs: Needs::FaultyNetwork,
        ..case(name, directions, 120, run)
    }));
    all
}
