//! Faults that other systems had, by their kind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{World, at, live_host};
use mr_core::{Access, Driver, ErrorKind, Pool, PoolStats, RemoteKey, SystemClock, Time};
use mr_mock::{Call, Fault, FaultBackend, FaultPlan, MockHca, Preset, When};
use mr_policies::Policy;
use rds_lite::fabric::mock::{Faults, MockNetwork};
use rds_lite::proto::{AtomicOp, Notification, SendError, Status};
use rds_lite::rdma::{FreeOutcome, Leased, MrError, MrFlags, PoolRegions, Regions, StillAlive};
use rds_lite::{Cookie, Driving, Host, Incoming, RdmaFlags, RdmaOp, RecvError, RefusedOp, Socket};
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn status(socket: &Socket) -> Status {
    match socket.notification() {
        Some(Notification::Rdma { status, .. }) => status,
        other => panic!("{other:?}"),
    }
}

fn lend(socket: &Socket, flags: MrFlags) -> rds_lite::Cookie {
    socket.get_mr(vec![1; 64], Access::all(), flags).unwrap()
}

/// ydb nbs 5729: a READ that is executed late sees the next request's data.
#[test]
fn a_late_read_after_a_free_sees_nothing() {
    let world = World::with_hosts(2);
    let (client, server) = (world.socket(0, 5), world.socket(1, 6));
    let cookie = lend(&client, MrFlags::empty());
    // The read is queued, and not executed: the network stands still.
    server
        .rdma_read(at(1, 5), RdmaOp::new(cookie).token(1), vec![0; 64])
        .unwrap();
    let Ok(FreeOutcome::Dead(mut buffer)) = client.free_mr(cookie, true) else {
        panic!("the key is alive");
    };
    buffer.fill(9);
    let second = client
        .get_mr(buffer, Access::all(), MrFlags::empty())
        .unwrap();
    assert_ne!(second.key(), cookie.key());
    world.run(100 * MS);
    let Ok(Incoming::Notification(Notification::Rdma {
        status, buffers, ..
    })) = server.try_recv()
    else {
        panic!("no report");
    };
    let buffer = buffers.into_first();
    assert_eq!((status, buffer), (Status::RemoteError, vec![0; 64]));
}

/// With a lazy policy the memory stays with the pool until the key is dead; what goes through the
/// stale key is counted, and nobody else's.
#[test]
fn a_lazily_freed_buffer_is_not_given_back_while_its_key_lives() {
    let mut world = World::new(1);
    world.policy = "use-once".parse().unwrap();
    world.pool = |config| config.max_age = Duration::from_secs(10);
    world.add_host(|_| {});
    world.add_host(|_| {});
    let (client, server) = (world.socket(0, 5), world.socket(1, 6));
    let cookie = lend(&client, MrFlags::empty());
    server.send_to(b"connect", at(1, 5)).unwrap();
    world.run(MS);
    assert_eq!(
        client.free_mr(cookie, false).unwrap(),
        FreeOutcome::InProgress
    );
    assert_eq!(client.stale_cookies(), [cookie]);
    let op = RdmaOp::new(cookie).flags(RdmaFlags::NOTIFY);
    server.rdma_write(at(1, 5), op, vec![7; 64]).unwrap();
    world.run(MS);
    assert_eq!(
        status(&server),
        Status::Success,
        "the HCA does not know better"
    );
    assert!(world.hcas[0].counters().packets_stale_table > 0);
    assert_eq!(client.reclaim(), None);
    world.run(Duration::from_secs(11));
    assert_eq!(client.reclaim(), Some((cookie, vec![7; 64])));
    assert!(client.stale_cookies().is_empty());
    assert_eq!(world.hosts[0].keys_reissued_while_stale(), 0);
}

/// mthca and mlx4: the same key within milliseconds.
#[test]
fn no_key_comes_back_while_it_is_stale() {
    for policy in ["immediate", "use-once,threshold=4", "max-exposure=1ms"] {
        let mut world = World::new(1);
        world.policy = policy.parse().unwrap();
        world.add_host(|_| {});
        let socket = world.socket(0, 5);
        let mut seen = std::collections::HashSet::new();
        for round in 0..200 {
            let cookie = lend(&socket, MrFlags::empty());
            // 16 regions, 256 tags: no value repeats within the first 200 uses of any.
            assert!(
                seen.insert(cookie),
                "{policy}: {cookie:?} again in round {round}"
            );
            socket.free_mr(cookie, round % 3 == 0).unwrap();
            world.run(MS);
        }
        assert_eq!(world.hosts[0].keys_reissued_while_stale(), 0);
    }
}

