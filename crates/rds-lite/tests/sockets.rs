//! What a user of sockets is promised, on the mock fabric.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{World, at, ip, live_host};
use mr_core::{Access, SystemClock};
use rds_lite::fabric::mock::MockNetwork;
use rds_lite::proto::{AtomicOp, BindError, FailReason, Notification, SendError, Status};
use rds_lite::rdma::{FreeOutcome, MAX_BUFFERS, MrFlags};
use rds_lite::wire::MAX_MESSAGE;
use rds_lite::{Incoming, RdmaFlags, RdmaOp, Readiness, RecvError, RefusedOp, Socket};
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn texts(socket: &Socket) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| socket.try_recv_message().ok())
        .map(|message| message.payload.to_vec())
        .collect()
}

#[test]
fn datagrams_of_every_length_arrive_in_order() {
    let world = World::with_hosts(2);
    let (a, b) = (world.socket(0, 5), world.socket(1, 6));
    let lengths = [0, 1, 4095, 4096, 4097, 65_536, 1 << 20];
    for (place, len) in lengths.into_iter().enumerate() {
        a.send_to(&vec![place as u8; len], at(2, 6)).unwrap();
        world.run(100 * MS);
    }
    let got = texts(&b);
    assert_eq!(got.len(), lengths.len());
    for (place, (got, len)) in got.iter().zip(lengths).enumerate() {
        assert_eq!(got.len(), len);
        assert!(got.iter().all(|&byte| byte == place as u8));
    }
    assert!(matches!(
        a.send_to(&vec![0; (1 << 20) + 1], at(2, 6)),
        Err(SendError::TooLong { most, .. }) if most == 1 << 20
    ));
    world.run(100 * MS);
    assert_eq!(a.unsent(), 0, "acknowledged");
    assert_eq!(world.hosts[1].receive_memory(), 0, "every buffer is back");
}

#[test]
fn a_message_to_an_own_address_arrives_also_without_bytes() {
    let world = World::with_hosts(1);
    let (a, b) = (world.socket(0, 5), world.socket(0, 6));
    a.send_to(b"", at(1, 6)).unwrap();
    a.send_to(b"x", at(1, 6)).unwrap();
    a.send_to(b"self", at(1, 5)).unwrap();
    assert_eq!(texts(&b), [b"".to_vec(), b"x".to_vec()]);
    assert_eq!(texts(&a), [b"self".to_vec()]);
    // A ping of the own address, too.
    a.send_to(b"", at(1, 0)).unwrap();
    assert_eq!(a.try_recv_message().unwrap().from, at(1, 0));
}

#[test]
fn a_ping_is_answered() {
    let world = World::with_hosts(2);
    let a = world.socket(0, 5);
    a.send_to(b"", at(2, 0)).unwrap();
    world.run(MS);
    assert_eq!(
        a.try_recv_message().unwrap_err(),
        RecvError::WouldBlock,
        "nobody is there"
    );
    let _b = world.socket(1, 6);
    world.run(2000 * MS);
    let pong = a.try_recv_message().unwrap();
    assert_eq!((pong.from, pong.payload.len()), (at(2, 0), 0));
    assert_eq!(world.hosts[1].counters().recv_ping, 1);
}

#[test]
fn what_cannot_be_bound_is_refused() {
    let world = World::with_hosts(2);
    let host = &world.hosts[0];
    let _socket = world.socket(0, 5);
    assert_eq!(host.bind(at(1, 5)).unwrap_err(), BindError::InUse(at(1, 5)));
    assert_eq!(
        host.bind(at(1, 1)).unwrap_err(),
        BindError::Invalid(at(1, 1))
    );
    let any = "0.0.0.0:9".parse().unwrap();
    assert_eq!(host.bind(any).unwrap_err(), BindError::Invalid(any));
    let _other = world.socket(1, 5);
    assert!(matches!(host.bind(at(2, 9)), Err(BindError::NotLocal(..))));
    let automatic = host.bind(at(1, 0)).unwrap();
    assert!(automatic.local_addr().port() > 1);
}

