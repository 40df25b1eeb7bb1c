//! RDS/TCP with a peer that does what the kernel does, byte by byte: no checksums, no acknowledgements.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use rds_lite::fabric::tcp::{TcpConfig, TcpFabric};
use rds_lite::proto::{Config, Received as Message};
use rds_lite::wire::{
    CongestionMap, Ext, ExtArea, Flags, HEADER_LEN, Header, MAP_LEN, MAX_MESSAGE,
};
use rds_lite::{Host, RecvError, Socket};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 6, last))
}

/// rds-lite, with the larger address: the peer connects.
fn lite() -> (Socket, u16) {
    let port = free_port();
    (lite_at(2, port, |_| {}), port)
}

fn free_port() -> u16 {
    let port = TcpListener::bind((ip(99), 0)).unwrap();
    port.local_addr().unwrap().port()
}

fn lite_at(last: u8, port: u16, configure: impl FnOnce(&mut Config)) -> Socket {
    let mut config = TcpConfig::default();
    config.port = port;
    let host = Host::builder(TcpFabric::new(config)).configure(configure);
    let host = host.build().unwrap();
    let socket = host.bind(SocketAddr::new(ip(last), 6)).unwrap();
    socket.set_receive_timeout(Some(LONG));
    socket.set_send_timeout(Some(LONG));
    socket
}

/// The smallest budget that there is.
const BUDGET: usize = 2 << 20;

/// Messages that fill it. Each takes up a buffer of 64 KiB.
const FILL: usize = BUDGET / (64 << 10);
const EACH: usize = 5000;

/// rds-lite with that budget, and with a peer that has been greeted.
fn full_at(last: u8, port: u16) -> Socket {
    lite_at(last, port, |config| {
        config.receive_budget = BUDGET;
        config.receive_buffer = BUDGET / 8;
        // A link that is older than this is dead if the peer asks for one.
        config.greet_timeout = Duration::from_millis(1);
    })
}

/// Waits for something that happens in other threads.
fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let pause = Duration::from_millis(1);
    let most = LONG.as_millis() / pause.as_millis();
    assert!(
        (0..most).any(|_| happens() || {
            std::thread::sleep(pause);
            false
        }),
        "{what}"
    );
}

fn stalls(lite: &Socket) -> u64 {
    lite.host().counters().lite_stalled
}

/// That the next message is this one, and whole.
fn expect(lite: &Socket, number: u64) -> Message {
    expect_of(lite, number, EACH)
}

fn expect_of(lite: &Socket, number: u64, len: usize) -> Message {
    let message = lite.recv_message().unwrap();
    let expected = content(number, len);
    assert!(message.payload[..] == expected[..], "message {number}");
    message
}

