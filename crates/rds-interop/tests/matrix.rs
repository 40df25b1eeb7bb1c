//! The matrix with rds-lite on both sides: what the cases demand can be met, and they end.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, outside of a test function; the table is shown when a case fails"
)]

use rds_interop::agent::{Agent, Peer};
use rds_interop::kernel::Transport;
use rds_interop::matrix::{self, Outcome, Setup};
use rds_interop::stack::LiteStack;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 9, last))
}

/// A port that nobody listens at right now.
fn free_port() -> u16 {
    let listener = TcpListener::bind(SocketAddr::new(ip(99), 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn agent(name: &'static str, port: u16) -> (Agent, Peer) {
    let stack = LiteStack::new(Transport::Tcp, Some(port)).unwrap();
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let agent = Agent::start(stack, listen, None).unwrap();
    let addr = agent.addr();
    (agent, Peer { name, addr })
}

fn run(only: Option<&str>) -> Vec<matrix::Row> {
    let port = free_port();
    let (_near, near) = agent("near", port);
    let (_far, far) = agent("far", port);
    let setup = Setup {
        transport: Transport::Tcp,
        near: (near, vec![ip(1), ip(3)]),
        far: (far, ip(2)),
        faulty_network: false,
        cuts: None,
        tool: None,
        only: only.map(str::to_owned),
    };
    matrix::run(&setup, |row| println!("{row}"))
}

#[test]
fn rds_lite_passes_against_itself() {
    let rows = run(None);
    let failed: Vec<String> = rows
        .iter()
        .filter(|row| matches!(row.outcome, Outcome::Failed(_)))
        .map(ToString::to_string)
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let passed = rows
        .iter()
        .filter(|row| matches!(row.outcome, Outcome::Passed(_)));
    // Both roles, of all cases that need nothing.
    assert_eq!(passed.count(), 2 * 18);
}