#[test]
fn a_full_receiver_congests_only_itself_and_says_when_it_is_over() {
    let world = World::with_hosts(3);
    let a = world.socket(0, 5);
    let (slow, other) = (world.socket(1, 6), world.socket(2, 6));
    slow.set_receive_buffer(10_000);
    while a.try_send_to(&[1; 1000], at(2, 6)).is_ok() {
        world.run(10 * MS);
    }
    assert!(matches!(
        a.try_send_to(&[1; 1000], at(2, 6)),
        Err(SendError::Congested(to)) if to == at(2, 6)
    ));
    assert_eq!(
        a.readiness(at(2, 6)).unwrap(),
        Readiness::Congested(at(2, 6))
    );
    assert_eq!(a.readiness(at(3, 6)).unwrap(), Readiness::Writable);
    a.try_send_to(b"free", at(3, 6)).unwrap();
    world.run(10 * MS);
    assert_eq!(texts(&other).len(), 1);
    assert!(a.notification().is_none());
    assert!(!texts(&slow).is_empty());
    world.run(10 * MS);
    assert_eq!(a.notification(), Some(Notification::Uncongested(at(2, 6))));
    a.try_send_to(b"again", at(2, 6)).unwrap();
    world.run(10 * MS);
    assert_eq!(texts(&slow).len(), 1);
}

#[test]
fn the_send_buffer_admits_by_what_is_queued_already() {
    let world = World::with_hosts(1);
    let a = world.socket(0, 5);
    a.set_send_buffer(3000);
    // Nobody is at 2, so everything stays queued. The second goes beyond; the third does not go.
    a.try_send_to(&[0; 2000], at(2, 6)).unwrap();
    a.try_send_to(&[0; 2000], at(2, 6)).unwrap();
    assert!(matches!(
        a.try_send_to(&[0; 1], at(2, 6)),
        Err(SendError::WouldBlock)
    ));
    assert_eq!(a.readiness(at(3, 6)).unwrap(), Readiness::WouldBlock);
    assert!(matches!(
        a.try_send_to(&[0; 3001], at(2, 6)),
        Err(SendError::TooLong { .. })
    ));
    a.cancel(at(2, 6));
    assert_eq!(a.unsent(), 0);
    for _ in 0..2 {
        let note = a.notification().unwrap();
        let canceled = FailReason::Canceled;
        assert!(matches!(note, Notification::SendFailed { reason, .. } if reason == canceled));
    }
    a.try_send_to(&[0; 1], at(2, 6)).unwrap();
}