fn content(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn connect(from: u8, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.unwrap();
    socket.bind(&SocketAddr::new(ip(from), 0).into()).unwrap();
    // So that little is on the way when a connection ends.
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect_timeout(&to.into(), LONG)?;
    Ok(socket.into())
}

/// A connection of the peer.
struct Kernel {
    stream: TcpStream,
}

impl Kernel {
    fn connect(port: u16) -> Self {
        Self::new(connect(1, SocketAddr::new(ip(2), port)).unwrap())
    }

    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Self { stream }
    }

    /// Answers the greeting.
    fn pong(&mut self, sequence: u64) {
        let ext = ExtArea::EMPTY.with(Ext::NPaths(8));
        let header = Header {
            sequence,
            dport: 1,
            ext,
            ..Header::default()
        };
        self.stream.write_all(&header.encode_unchecked()).unwrap();
    }

    /// Messages with these numbers, which are also their content.
    fn messages(&mut self, numbers: std::ops::Range<u64>) {
        let mut bytes = Vec::new();
        for sequence in numbers {
            let header = Header {
                sequence,
                len: 4,
                sport: 5,
                dport: 6,
                ..Header::default()
            };
            bytes.extend_from_slice(&header.encode_unchecked());
            bytes.extend_from_slice(&(sequence as u32).to_be_bytes());
        }
        self.stream.write_all(&bytes).unwrap();
    }

    /// A message that takes up much room; see [`content`].
    fn large(&mut self, sequence: u64) {
        self.large_of(sequence, EACH);
    }

    fn large_of(&mut self, sequence: u64, len: usize) {
        self.large_to(sequence, len, 6);
    }

    fn large_to(&mut self, sequence: u64, len: usize, dport: u16) {
        let header = Header {
            sequence,
            len: len as u32,
            sport: 5,
            dport,
            ..Header::default()
        };
        let mut bytes = header.encode_unchecked().to_vec();
        bytes.extend_from_slice(&content(sequence, len));
        self.stream.write_all(&bytes).unwrap();
    }

    /// Waits until the other side's TCP has acknowledged everything: the kernel takes it for delivered.
    fn delivered(&self) {
        let ends = [self.stream.local_addr(), self.stream.peer_addr()];
        let ports = ends.map(|end| format!(":{:04X}", end.unwrap().port()));
        until("everything is acknowledged", || {
            let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
            // Number, both ends, state, and what is not acknowledged, in front of what was not read.
            table.lines().skip(1).any(|line| {
                let fields: Vec<_> = line.split_whitespace().collect();
                let ours = (1..3).all(|end| fields[end].ends_with(&ports[end - 1]));
                ours && fields[4].starts_with("00000000:")
            })
        });
    }

    /// The next message, without what has no number.
    fn read(&mut self) -> (Header, Vec<u8>) {
        loop {
            let (header, payload) = self.read_any();
            if header.sequence != 0 {
                return (header, payload);
            }
        }
    }

    fn read_any(&mut self) -> (Header, Vec<u8>) {
        let mut header = [0; HEADER_LEN];
        self.stream.read_exact(&mut header).unwrap();
        let (header, _) = Header::decode(&header).unwrap();
        assert!(header.len as usize <= MAX_MESSAGE);
        let mut payload = vec![0; header.len as usize];
        self.stream.read_exact(&mut payload).unwrap();
        (header, payload)
    }

    /// Reads until a congestion map says that the port is congested.
    fn congested(&mut self, port: u16) {
        loop {
            let (header, payload) = self.read_any();
            if header.len as usize == MAP_LEN && header.flags == Flags::CONG_BITMAP {
                let map = CongestionMap::decode(&payload).unwrap();
                if map.contains(port) {
                    return;
                }
            }
        }
    }
}

fn number(message: &[u8]) -> u32 {
    u32::from_be_bytes(*message.first_chunk().unwrap())
}

/// The kernel has received what its TCP has. What this side's TCP had when the connection ended never
/// left, and nobody acknowledges: it has to be sent again.
#[test]
fn what_was_in_the_senders_tcp_when_a_connection_ended_arrives_all_the_same() {
    const MESSAGES: u32 = 3000;
    let (lite, port) = lite();
    for message in 0..MESSAGES {
        let mut payload = vec![0; 1000];
        payload[..4].copy_from_slice(&message.to_be_bytes());
        lite.send_to(&payload, SocketAddr::new(ip(1), 5)).unwrap();
    }
    let mut received = Received::default();
    for round in 0.. {
        let mut kernel = Kernel::connect(port);
        if round == 0 {
            kernel.pong(1);
        }
        // A connection is reset somewhere between 100 and 1000 messages later, or not any more.
        let left = 100 + round * 331 % 900;
        if received.next + left >= MESSAGES {
            while received.next < MESSAGES {
                received.take(kernel.read());
            }
            // It takes whatever comes, to the end.
            std::thread::spawn(move || std::io::copy(&mut kernel.stream, &mut std::io::sink()));
            break;
        }
        for _ in 0..left {
            received.take(kernel.read());
        }
        // Its TCP has got as much as it has room for, and is done with all of it.
        let mut rest = vec![0; 1 << 20];
        let len = kernel.stream.peek(&mut rest).unwrap();
        let mut rest = &rest[..len];
        while let Some((header, behind)) = rest.split_first_chunk::<HEADER_LEN>() {
            let (header, _) = Header::decode(header).unwrap();
            let Some((payload, behind)) = behind.split_at_checked(header.len as usize) else {
                break;
            };
            received.take((header, payload.to_vec()));
            rest = behind;
        }
    }
    assert!(lite.wait_sent(LONG));
    assert!(lite.host().counters().lite_retransmitted > 0);
}

/// What the peer has received by the kernel's rules.
#[derive(Default)]
struct Received {
    next_rx: u64,
    next: u32,
}

impl Received {
    fn take(&mut self, (header, payload): (Header, Vec<u8>)) {
        let again = header.flags.contains(Flags::RETRANSMITTED);
        if header.sequence == 0 || (again && header.sequence < self.next_rx) {
            return;
        }
        self.next_rx = header.sequence + 1;
        assert_eq!(number(&payload), self.next);
        self.next += 1;
    }
}

