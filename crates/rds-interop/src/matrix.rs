//! The matrix: stack × transport × who connects × what is done.
//!
//! Each case is bounded in time, whatever the stacks do, and leaves nothing behind that the next
//! could trip over: it has sockets and ports of its own.

mod case;
mod congestion;
mod counts;
mod faults;
mod loan;
mod rdma;
mod remote;
mod streams;
mod table;
mod tool;
mod traffic;

pub use table::{Outcome, Row};

use crate::agent::Peer;
use crate::kernel::Transport;
use anyhow::{Result, anyhow};
use case::{Case, Direction, Needs, Pair, Ports, Side};
use counts::Counts;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;

/// Who takes part, and what can be done to them.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What carries RDS.
    pub transport: Transport,
    /// One agent, with an address below and one above that of the other: over TCP the smaller connects.
    pub near: (Peer, Vec<IpAddr>),
    /// The other.
    pub far: (Peer, IpAddr),
    /// Whether the agents can have the network misbehave.
    pub faulty_network: bool,
    /// Which agent can cut connections.
    pub cuts: Option<Cutter>,
    /// The program `rds`, to be run on the near agent's machine.
    pub tool: Option<PathBuf>,
    /// Only cases whose line contains this.
    pub only: Option<String>,
}

/// One of the two agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cutter {
    /// The near one.
    Near,
    /// The far one.
    Far,
}

/// Runs all cases, one after the other; each is shown to `look` when it has ended.
pub fn run(setup: &Setup, mut look: impl FnMut(&Row)) -> Vec<Row> {
    let ports = Ports::default();
    let mut rows = Vec::new();
    let (near, addresses) = &setup.near;
    let (far, far_ip) = &setup.far;
    for near_ip in addresses {
        let near = Side {
            peer: near,
            ip: *near_ip,
        };
        let far = Side {
            peer: far,
            ip: *far_ip,
        };
        for case in case::all(setup.transport) {
            for &direction in case.directions {
                let (from, to) = match direction {
                    Direction::There | Direction::Both => (near, far),
                    Direction::Back => (far, near),
                };
                let mut row = Row {
                    transport: setup.transport,
                    connects: if near.ip < far.ip { near } else { far }.peer.name,
                    direction: direction.shown(near.peer.name, far.peer.name),
                    case: case.name.to_owned(),
                    outcome: Outcome::Skipped,
                    took: std::time::Duration::ZERO,
                };
                let wanted = setup.only.as_ref();
                if wanted.is_some_and(|wanted| !row.to_string().contains(wanted)) {
                    continue;
                }
                if can(setup, &case) {
                    let pair = Pair {
                        from,
                        to,
                        near: near.ip,
                        transport: setup.transport,
                        tool: setup.tool.as_deref(),
                        ports: &ports,
                        cutter: match setup.cuts {
                            Some(Cutter::Near) => near.peer,
                            _ => far.peer,
                        },
                        until: Instant::now() + case.bound,
                    };
                    let counts = [near, far].map(|side| Counts::before(side.peer));
                    let start = Instant::now();
                    let result = (case.run)(&pair);
                    row.took = start.elapsed();
                    row.outcome = outcome(result.map_err(|error| {
                        let meanwhile = counts.each_ref().map(Counts::meanwhile);
                        anyhow!("{error:#} ({})", meanwhile.join("; "))
                    }));
                }
                look(&row);
                rows.push(row);
            }
        }
    }
    rows
}

fn can(setup: &Setup, case: &Case) -> bool {
    match case.needs {
        Needs::Nothing => true,
        Needs::FaultyNetwork => setup.faulty_network,
        Needs::Cutter => setup.cuts.is_some(),
        Needs::Tool => setup.tool.is_some(),
    }
}

fn outcome(result: Result<String>) -> Outcome {
    match result {
        Ok(note) => Outcome::Passed(note),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}
