//! What a host allocates, and how much it holds. In a binary of its own: the allocator counts all
//! threads.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use rds_lite::fabric::tcp::{TcpConfig, TcpFabric};
use rds_lite::proto::{Config, SendError};
use rds_lite::wire::{Flags, Header};
use rds_lite::{Host, Socket};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn at(last: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 6, last)), port)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(at(99, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn host(port: u16, configure: impl FnOnce(&mut Config)) -> Host {
    let mut config = TcpConfig::default();
    config.port = port;
    let fabric = TcpFabric::new(config);
    Host::builder(fabric).configure(configure).build().unwrap()
}

/// A peer that does nothing but write: what the receiver does is all there is.
fn wire(port: u16, first: u64, count: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..count {
        let header = Header {
            sequence: first + number,
            len: len as u32,
            sport: port,
            dport: port,
            flags: Flags::empty(),
            ..Header::default()
        };
        bytes.extend(header.encode_unchecked());
        bytes.resize(bytes.len() + len, 1);
    }
    bytes
}

fn receive(socket: &Socket, count: u64, len: usize) {
    let mut buffer = [0; 4096];
    for _ in 0..count {
        let (got, _) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(got, len);
    }
}

#[test]
fn messages_up_to_4_kib_are_received_without_an_allocation() {
    const COUNT: u64 = 2000;
    let _alone = ALONE.lock().unwrap();
    for len in [0, 1, 1024, 4096] {
        let port = free_port();
        let receiver = host(port, |_| {}).bind(at(2, 9)).unwrap();
        receiver.set_receive_timeout(Some(Duration::from_secs(20)));
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&at(1, 0).into()).unwrap();
        socket.connect(&at(2, port).into()).unwrap();
        let mut peer: TcpStream = socket.into();
        let (warm, measured) = (wire(9, 1, COUNT, len), wire(9, 1 + COUNT, COUNT, len));
        std::thread::scope(|scope| {
            scope.spawn(|| peer.write_all(&warm).unwrap());
            receive(&receiver, COUNT, len);
        });
        let change = std::thread::scope(|scope| {
            let (go, wait) = std::sync::mpsc::sync_channel::<()>(1);
            let (peer, measured) = (&mut peer, &measured);
            let writer = scope.spawn(move || {
                wait.recv().unwrap();
                peer.write_all(measured)
            });
            // Everything that threads need to begin with is there.
            std::thread::sleep(Duration::from_millis(50));
            go.send(()).unwrap();
            receive(&receiver, 100, len);
            let region = Region::new(ALLOCATOR);
            receive(&receiver, COUNT - 200, len);
            let change = region.change();
            receive(&receiver, 100, len);
            writer.join().unwrap().unwrap();
            change
        });
        let allocations = change.allocations + change.reallocations;
        // The timer's acknowledgements (one each 20 ms) and growing queues, not messages.
        assert!(
            allocations < 20,
            "{allocations} allocations for {} messages of {len} bytes",
            COUNT - 200
        );
    }
}

fn held() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

#[test]
fn a_thousand_sockets_hold_no_more_than_the_budgets() {
    const SOCKETS: u16 = 1000;
    const BUDGET: usize = 8 << 20;
    let _alone = ALONE.lock().unwrap();
    let before = held();
    let port = free_port();
    let bounded = |config: &mut Config| {
        config.send_budget = BUDGET;
        config.receive_budget = BUDGET;
    };
    let (near, far) = (host(port, bounded), host(port, bounded));
    let bind = |host: &Host, last| -> Vec<Socket> {
        let socket = |port| host.bind(at(last, 100 + port)).unwrap();
        (0..SOCKETS).map(socket).collect()
    };
    let (senders, receivers) = (bind(&near, 1), bind(&far, 2));
    let idle = held() - before;
    assert!(idle < 4 << 20, "{idle} bytes for 2000 idle sockets");
    // Everyone sends, nobody receives, until nothing more is taken.
    let message = vec![1; 4000];
    let mut refused = 0;
    for round in 0..200 {
        for sender in &senders {
            let to = at(2, 100 + (sender.local_addr().port() + round) % SOCKETS);
            match sender.try_send_to(&message, to) {
                Ok(_) => {}
                Err(SendError::WouldBlock | SendError::Congested(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let most = held() - before;
        // Twice the budget of one side for each direction of use, and what the sockets need.
        assert!(most < 4 * BUDGET, "{most} bytes are held in round {round}");
        assert!(far.receive_memory() <= BUDGET);
    }
    assert!(refused > 0, "never full");
    // Then all of it arrives.
    let mut left = SOCKETS;
    let mut got = 0_u64;
    for _ in 0..2000 {
        for receiver in &receivers {
            while receiver.try_recv_message().is_ok() {
                got += 1;
            }
        }
        left = senders.iter().filter(|sender| sender.unsent() > 0).count() as u16;
        if left == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(left, 0, "does not drain");
    assert!(got > 1000, "{got}");
}
