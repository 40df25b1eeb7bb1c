//! The other side of `rds stress` with rds-lite on both sides: agents that take part in a load.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use rds_interop::agent::{Agent, Peer};
use rds_interop::kernel::Transport;
use rds_interop::stack::LiteStack;
use rds_interop::step::{Reply, Step};
use rds_interop::stress::Part;
use rds_lite::stress::Load;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 10, last))
}

/// A port that nobody listens at right now.
fn free_port() -> u16 {
    let listener = TcpListener::bind(SocketAddr::new(ip(99), 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// What both agents say of a load, for which one waits so many milliseconds.
fn carry(load: &Load, within: u64) -> [Result<Value, String>; 2] {
    let (rds, port) = (free_port(), free_port());
    let agents = ["begins", "waits"].map(|name| {
        let stack = LiteStack::new(Transport::Tcp, Some(rds)).unwrap();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let agent = Agent::start(stack, listen, None).unwrap();
        let addr = agent.addr();
        (agent, Peer { name, addr })
    });
    let part = |own, lead| Part { own, port, lead };
    let parts = [part(ip(1), Some((ip(2), load.clone()))), part(ip(2), None)];
    std::thread::scope(|scope| {
        let running = parts.map(|part| {
            let waits = usize::from(part.lead.is_none());
            let peer = &agents[waits].1;
            scope.spawn(
                move || match peer.call(&Step::Stress { part, within }, LONG) {
                    Ok(Reply::Stressed(summary)) => Ok(serde_json::from_str(&summary).unwrap()),
                    other => Err(format!("{other:?}")),
                },
            )
        });
        running.map(|part| part.join().unwrap())
    })
}

#[test]
fn two_agents_carry_a_load_and_verify_it() {
    let load = Load {
        depth: 4,
        tasks: 2,
        time: Some(Duration::from_millis(300)),
        verify: true,
        ..Load::default()
    };
    for side in carry(&load, 20_000) {
        let side = side.unwrap();
        assert_eq!(side["failures"], Value::Array(Vec::new()));
        assert_eq!(side["verified"], true);
        assert!(side["rx/s"].as_u64().unwrap() > 0, "{side}");
    }
}

#[test]
fn a_load_that_cannot_be_carried_is_refused_and_nobody_waits_for_ever() {
    let load = Load {
        time: Some(Duration::from_millis(300)),
        rdma_bytes: 4096,
        ..Load::default()
    };
    for side in carry(&load, 20_000) {
        let said = side.unwrap_err();
        assert!(said.contains("RDS/TCP has no RDMA"), "{said}");
    }
    let endless = Load {
        time: None,
        ..Load::default()
    };
    let [begins, waits] = carry(&endless, 200);
    assert!(begins.unwrap_err().contains("lasts at most"));
    assert!(waits.unwrap_err().contains("nobody has begun a load"));
}
