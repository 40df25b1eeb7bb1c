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
        Err(MrError::Unsupported { fabric: "tcp", buffer: Some(buffer) }) if buffer == [0; 8]
    ));
    let op = RdmaOp::new(Cookie::from_bits(1));
    let refused = a.rdma_write(at(2, 6), op, vec![0; 8]);
    let refused = refused.unwrap_err();
    assert!(matches!(refused.reason, SendError::NoRdma(_)));
    assert_eq!(refused.buffers.bytes(), 8, "given back");
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
    // Once the loss is noticed, what is sent was never sent to the old one.
    while first.connections()[0].state.has_link() {
        std::thread::sleep(Duration::from_millis(1));
    }
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

/// Whatever a peer writes, it ends its own connection and nothing else.
#[test]
fn noise_on_a_connection_ends_only_that() {
    use std::io::{Read, Write};
    let port = free_port();
    let receiver = host(port).bind(at(3, 6)).unwrap();
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..40 {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let mut socket = socket.unwrap();
        socket.bind(&at(1, 0).into()).unwrap();
        socket.connect(&at(3, port).into()).unwrap();
        socket.set_write_timeout(Some(LONG)).unwrap();
        let mut bytes = vec![0; 100_000];
        for byte in &mut bytes {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (noise >> 56) as u8;
        }
        if round % 2 == 0 {
            // A plausible beginning: no checksum, and a length that may be.
            bytes[16..18].fill(0);
            bytes[30..32].fill(0);
        }
        // The receiver may end the connection in the middle of it.
        let _ = socket.write_all(&bytes);
        if round % 4 == 1 {
            socket.set_read_timeout(Some(LONG)).unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
        }
    }
    let sender = host(port).bind(at(2, 5)).unwrap();
    sender.send_to(b"still there", at(3, 6)).unwrap();
    assert_eq!(receive(&receiver), b"still there");
}

/// Whoever waits may have to receive for the others, and leaves when it has what it waited for.
#[test]
fn whoever_waits_on_a_shared_connection_gets_its_messages() {
    use std::future::Future;
    use std::task::{Context, Poll, Wake};

    const MESSAGES: u32 = 3000;
    const SHORT: Duration = Duration::from_micros(50);

    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }

    fn number(message: &[u8]) -> u32 {
        u32::from_be_bytes(message.try_into().unwrap())
    }

    fn as_a_task(socket: &Socket) -> u32 {
        let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
        let mut task = Context::from_waker(&waker);
        let mut message = std::pin::pin!(socket.recv_message_async());
        loop {
            match message.as_mut().poll(&mut task) {
                Poll::Ready(message) => return number(&message.unwrap().payload),
                Poll::Pending => std::thread::park_timeout(LONG),
            }
        }
    }

    fn impatiently(socket: &Socket) -> u32 {
        for _ in 0..1_000_000 {
            socket.set_receive_timeout(Some(SHORT));
            if let Ok(message) = socket.recv_message() {
                return number(&message.payload);
            }
        }
        panic!("nothing comes");
    }

    let port = free_port();
    let (a, b) = (host(port), host(port));
    let ways: [fn(&Socket) -> u32; 4] = [
        |socket| number(&receive(socket)),
        as_a_task,
        impatiently,
        |socket| {
            assert!(socket.wait_readable(LONG));
            number(&socket.try_recv_message().unwrap().payload)
        },
    ];
    std::thread::scope(|scope| {
        for (way, receive) in ways.into_iter().enumerate() {
            let at = move |last| at(last, 10 + way as u16);
            let (near, far) = (a.bind(at(1)).unwrap(), b.bind(at(2)).unwrap());
            // A message each way at a time, so that everyone waits again and again.
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    near.send_to(&number.to_be_bytes(), at(2)).unwrap();
                    assert_eq!(receive(&near), number);
                }
                assert!(near.wait_sent(LONG));
            });
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    assert_eq!(receive(&far), number);
                    far.send_to(&number.to_be_bytes(), at(1)).unwrap();
                }
                assert!(far.wait_sent(LONG));
            });
        }
    });
}

#[test]
fn a_full_send_buffer_asks_for_acknowledgements_now_and_then() {
    const MESSAGES: u64 = 4000;
    const BUFFER: usize = 64 << 10;
    let port = free_port();
    let (a, b) = (host(port), host(port));
    let (a, b) = (a.bind(at(1, 5)).unwrap(), b.bind(at(2, 6)).unwrap());
    a.set_send_buffer(BUFFER);
    a.set_send_timeout(Some(LONG));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..MESSAGES).for_each(|_| drop(receive(&b))));
        for _ in 0..MESSAGES {
            a.send_to(&[0; 1024], at(2, 6)).unwrap();
        }
    });
    assert!(a.wait_sent(LONG));
    let asked = a.host().counters().send_ack_required;
    let needed = MESSAGES * 1024 / BUFFER as u64;
    assert!(
        (needed..MESSAGES / 4).contains(&asked),
        "asked {asked} times"
    );
}