/// What the peer's TCP was told is received, so the peer does not send it again: it must not be thrown
/// away with a connection that the peer has replaced.
#[test]
fn what_has_arrived_on_a_replaced_connection_comes_first() {
    const ROUNDS: u64 = 50;
    const EACH: u64 = 200;
    let (lite, port) = lite();
    let mut replaced = Vec::new();
    for round in 0..ROUNDS {
        let mut kernel = Kernel::connect(port);
        if round == 0 {
            kernel.pong(1);
        }
        // In one piece, which fits: on loopback it has arrived when this is over.
        let begin = 2 + round * EACH;
        kernel.messages(begin..begin + EACH);
        // The next connection comes at once. Half of them end as where a machine has crashed: not at all.
        if round % 2 == 0 {
            replaced.push(kernel);
        }
    }
    for expected in 2..=ROUNDS * EACH + 1 {
        let message = lite.recv_message().unwrap();
        assert_eq!(u64::from(number(&message.payload)), expected);
    }
}

/// The peer takes for delivered what this side's TCP has acknowledged. So it is held back, not shed: by
/// TCP, and by the congestion map if it heeds that, which goes out all the same.
#[test]
fn a_peer_that_sends_nothing_again_is_held_back_while_there_is_no_room() {
    // Far more than the budget and both TCPs have room for.
    const MESSAGES: u64 = 1000;
    // Both ways of reading.
    let len = |number| if number % 2 == 0 { EACH } else { 50_000 };
    let port = free_port();
    let lite = full_at(2, port);
    let mut kernel = Kernel::connect(port);
    kernel.pong(1);
    let mut hears = Kernel {
        stream: kernel.stream.try_clone().unwrap(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (2..MESSAGES + 2).for_each(|number| kernel.large_of(number, len(number)));
        });
        until("it stalls", || stalls(&lite) > 0);
        hears.congested(6);
        let mut held = std::collections::VecDeque::new();
        for number in 2..MESSAGES + 2 {
            held.push_back(expect_of(&lite, number, len(number)));
            assert!(lite.host().receive_memory() <= BUDGET);
            // A reader that is slow to let go.
            if held.len() == FILL / 2 {
                held.clear();
            }
        }
    });
    let counters = lite.host().counters();
    assert_eq!((counters.lite_shed, counters.conn_reset), (0, 0));
}

/// One that goes on although a socket is congested must not take the room of those who do not.
#[test]
fn who_ignores_congestion_holds_back_nobody_else() {
    let port = free_port();
    let lite = full_at(3, port);
    let other = lite.host().bind(SocketAddr::new(ip(3), 7)).unwrap();
    other.set_receive_timeout(Some(LONG));
    let [mut floods, mut keeps_up] = [1, 2].map(|from| {
        let mut kernel = Kernel::new(connect(from, SocketAddr::new(ip(3), port)).unwrap());
        kernel.pong(1);
        kernel
    });
    std::thread::scope(|scope| {
        // Until this side ends the connection.
        scope.spawn(|| {
            let mut bytes = Vec::new();
            let header = |sequence| Header {
                sequence,
                len: 50_000,
                sport: 5,
                dport: 6,
                ..Header::default()
            };
            for sequence in 2.. {
                bytes.clear();
                bytes.extend_from_slice(&header(sequence).encode_unchecked());
                bytes.extend_from_slice(&content(sequence, 50_000));
                if floods.stream.write_all(&bytes).is_err() {
                    break;
                }
            }
        });
        until("it stalls", || stalls(&lite) > 0);
        for number in 2..100 {
            keeps_up.large_to(number, 50_000, 7);
            drop(expect_of(&other, number, 50_000));
        }
        // What was held back is there as soon as it is read.
        (2..100).for_each(|number| drop(expect_of(&lite, number, 50_000)));
        assert_eq!(lite.host().counters().lite_shed, 0);
        lite.host().shut_down();
    });
}

/// Whoever waits for a message reads from the connection itself. While it is stalled that must neither
/// hang nor go on beyond a time limit.
#[test]
fn who_waits_while_nothing_is_read_keeps_to_its_time_limit() {
    let port = free_port();
    let lite = full_at(2, port);
    let mut kernel = Kernel::connect(port);
    kernel.pong(1);
    let last = 2 + FILL as u64;
    (2..=last).for_each(|number| kernel.large(number));
    let mut held: Vec<_> = (2..last).map(|number| expect(&lite, number)).collect();
    lite.set_receive_timeout(Some(Duration::from_millis(50)));
    // Longer than the connection's thread keeps what nobody asks for.
    for _ in 0..3 {
        assert_eq!(lite.recv_message().unwrap_err(), RecvError::TimedOut);
    }
    assert_eq!(stalls(&lite), 1);
    lite.set_receive_timeout(Some(LONG));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| drop(expect(&lite, last)));
        // Perhaps while it waits; nobody tells it.
        held.pop();
        waits.join().unwrap();
    });
}

