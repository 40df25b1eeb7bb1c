//! RDS/TCP on loopback.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use rds_lite::fabric::tcp::{TcpConfig, TcpFabric};
use rds_lite::proto::SendError;
use rds_lite::rdma::{MrError, MrFlags};
use rds_lite::{Cookie, Host, RdmaOp, Socket};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 7, last))
}

fn at(last: u8, port: u16) -> SocketAddr {
    SocketAddr::new(ip(last), port)
}

/// A port that nobody listens at right now.
fn free_port() -> u16 {
    TcpListener::bind(at(99, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn host(port: u16) -> Host {
    let mut config = TcpConfig::default();
    config.port = port;
    Host::builder(TcpFabric::new(config)).build().unwrap()
}

fn receive(socket: &Socket) -> Vec<u8> {
    socket.set_receive_timeout(Some(LONG));
    socket.recv_message().unwrap().payload.to_vec()
}

#[test]
fn datagrams_cross_whoever_begins() {
    for (first, second) in [(1, 2), (2, 1)] {
        let port = free_port();
        let (a, b) = (host(port), host(port));
        let (a, b) = (
            a.bind(at(first, 5)).unwrap(),
            b.bind(at(second, 6)).unwrap(),
        );
        for len in [0, 1, 4096, 65_536, 1 << 20, 3] {
            a.send_to(&vec![len as u8; len], at(second, 6)).unwrap();
        }
        for len in [0, 1, 4096, 65_536, 1 << 20, 3] {
            assert_eq!(receive(&b), vec![len as u8; len]);
        }
        assert!(a.wait_sent(LONG), "acknowledged");
        b.send_to(b"back", at(first, 5)).unwrap();
        assert_eq!(receive(&a), b"back");
        a.send_to(b"", at(second, 0)).unwrap();
        assert_eq!(receive(&a), b"", "pong");
    }
}

#[test]
fn memory_is_refused_with_a_clear_error() {
    let port = free_port();
    let a = host(port).bind(at(1, 5)).unwrap();
    let refused = a.get_mr(vec![0; 8], mr_core::Access::all(), MrFlags::empty());
    assert!(matches!(
        refused,
        Err(MrError::Unsupported { fabric: "tcp" })
    ));
    let op = RdmaOp::new(Cookie::from_bits(1));
    let refused = a.rdma_write(at(2, 6), op, vec![0; 8]);
    let refused = refused.unwrap_err();
    assert!(matches!(refused.reason, SendError::NoRdma(_)));
    assert_eq!(refused.buffer.len(), 8, "given back");
}

#[test]
fn a_host_that_ends_and_comes_back_gets_what_it_has_not_had() {
    let port = free_port();
    let first = host(port);
    let a = first.bind(at(1, 5)).unwrap();
    let second = host(port);
    let b = second.bind(at(2, 6)).unwrap();
    a.send_to(b"one", at(2, 6)).unwrap();
    assert_eq!(receive(&b), b"one");
    assert!(a.wait_sent(LONG));
    drop(b);
    drop(second);
    // Never sent to the old one, so as good for the new one.
    a.send_to(b"two", at(2, 6)).unwrap();
    let second = host(port);
    let b = second.bind(at(2, 6)).unwrap();
    assert_eq!(receive(&b), b"two");
    assert!(a.wait_sent(LONG));
}

#[test]
fn many_small_messages_arrive_in_order_under_load_from_both_sides() {
    const MESSAGES: u32 = 20_000;
    let port = free_port();
    let (a, b) = (host(port), host(port));
    let (a, b) = (a.bind(at(1, 5)).unwrap(), b.bind(at(2, 6)).unwrap());
    let send = |from: &Socket, to| {
        for number in 0..MESSAGES {
            let len = if number % 1000 == 0 { 100_000 } else { 20 };
            let mut message = vec![0; len];
            message[..4].copy_from_slice(&number.to_be_bytes());
            from.send_to(&message, to).unwrap();
        }
    };
    let check = |socket: &Socket| {
        for number in 0..MESSAGES {
            assert_eq!(receive(socket)[..4], number.to_be_bytes());
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| send(&a, at(2, 6)));
        scope.spawn(|| send(&b, at(1, 5)));
        scope.spawn(|| check(&a));
        check(&b);
    });
}