fn status(socket: &Socket) -> (u64, Status, Vec<u8>) {
    match socket.try_recv() {
        Ok(Incoming::Notification(Notification::Rdma {
            token,
            status,
            buffers,
        })) => (token, status, buffers.into_first()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_operation_has_several_local_buffers() {
    let world = World::with_hosts(2);
    let (client, server) = (world.socket(0, 5), world.socket(1, 6));
    let all = Access::all();
    let cookie = client.get_mr(vec![7; 100], all, MrFlags::empty()).unwrap();
    let notify = RdmaOp::new(cookie).flags(RdmaFlags::NOTIFY).at(10);
    let parts = vec![vec![1; 3], Vec::new(), vec![2; 5]];
    server
        .rdma_write(at(1, 5), notify.clone(), parts.clone())
        .unwrap();
    let into = vec![vec![0; 4], vec![0; 1], vec![0; 4]];
    server.rdma_read(at(1, 5), notify.clone(), into).unwrap();
    world.run(Duration::from_millis(1));
    let report = |socket: &Socket| match socket.try_recv() {
        Ok(Incoming::Notification(Notification::Rdma { buffers, .. })) => buffers.into_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(report(&server), parts);
    assert_eq!(
        report(&server),
        [vec![1, 1, 1, 2], vec![2], vec![2, 2, 2, 7]]
    );

    let many = vec![Vec::new(); MAX_BUFFERS + 1];
    let refused = server.rdma_write(at(1, 5), notify.clone(), many);
    assert!(matches!(
        refused,
        Err(RefusedOp { reason: SendError::TooManyBuffers { count }, buffers })
            if count == MAX_BUFFERS + 1 && buffers.len() == count
    ));
    let long = vec![vec![0; MAX_MESSAGE / 2], vec![0; MAX_MESSAGE / 2 + 1]];
    let refused = server.rdma_read(at(1, 5), notify, long);
    assert!(matches!(
        refused,
        Err(RefusedOp {
            reason: SendError::TooLong { .. },
            ..
        })
    ));
}

#[test]
fn rdma_moves_bytes_by_cookie() {
    let world = World::with_hosts(2);
    let (client, server) = (world.socket(0, 5), world.socket(1, 6));
    let all = Access::all();
    let cookie = client.get_mr(vec![7; 5000], all, MrFlags::empty()).unwrap();
    client
        .send_with_cookie("here".into(), cookie, at(2, 6))
        .unwrap();
    world.run(MS);
    let request = server.try_recv_message().unwrap();
    let theirs = request.cookie.unwrap();
    assert_eq!(theirs, cookie);

    let op = RdmaOp::new(theirs)
        .flags(RdmaFlags::FENCE)
        .token(1)
        .message("read");
    server.rdma_read(request.from, op, vec![0; 100]).unwrap();
    let op = RdmaOp::new(theirs)
        .at(4000)
        .flags(RdmaFlags::NOTIFY)
        .token(2)
        .message("written");
    server.rdma_write(request.from, op, vec![9; 1000]).unwrap();
    let op = RdmaOp::new(theirs).token(3).message("counted");
    let add = AtomicOp::FetchAdd { add: 1 };
    server.atomic(request.from, op, add).unwrap();
    world.run(MS);
    assert_eq!(status(&server), (1, Status::Success, vec![7; 100]));
    assert_eq!(status(&server), (2, Status::Success, vec![9; 1000]));
    assert_eq!(status(&server), (3, Status::Success, vec![7; 8]));
    assert_eq!(texts(&client).len(), 3);

    let FreeOutcome::Dead(buffer) = client.free_mr(cookie, true).unwrap() else {
        panic!("the key is alive");
    };
    assert_eq!(
        (buffer[0], buffer[3999], buffer[4000], buffer[4999]),
        (8, 7, 9, 9)
    );
    client.free_mr(cookie, true).unwrap_err();
}

#[test]
fn a_dead_key_is_refused_and_the_connection_recovers() {
    let world = World::with_hosts(2);
    let (client, server) = (world.socket(0, 5), world.socket(1, 6));
    let cookie = client
        .get_mr(vec![7; 64], Access::all(), MrFlags::empty())
        .unwrap();
    client.free_mr(cookie, true).unwrap();
    server.send_to(b"before", at(1, 5)).unwrap();
    let op = RdmaOp::new(cookie).token(1).message("lost with it");
    server.rdma_write(at(1, 5), op, vec![9; 64]).unwrap();
    server.send_to(b"after", at(1, 5)).unwrap();
    world.run(100 * MS);
    assert_eq!(status(&server), (1, Status::RemoteError, vec![9; 64]));
    assert_eq!(texts(&client), [b"before".to_vec(), b"after".to_vec()]);
    assert_eq!(server.unsent(), 0);
}

#[test]
fn a_use_once_region_ends_with_its_use() {
    let world = World::with_hosts(2);
    let (client, server) = (world.socket(0, 5), world.socket(1, 6));
    let flags = MrFlags::USE_ONCE | MrFlags::INVALIDATE;
    let cookie = client.get_mr(vec![7; 64], Access::all(), flags).unwrap();
    for round in 0..2 {
        let op = RdmaOp::new(cookie)
            .token(round)
            .flags(RdmaFlags::NOTIFY)
            .message("done");
        server.rdma_write(at(1, 5), op, vec![9; 64]).unwrap();
        world.run(100 * MS);
    }
    assert_eq!(status(&server).1, Status::Success);
    assert_eq!(status(&server).1, Status::RemoteError, "the key is dead");
    assert_eq!(texts(&client).len(), 1);
    assert_eq!(client.reclaim(), Some((cookie, vec![9; 64])));
    assert_eq!(world.hcas[0].counters().packets_stale_table, 0);
}

#[test]
fn blocking_calls_and_tasks_wake_each_other() {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let (first, _) = live_host(&network, &clock);
    let (second, _) = live_host(&network, &clock);
    let (a, b) = (
        first.bind(at(1, 5)).unwrap(),
        second.bind(at(2, 6)).unwrap(),
    );
    a.connect(at(2, 6));
    const ROUNDS: u32 = 200;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let mut buffer = [0; 8];
                let (len, from) = b.recv_from(&mut buffer).unwrap();
                assert_eq!(&buffer[..len], round.to_be_bytes());
                // The answer by a task.
                let answer = b.send_async(buffer[..len].to_vec().into(), from);
                futures_block_on(answer).unwrap();
            }
        });
        for round in 0..ROUNDS {
            a.send(&round.to_be_bytes()).unwrap();
            let answer = futures_block_on(a.recv_message_async()).unwrap();
            assert_eq!(&*answer.payload, round.to_be_bytes());
        }
    });
    assert!(a.wait_sent(Duration::from_secs(5)));
    let counters = first.counters();
    let bytes = 4 * u64::from(ROUNDS);
    assert_eq!(
        (counters.copy_from_user, counters.send_queued),
        (bytes, bytes / 4)
    );
    assert_eq!(counters.recv_delivered, u64::from(ROUNDS));
    assert_eq!(second.counters().copy_to_user, bytes);
    a.set_receive_timeout(Some(MS));
    assert_eq!(a.recv_message().unwrap_err(), RecvError::TimedOut);
    assert!(!a.wait_readable(MS));
    assert_eq!(first.connections()[0].path.remote, ip(2));
}