/// brpc 3431: everybody waits for everybody. Senders empty the pool; messages and their
/// acknowledgements need nothing of it.
#[test]
fn an_empty_pool_holds_up_no_message() {
    let mut world = World::new(1);
    world.pool = |config| config.capacity = 2;
    world.add_host(|_| {});
    world.add_host(|_| {});
    let (a, b) = (world.socket(0, 5), world.socket(1, 6));
    for socket in [&a, &b] {
        lend(socket, MrFlags::empty());
        lend(socket, MrFlags::empty());
        let refused = socket.get_mr(vec![3; 8], Access::all(), MrFlags::empty());
        let Err(MrError::Refused {
            temporary: true,
            buffer: Some(buffer),
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(buffer, vec![3; 8], "given back");
    }
    for _ in 0..100 {
        a.send_to(&[1; 5000], at(2, 6)).unwrap();
        b.send_to(&[2; 5000], at(1, 5)).unwrap();
        world.run(MS);
        assert!(a.try_recv_message().is_ok() && b.try_recv_message().is_ok());
    }
    world.run(100 * MS);
    assert_eq!((a.unsent(), b.unsent()), (0, 0));
}

/// ceph 18053: a connection is lost with work in flight.
#[test]
fn each_operation_ends_exactly_once_when_links_are_lost() {
    let world = World::with_hosts(2);
    let (client, server) = (world.socket(0, 5), world.socket(1, 6));
    let cookie = lend(&client, MrFlags::empty());
    server.send_to(b"connect", at(1, 5)).unwrap();
    world.run(MS);
    let mut faults = Faults::none();
    faults.delay = MS..=10 * MS;
    faults.lose_link = 0.2;
    world.network.set_faults(faults);
    let mut ended = vec![0; 100];
    for token in 0..100 {
        let op = RdmaOp::new(cookie)
            .token(token)
            .flags(RdmaFlags::NOTIFY)
            .message("x");
        if token % 2 == 0 {
            server.rdma_write(at(1, 5), op, vec![2; 8]).unwrap();
        } else {
            server.rdma_read(at(1, 5), op, vec![2; 8]).unwrap();
        }
        world.run(MS);
    }
    world.network.set_faults(Faults::none());
    world.run(Duration::from_secs(5));
    let mut dropped = 0;
    while let Some(Notification::Rdma {
        token,
        status,
        buffers,
    }) = server.notification()
    {
        ended[token as usize] += 1;
        assert_eq!(buffers.bytes(), 8, "the buffer comes back");
        assert!(
            matches!(status, Status::Success | Status::Dropped),
            "{status:?}"
        );
        dropped += i32::from(status == Status::Dropped);
    }
    assert_eq!(ended, vec![1; 100]);
    assert!(dropped > 0 && dropped < 100);
    assert_eq!(server.unsent(), 0);
}

/// RDS 2020: an MR is freed while a message still points at it.
#[test]
fn freeing_memory_races_with_the_message_that_names_it() {
    let world = World::with_hosts(2);
    let (client, server) = (world.socket(0, 5), world.socket(1, 6));
    let cookie = lend(&client, MrFlags::USE_ONCE);
    client
        .send_with_cookie("take it".into(), cookie, at(2, 6))
        .unwrap();
    assert!(matches!(
        client.free_mr(cookie, true),
        Ok(FreeOutcome::Dead(_))
    ));
    // And once more under way to the peer, and to the end of its first use.
    world.run(MS);
    let theirs = server.try_recv_message().unwrap().cookie.unwrap();
    server
        .rdma_write(at(1, 5), RdmaOp::new(theirs), vec![0; 8])
        .unwrap();
    world.run(100 * MS);
    assert_eq!(status(&server), Status::RemoteError);
    assert!(matches!(
        client.free_mr(cookie, true),
        Err(MrError::UnknownCookie)
    ));
    assert!(matches!(
        client.send_with_cookie("again".into(), cookie, at(2, 6)),
        Err(SendError::UnknownCookie)
    ));
}

/// CVE-2026-46053: the cookie cannot be delivered after the MR was made.
#[test]
fn a_cookie_that_nobody_gets_is_released_once() {
    let world = World::with_hosts(1);
    let socket = world.socket(0, 5);
    let cookie = lend(&socket, MrFlags::empty());
    // The message that was to carry it is refused.
    let too_long = vec![0; (1 << 20) + 1];
    assert!(
        socket
            .send_with_cookie(too_long.into(), cookie, at(2, 6))
            .is_err()
    );
    drop(socket);
    let stats = world.hosts[0].pool_stats().unwrap();
    assert_eq!((stats.regions.clean, stats.regions.leased), (16, 0));
    assert!(
        world.hcas[0]
            .connect()
            .read(cookie.key(), 0, &mut [0])
            .is_err()
    );
}

/// CVE-2018-5332: no pages.
#[test]
fn no_bytes_are_no_region() {
    let world = World::with_hosts(1);
    let socket = world.socket(0, 5);
    let refused = socket.get_mr(Vec::new(), Access::all(), MrFlags::empty());
    assert!(matches!(
        refused,
        Err(MrError::Refused {
            temporary: false,
            ..
        })
    ));
    let refused = socket.get_mr(vec![0; (1 << 20) + 1], Access::all(), MrFlags::empty());
    let Err(MrError::TooLong { buffer }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(buffer.len(), (1 << 20) + 1);
    assert_eq!(world.hosts[0].pool_stats().unwrap().regions.clean, 16);
}

/// RDS 2019 (invalidate failed, memory freed) and the window of use-once + invalidate.
#[test]
fn no_word_of_a_use_comes_before_its_key_is_dead_also_if_the_first_tries_fail() {
    let world = World::with_hosts(2);
    let server = world.socket(1, 6);
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let plan = FaultPlan::none().on(Call::Invalidate, When::From(1), Fault::Fail(ErrorKind::Io));
    let backend = FaultBackend::new(hca.clone(), plan);
    let control = backend.control();
    let pool = Pool::builder(backend, Policy::default())
        .capacity(4)
        .configure(|config| config.driver = Driver::Manual)
        .build::<Vec<u8>>()
        .unwrap();
    let host = Host::builder(world.network.fabric(Some(hca.clone())))
        .clock(world.clock.clone())
        .driving(Driving::Manual)
        .regions(PoolRegions::new(Arc::new(pool)))
        .build()
        .unwrap();
    let mut world = world;
    world.hosts.push(host);
    let client = world.socket(2, 5);
    let cookie = lend(&client, MrFlags::USE_ONCE | MrFlags::INVALIDATE);
    let op = RdmaOp::new(cookie).message("written");
    server.rdma_write(at(3, 5), op, vec![2; 64]).unwrap();
    server.send_to(b"behind", at(3, 5)).unwrap();
    world.run(5 * MS);
    assert_eq!(
        client.try_recv_message().unwrap_err(),
        RecvError::WouldBlock
    );
    assert!(
        hca.connect().read(cookie.key(), 0, &mut [0]).is_ok(),
        "alive"
    );
    assert_eq!(client.reclaim(), None);
    assert!(
        matches!(client.flush_mrs(), Ok(false)),
        "and nobody says otherwise"
    );
    control.set_plan(FaultPlan::none());
    world.run(Duration::from_secs(2));
    assert_eq!(&*client.try_recv_message().unwrap().payload, b"written");
    assert_eq!(&*client.try_recv_message().unwrap().payload, b"behind");
    assert!(hca.connect().read(cookie.key(), 0, &mut [0]).is_err());
    assert_eq!(client.reclaim(), Some((cookie, vec![2; 64])));
}

/// A key that cannot be killed is not said to be dead.
#[test]
fn a_failed_invalidation_is_in_progress_and_keeps_the_memory() {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let plan = FaultPlan::none().on(Call::Invalidate, When::Nth(1), Fault::Fail(ErrorKind::Io));
    let pool = Pool::builder(FaultBackend::new(hca.clone(), plan), Policy::default())
        .capacity(4)
        .build::<Vec<u8>>()
        .unwrap();
    let host = Host::builder(network.fabric(Some(hca)))
        .clock(clock)
        .regions(PoolRegions::new(Arc::new(pool)))
        .build()
        .unwrap();
    let socket = host.bind(at(1, 5)).unwrap();
    let cookie = lend(&socket, MrFlags::empty());
    assert_eq!(
        socket.free_mr(cookie, true).unwrap(),
        FreeOutcome::InProgress
    );
    assert!(socket.flush_mrs().unwrap(), "the second try succeeds");
    assert_eq!(socket.reclaim(), Some((cookie, vec![1; 64])));
}

/// CVE-2026-68335: a port table that does not know whose port it is.
#[test]
fn two_networks_with_the_same_addresses_share_nothing() {
    let (one, two) = (World::with_hosts(2), World::with_hosts(2));
    let (a1, b1) = (one.socket(0, 5), one.socket(1, 6));
    let (a2, b2) = (two.socket(0, 5), two.socket(1, 6));
    a1.send_to(b"one", at(2, 6)).unwrap();
    a2.send_to(b"two", at(2, 6)).unwrap();
    one.run(MS);
    two.run(MS);
    assert_eq!(&*b1.try_recv_message().unwrap().payload, b"one");
    assert_eq!(&*b2.try_recv_message().unwrap().payload, b"two");
    assert!(b1.try_recv_message().is_err() && b2.try_recv_message().is_err());
    assert_eq!(one.hosts[1].counters().recv_queued, 1);
}

/// CVE-2010-3865: a sum that overflows. Half of it may come from a peer, as its cookie.
#[test]
fn an_operation_beyond_all_addresses_is_refused_with_its_buffers() {
    let world = World::with_hosts(2);
    let socket = world.socket(0, 5);
    let far = Cookie::from_bits(u64::MAX);
    let most = u64::MAX - u64::from(u32::MAX);
    for offset in [u64::MAX, most + 1, most, most - 7] {
        let op = RdmaOp::new(far).at(offset);
        let refused = socket.rdma_write(at(2, 6), op.clone(), vec![1; 8]);
        let Err(RefusedOp {
            reason: SendError::BadOffset { offset: said },
            buffers,
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(said, offset);
        assert_eq!(buffers.into_first(), vec![1; 8], "given back");
        let change = AtomicOp::FetchAdd { add: 1 };
        let refused = socket.atomic(at(2, 6), op, change);
        assert!(matches!(refused, Err(SendError::BadOffset { .. })));
    }
    let op = RdmaOp::new(far).at(most - 8);
    socket.rdma_write(at(2, 6), op, vec![1; 8]).unwrap();
}

/// CVE-2026-43230: a connection that never tries again.
#[test]
fn a_peer_that_comes_late_gets_everything() {
    let world = World::with_hosts(2);
    let a = world.socket(0, 5);
    a.send_to(b"waiting", at(2, 6)).unwrap();
    world.run(Duration::from_secs(120));
    assert_eq!(a.unsent(), 1);
    let b = world.socket(1, 6);
    world.run(Duration::from_secs(3));
    assert_eq!(&*b.try_recv_message().unwrap().payload, b"waiting");
    assert_eq!(a.unsent(), 0);
}

/// An idle connection whose peer is gone for good comes to rest.
#[test]
fn nobody_dials_for_ever_for_nothing() {
    let mut world = World::with_hosts(2);
    let a = world.socket(0, 5);
    let b = world.socket(1, 6);
    a.send_to(b"x", at(2, 6)).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(a.unsent(), 0);
    drop(b);
    world.hosts.pop();
    world.run(Duration::from_secs(60));
    let links = world.hosts[0].connections()[0].links;
    world.run(Duration::from_secs(600));
    assert_eq!(world.hosts[0].connections()[0].links, links);
    // Need wakes it up.
    a.send_to(b"y", at(2, 6)).unwrap();
    world.run(Duration::from_secs(10));
    assert!(world.hosts[0].connections()[0].links > links);
}

/// CVE-2026-97491: a shutdown that hangs.
#[test]
fn a_shutdown_ends_those_who_wait() {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let (host, _) = live_host(&network, &clock);
    let socket = host.bind(at(1, 5)).unwrap();
    let full = host.bind(at(1, 6)).unwrap();
    full.set_send_buffer(10);
    full.send_to(&[0; 10], at(2, 6)).unwrap();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| socket.recv().unwrap_err());
        let sender = scope.spawn(|| full.send_to(&[0; 10], at(2, 6)).unwrap_err());
        std::thread::yield_now();
        host.shut_down();
        assert_eq!(receiver.join().unwrap(), RecvError::Closed);
        assert!(matches!(sender.join().unwrap(), SendError::Closed));
    });
    assert!(host.bind(at(1, 7)).is_err());
}

/// Linux rds.txt: writable by poll, refused on send.
#[test]
fn waiting_for_a_congested_peer_is_not_spinning() {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let ((first, _), (second, _)) = (live_host(&network, &clock), live_host(&network, &clock));
    let (a, b) = (
        first.bind(at(1, 5)).unwrap(),
        second.bind(at(2, 6)).unwrap(),
    );
    b.set_receive_buffer(1000);
    while a.try_send_to(&[0; 500], at(2, 6)).is_ok() {}
    assert!(matches!(
        a.wait_writable(at(2, 6), 20 * MS),
        Err(SendError::TimedOut)
    ));
    let refused = first.counters().cong_send_error;
    assert!(refused < 20, "asked {refused} times in 20 ms");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| a.send_to(b"at last", at(2, 6)));
        while let Ok(message) = b.recv_message() {
            if &*message.payload == b"at last" {
                break;
            }
        }
        waiter.join().unwrap().unwrap();
    });
}

