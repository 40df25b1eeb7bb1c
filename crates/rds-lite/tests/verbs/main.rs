//! Two hosts on one RDMA device. `cargo xtask hw` runs this; elsewhere it skips, and says so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod rig;

use mr_core::Access;
use rds_lite::fabric::verbs::VerbsConfig;
use rds_lite::proto::{AtomicOp, Notification, Status};
use rds_lite::rdma::{FreeOutcome, MrFlags};
use rds_lite::wire::MAX_MESSAGE;
use rds_lite::{Cookie, Incoming, RdmaFlags, RdmaOp, Socket};
use rig::{BOUND, Rig, until};
use std::time::Duration;

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (seed * 31 + at * 7 + at / 251) as u8)
        .collect()
}

/// The end of the next RDMA operation.
fn report(socket: &Socket) -> (u64, Status, Vec<Vec<u8>>) {
    let mut report = None;
    until("the report of an operation", || {
        if let Some(Notification::Rdma {
            token,
            status,
            buffers,
        }) = socket.notification()
        {
            report = Some((token, status, buffers.into_vec()));
        }
        report.is_some()
    });
    report.unwrap()
}

fn lend(socket: &Socket, buffer: Vec<u8>, flags: MrFlags) -> Cookie {
    socket.get_mr(buffer, Access::all(), flags).unwrap()
}

#[test]
fn datagrams_of_every_length_arrive_in_order_both_ways() {
    let Some(rig) = Rig::or_skip("datagrams", |_, _| {}) else {
        return;
    };
    let (a, b) = rig.sockets();
    let lens = [0, 1, 4095, 4096, 4097, 65_536, MAX_MESSAGE];
    for (from, to) in [(&a, &b), (&b, &a)] {
        for (seed, len) in lens.into_iter().enumerate() {
            from.send_to(&pattern(seed, len), to.local_addr()).unwrap();
        }
        for (seed, len) in lens.into_iter().enumerate() {
            let message = to.recv_message().unwrap();
            assert_eq!(message.from, from.local_addr());
            assert!(*message.payload == pattern(seed, len), "{len} bytes");
        }
    }
    for seed in 0..300 {
        a.send_to(&pattern(seed, seed * 37 % 9000), b.local_addr())
            .unwrap();
        b.send_to(&pattern(seed, seed * 53 % 9000), a.local_addr())
            .unwrap();
    }
    for seed in 0..300 {
        assert!(*b.recv_message().unwrap().payload == pattern(seed, seed * 37 % 9000));
        assert!(*a.recv_message().unwrap().payload == pattern(seed, seed * 53 % 9000));
    }
    assert!(a.wait_sent(BOUND) && b.wait_sent(BOUND));
}