/// The smallest executor: a thread that parks.
fn futures_block_on<F: std::future::Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut task = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut task) {
            return output;
        }
        std::thread::park();
    }
}

#[test]
fn a_corked_socket_sends_when_it_waits_or_is_uncorked() {
    let world = World::with_hosts(2);
    let (a, b) = (world.socket(0, 5), world.socket(1, 6));
    a.send_to(b"connect", at(2, 6)).unwrap();
    world.run(MS);
    assert_eq!(texts(&b).len(), 1);
    a.set_corked(true);
    for _ in 0..3 {
        a.send_to(b"held", at(2, 6)).unwrap();
    }
    world.run(MS);
    assert_eq!(texts(&b).len(), 0, "held back");
    a.set_corked(false);
    world.run(MS);
    assert_eq!(texts(&b).len(), 3);
    // Not without bound.
    a.set_corked(true);
    for _ in 0..64 {
        a.send_to(b"many", at(2, 6)).unwrap();
    }
    world.run(MS);
    assert_eq!(texts(&b).len(), 64);

    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let ((first, _), (second, _)) = (live_host(&network, &clock), live_host(&network, &clock));
    let (a, b) = (
        first.bind(at(1, 5)).unwrap(),
        second.bind(at(2, 6)).unwrap(),
    );
    a.set_corked(true);
    b.set_corked(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                let request = b.recv_message().unwrap();
                b.send_to(&request.payload, request.from).unwrap();
            }
            b.set_corked(false);
        });
        for _ in 0..100 {
            a.send_to(b"request", at(2, 6)).unwrap();
            a.recv_message().unwrap();
        }
    });
}