/// quinn 2710 and others: damage, duplicates and losses on the way.
#[test]
fn a_damaged_header_costs_a_link_and_no_message() {
    let world = World::with_hosts(2);
    let (a, b) = (world.socket(0, 5), world.socket(1, 6));
    let mut faults = Faults::none();
    faults.corrupt = 0.1;
    faults.duplicate = 0.2;
    world.network.set_faults(faults);
    for number in 0..200_u32 {
        a.send_to(&number.to_be_bytes(), at(2, 6)).unwrap();
        world.run(MS);
    }
    world.network.set_faults(Faults::none());
    world.run(Duration::from_secs(5));
    for number in 0..200_u32 {
        let message = b.try_recv_message().unwrap();
        assert_eq!(*message.payload, number.to_be_bytes());
    }
    assert!(world.hosts[1].counters().recv_drop_bad_checksum > 0);
    assert!(world.hosts[1].counters().recv_drop_old_seq > 0);
}

/// A stranger's sockets close with their memory.
#[test]
fn a_closed_socket_leaves_no_key_behind() {
    let mut world = World::new(1);
    world.policy = "use-once".parse().unwrap();
    world.add_host(|_| {});
    let socket = world.socket(0, 5);
    let cookies: Vec<_> = (0..8).map(|_| lend(&socket, MrFlags::empty())).collect();
    socket.free_mr(cookies[0], false).unwrap();
    socket.close();
    for cookie in cookies {
        assert!(
            world.hcas[0]
                .connect()
                .read(cookie.key(), 0, &mut [0])
                .is_err()
        );
    }
    assert_eq!(world.hosts[0].pool_stats().unwrap().regions.clean, 16);
}