#[test]
fn the_end_of_a_host_does_not_wait_for_a_connection_that_is_held_back() {
    let port = free_port();
    let lite = full_at(2, port);
    let mut kernel = Kernel::connect(port);
    kernel.pong(1);
    let last = 2 + FILL as u64;
    (2..=last).for_each(|number| kernel.large(number));
    let held: Vec<_> = (2..last).map(|number| expect(&lite, number)).collect();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lite.recv_message().unwrap_err());
        until("it stalls", || stalls(&lite) > 0);
        lite.host().shut_down();
        // Not at its time limit, and without any room.
        assert_eq!(waits.join().unwrap(), RecvError::Closed);
    });
    // The connection ends, too: perhaps with a reset, since there was something to be read.
    if let Err(error) = kernel.stream.read_to_end(&mut Vec::new()) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    drop(held);
}

/// Has the peer send from message `next` on until one more is there than there is room for; that one fits into
/// this side's TCP. The first connection fills all of the room.
fn overfill(kernel: &mut Kernel, lite: &Socket, next: &mut u64) {
    let first = *next == 2;
    if first {
        kernel.pong(1);
    }
    let before = stalls(lite);
    let end = if first { 3 + FILL as u64 } else { *next + 1 };
    (*next..end).for_each(|number| kernel.large(number));
    *next = end;
    until("it stalls", || stalls(lite) > before);
    kernel.delivered();
}

/// There is nobody left to hold back, and the peer is not going to send it again: it is taken beyond the
/// budget.
#[test]
fn what_has_arrived_on_a_connection_that_ends_while_it_is_held_back_is_not_lost() {
    const ROUNDS: u64 = 9;
    let port = free_port();
    let lite = full_at(2, port);
    let mut kernels = Vec::new();
    let mut next = 2;
    for round in 0..ROUNDS {
        let mut kernel = Kernel::connect(port);
        overfill(&mut kernel, &lite, &mut next);
        match round % 3 {
            0 => kernel.stream.shutdown(Shutdown::Write).unwrap(),
            // With a reset, since it has not read everything.
            1 => {
                drop(kernel);
                continue;
            }
            // The peer crashes, and connects anew.
            _ => {}
        }
        kernels.push(kernel);
    }
    for number in 2..next {
        drop(expect(&lite, number));
    }
    assert_eq!(lite.host().counters().lite_shed, 0);
}

/// As before, but it is this side that connects: a peer that has crashed asks for it.
#[test]
fn what_has_arrived_on_a_dead_connection_comes_before_the_next_is_made() {
    const ROUNDS: u64 = 4;
    let port = free_port();
    let lite = full_at(1, port);
    let listener = TcpListener::bind((ip(2), port)).unwrap();
    let mut kernels = Vec::new();
    let mut next = 2;
    for _ in 0..ROUNDS {
        let mut kernel = dialled(&listener, port);
        overfill(&mut kernel, &lite, &mut next);
        kernels.push(kernel);
    }
    for number in 2..next {
        drop(expect(&lite, number));
    }
    assert_eq!(lite.host().counters().lite_shed, 0);
}

/// Asks to be dialled, and is.
fn dialled(listener: &TcpListener, port: u16) -> Kernel {
    listener.set_nonblocking(true).unwrap();
    let (mut looks, mut stream) = (0, None);
    until("it is dialled", || {
        // Again from time to time: a link that is too young has been taken for the answer.
        if looks % 100 == 0 {
            ask(port);
        }
        looks += 1;
        stream = listener.accept().ok();
        stream.is_some()
    });
    let (stream, _) = stream.unwrap();
    stream.set_nonblocking(false).unwrap();
    Kernel::new(stream)
}

/// Asks to be dialled, and waits until the other side has understood.
fn ask(port: u16) {
    let connected = connect(2, SocketAddr::new(ip(1), port));
    // It may be reset before this side has seen it.
    let refused = connected.and_then(|mut stream| {
        stream.set_read_timeout(Some(LONG))?;
        stream.read(&mut [0])
    });
    assert!(refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
}