#[test]
fn memory_moves_by_cookie_at_any_place_and_in_any_number_of_buffers() {
    let Some(rig) = Rig::or_skip("memory", |_, _| {}) else {
        return;
    };
    let (client, server) = rig.sockets();
    let notify = |cookie| RdmaOp::new(cookie).flags(RdmaFlags::NOTIFY | RdmaFlags::FENCE);
    for len in [1, 4096, 5000, 70_000, MAX_MESSAGE] {
        let cookie = lend(&client, pattern(1, len), MrFlags::empty());
        // Read with a message behind it, written in pieces, read again from the middle.
        let op = notify(cookie).token(1).message("read");
        server
            .rdma_read(client.local_addr(), op, vec![0; len])
            .unwrap();
        assert_eq!(&*client.recv_message().unwrap().payload, b"read");
        let (token, status, buffers) = report(&server);
        assert_eq!((token, status), (1, Status::Success));
        assert!(buffers[0] == pattern(1, len), "{len} bytes read");

        let new = pattern(2, len);
        let pieces: Vec<Vec<u8>> = new.chunks(len.div_ceil(20)).map(<[u8]>::to_vec).collect();
        let op = notify(cookie).token(2).message("written");
        server
            .rdma_write(client.local_addr(), op, pieces.clone())
            .unwrap();
        assert_eq!(&*client.recv_message().unwrap().payload, b"written");
        assert_eq!(report(&server), (2, Status::Success, pieces));

        let middle = len / 3;
        let op = notify(cookie).token(3).at(middle as u64);
        server
            .rdma_read(client.local_addr(), op, vec![0; len - middle])
            .unwrap();
        assert!(
            report(&server).2[0] == new[middle..],
            "from {middle} of {len}"
        );
        client.recv_message().unwrap();

        match client.free_mr(cookie, true).unwrap() {
            FreeOutcome::Dead(buffer) => assert!(buffer == new),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn atomic_operations_change_and_fetch() {
    let Some(rig) = Rig::or_skip("atomics", |_, _| {}) else {
        return;
    };
    let (client, server) = rig.sockets();
    // Somewhere in here is a word that is aligned.
    let cookie = lend(&client, vec![0; 64], MrFlags::empty());
    let aligned = u64::from(cookie.offset().next_multiple_of(8) - cookie.offset());
    let op = RdmaOp::new(cookie).at(aligned);
    let fetched = |change| {
        server
            .atomic(client.local_addr(), op.clone(), change)
            .unwrap();
        let (_, status, buffers) = report(&server);
        assert_eq!(status, Status::Success);
        u64::from_ne_bytes(buffers[0][..].try_into().unwrap())
    };
    assert_eq!(fetched(AtomicOp::FetchAdd { add: 5 }), 0);
    assert_eq!(
        fetched(AtomicOp::CompareSwap {
            compare: 5,
            swap: 9
        }),
        5
    );
    assert_eq!(
        fetched(AtomicOp::CompareSwap {
            compare: 5,
            swap: 1
        }),
        9
    );
    assert_eq!(fetched(AtomicOp::FetchAdd { add: 0 }), 9);
}

#[test]
fn a_key_used_once_is_dead_when_its_owner_hears_of_the_use() {
    let Some(rig) = Rig::or_skip("use once", |_, _| {}) else {
        return;
    };
    let (client, server) = rig.sockets();
    let once = MrFlags::USE_ONCE | MrFlags::INVALIDATE;
    for round in 0..20u8 {
        let cookie = lend(&client, vec![0; 6000], once);
        let op = RdmaOp::new(cookie).message("written");
        server
            .rdma_write(client.local_addr(), op, vec![round; 6000])
            .unwrap();
        assert_eq!(&*client.recv_message().unwrap().payload, b"written");
        let (back, buffer) = client.reclaim().expect("it is dead, and back");
        assert_eq!(back, cookie);
        assert!(buffer == vec![round; 6000]);
    }
}

#[test]
fn an_operation_that_cannot_go_out_takes_its_message_along() {
    let few = |verbs: &mut VerbsConfig, _: &mut _| verbs.connection.sends = 8;
    let Some(rig) = Rig::or_skip("too many pieces", few) else {
        return;
    };
    let (client, server) = rig.sockets();
    let cookie = lend(&client, vec![0; 600], MrFlags::empty());
    server.send_to(b"before", client.local_addr()).unwrap();
    // More pieces than the send ring has elements for.
    let op = RdmaOp::new(cookie).token(9).message("written");
    let pieces = vec![vec![1u8; 2]; 300];
    server
        .rdma_write(client.local_addr(), op, pieces.clone())
        .unwrap();
    assert_eq!(report(&server), (9, Status::OtherError, pieces));
    server.send_to(b"after", client.local_addr()).unwrap();
    for expected in [&b"before"[..], b"after"] {
        assert_eq!(&*client.recv_message().unwrap().payload, expected);
    }
    match client.free_mr(cookie, true).unwrap() {
        FreeOutcome::Dead(buffer) => assert!(buffer == vec![0; 600]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dead_key_is_refused_and_messages_around_it_arrive_once() {
    let Some(rig) = Rig::or_skip("a dead key", |_, _| {}) else {
        return;
    };
    let (client, server) = rig.sockets();
    let mut sent = 0;
    let mut got = 0;
    let mut refused = 0;
    for token in 0..5 {
        let cookie = lend(&client, vec![7; 5000], MrFlags::empty());
        let Ok(FreeOutcome::Dead(buffer)) = client.free_mr(cookie, true) else {
            panic!("the key is alive");
        };
        for place in 0..20 {
            server
                .send_to(&pattern(sent, 3000), client.local_addr())
                .unwrap();
            client
                .send_to(&pattern(sent, 3000), server.local_addr())
                .unwrap();
            sent += 1;
            if place == 9 {
                let op = RdmaOp::new(cookie).token(token).message("never");
                server
                    .rdma_write(client.local_addr(), op, vec![1; 5000])
                    .unwrap();
            }
        }
        for _ in 0..20 {
            assert!(
                *client.recv_message().unwrap().payload == pattern(got, 3000),
                "{got}"
            );
            loop {
                match server.recv().unwrap() {
                    Incoming::Message(message) => {
                        assert!(*message.payload == pattern(got, 3000), "{got}");
                        break;
                    }
                    Incoming::Notification(Notification::Rdma {
                        token: which,
                        status,
                        buffers,
                    }) => {
                        assert_eq!(which, token);
                        // The end of the connection, which follows, can be known first on a slow machine.
                        assert!(matches!(status, Status::RemoteError | Status::Dropped));
                        refused += u32::from(status == Status::RemoteError);
                        assert_eq!(buffers.bytes(), 5000, "the buffer comes back");
                    }
                    other => panic!("{other:?}"),
                }
            }
            got += 1;
        }
        assert!(buffer == vec![7; 5000], "nobody has touched it");
    }
    assert!(client.wait_sent(BOUND) && server.wait_sent(BOUND));
    assert!(client.try_recv_message().is_err(), "nothing twice");
    let resets: u64 = rig
        .hosts
        .iter()
        .map(|host| host.counters().conn_reset)
        .sum();
    assert!(resets >= 5);
    assert!(refused > 0, "the word of the HCA does not come through");
}

#[test]
fn operations_in_flight_when_a_link_is_lost_end_once_each() {
    let Some(rig) = Rig::or_skip("operations in flight", |_, _| {}) else {
        return;
    };
    let (client, server) = rig.sockets();
    let good = lend(&client, vec![0; 100_000], MrFlags::empty());
    let gone = lend(&client, vec![0; 64], MrFlags::empty());
    assert!(matches!(
        client.free_mr(gone, true),
        Ok(FreeOutcome::Dead(_))
    ));
    let mut ends = vec![0; 60];
    for token in 0..60 {
        let cookie = if token == 30 { gone } else { good };
        let op = RdmaOp::new(cookie)
            .token(token)
            .flags(RdmaFlags::NOTIFY)
            .message("x");
        let len = if token == 30 {
            64
        } else {
            1 + 1500 * token as usize
        };
        if token % 2 == 0 {
            server
                .rdma_write(client.local_addr(), op, vec![1; len])
                .unwrap();
        } else {
            server
                .rdma_read(client.local_addr(), op, vec![1; len])
                .unwrap();
        }
    }
    for _ in 0..60 {
        let (token, status, buffers) = report(&server);
        ends[token as usize] += 1;
        assert_eq!(buffers.len(), 1, "operation {token} gives its buffer back");
        match token {
            30 => assert_eq!(status, Status::RemoteError),
            _ => assert!(
                matches!(status, Status::Success | Status::Dropped),
                "{status:?}"
            ),
        }
    }
    assert!(ends.iter().all(|&ends| ends == 1), "{ends:?}");
    let delivered = std::iter::from_fn(|| client.try_recv_message().ok()).count();
    assert!(delivered <= 59);
    let freed = client.free_mr(good, true);
    assert!(matches!(freed, Ok(FreeOutcome::Dead(_))), "{freed:?}");
}

#[test]
fn small_rings_hold_up_and_lose_nothing_with_and_without_credits() {
    for flow_control in [false, true] {
        let rig = Rig::or_skip("small rings", move |verbs, config| {
            verbs.connection.sends = 8;
            verbs.connection.receives = 8;
            config.flow_control = flow_control;
        });
        let Some(rig) = rig else { return };
        let (a, b) = rig.sockets();
        for seed in 0..6 {
            a.send_to(&pattern(seed, 200_000), b.local_addr()).unwrap();
            b.send_to(&pattern(seed + 9, 90_000), a.local_addr())
                .unwrap();
        }
        for seed in 0..6 {
            assert!(*b.recv_message().unwrap().payload == pattern(seed, 200_000));
            assert!(*a.recv_message().unwrap().payload == pattern(seed + 9, 90_000));
        }
        let credits = rig.hosts[0].connections()[0].credits;
        assert_eq!(credits.is_some(), flow_control);
        assert!(a.wait_sent(BOUND) && b.wait_sent(BOUND));
    }
}

#[test]
fn both_may_dial_at_the_same_moment() {
    for _ in 0..5 {
        let Some(rig) = Rig::or_skip("simultaneous dials", |_, _| {}) else {
            return;
        };
        let (a, b) = rig.sockets();
        std::thread::scope(|scope| {
            for (from, to) in [(&a, &b), (&b, &a)] {
                scope.spawn(move || from.send_to(b"hello", to.local_addr()).unwrap());
            }
        });
        assert_eq!(&*a.recv_message().unwrap().payload, b"hello");
        assert_eq!(&*b.recv_message().unwrap().payload, b"hello");
    }
}

#[test]
fn a_host_that_begins_anew_is_known_for_another() {
    let Some(mut rig) = Rig::or_skip("a restart", |_, _| {}) else {
        return;
    };
    let (a, b) = rig.sockets();
    for seed in 0..50 {
        a.send_to(&pattern(seed, 100), b.local_addr()).unwrap();
    }
    for seed in 0..50 {
        assert!(*b.recv_message().unwrap().payload == pattern(seed, 100));
    }
    assert!(a.wait_sent(BOUND));
    let at = b.local_addr();
    drop(b);
    rig.restart(1);
    let b = rig.hosts[1].bind(at).unwrap();
    b.set_receive_timeout(Some(BOUND));
    for seed in 0..20 {
        a.send_to(&pattern(seed, 100), at).unwrap();
    }
    for seed in 0..20 {
        assert!(
            *b.recv_message().unwrap().payload == pattern(seed, 100),
            "{seed}"
        );
    }
    until(
        "the word of a new beginning",
        || matches!(a.notification(), Some(Notification::PeerRestarted(peer)) if peer == at.ip()),
    );
}

#[test]
fn a_host_ends_in_bounded_time_under_load() {
    let Some(rig) = Rig::or_skip("the end", |_, _| {}) else {
        return;
    };
    let (a, b) = rig.sockets();
    let cookie = lend(&b, vec![0; MAX_MESSAGE], MrFlags::empty());
    for token in 0..8 {
        let op = RdmaOp::new(cookie).token(token).message("x");
        a.rdma_write(b.local_addr(), op, vec![1; MAX_MESSAGE])
            .unwrap();
        a.send_to(&[0; 50_000], b.local_addr()).unwrap();
    }
    let start = std::time::Instant::now();
    for host in &rig.hosts {
        let report = host.shut_down();
        assert!(!report.flush_left && report.threads == 0, "{report:?}");
        assert_eq!(report.stale, 0);
    }
    // Its limit is 10 s for each.
    assert!(
        start.elapsed() < Duration::from_secs(21),
        "{:?}",
        start.elapsed()
    );
    for socket in [a, b] {
        drop(socket);
    }
    for host in &rig.hosts {
        until("all keys to be dead", || {
            let pool = host.pool_stats().unwrap();
            pool.stale.keys == 0
        });
    }
}