/// A pool over a driver that forgets the tag, as mthca and mlx4 did: every use has one key. What it
/// counts is of a pool that nobody uses.
struct Forgetful(Pool<MockHca>);

#[derive(Debug)]
struct SameKey(Vec<u8>);

impl Regions for Forgetful {
    fn lease(
        &self,
        buffer: Vec<u8>,
        _access: Access,
        _patience: Duration,
    ) -> Result<Box<dyn Leased>, MrError> {
        Ok(Box::new(SameKey(buffer)))
    }

    fn flush(&self) -> bool {
        true
    }

    fn reclaim(&self, _to: &mut Vec<Vec<u8>>) {}

    fn step(&self) -> Option<Time> {
        None
    }

    fn stats(&self) -> PoolStats {
        self.0.stats()
    }
}

impl Leased for SameKey {
    fn key(&self) -> RemoteKey {
        RemoteKey::from_bits(0x4200)
    }

    fn remote_addr(&self) -> u64 {
        0
    }

    fn addr(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    fn release(self: Box<Self>) {}

    fn invalidate(self: Box<Self>) -> Result<Vec<u8>, StillAlive> {
        Ok(self.0)
    }
}

/// The meter sees what it is there for, and nothing else.
#[test]
fn a_key_that_comes_back_while_stale_is_noticed() {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let unused = Pool::builder(hca.clone(), Policy::default()).build::<Vec<u8>>();
    let host = Host::builder(network.fabric(Some(hca)))
        .clock(clock)
        .regions(Forgetful(unused.unwrap()))
        .build()
        .unwrap();
    let socket = host.bind(at(1, 5)).unwrap();
    let first = lend(&socket, MrFlags::empty());
    assert!(matches!(
        socket.free_mr(first, true),
        Ok(FreeOutcome::Dead(_))
    ));
    let second = lend(&socket, MrFlags::empty());
    assert_eq!(host.keys_reissued_while_stale(), 0, "the first was dead");
    assert_eq!(
        socket.free_mr(second, false).unwrap(),
        FreeOutcome::InProgress
    );
    lend(&socket, MrFlags::empty());
    assert_eq!(host.keys_reissued_while_stale(), 1);
}
