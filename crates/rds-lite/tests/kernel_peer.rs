//! RDS/TCP with a peer that does what the kernel does, byte by byte: no checksums, no acknowledgements.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use rds_lite::fabric::tcp::{TcpConfig, TcpFabric};
use rds_lite::wire::{Ext, ExtArea, Flags, HEADER_LEN, Header, MAX_MESSAGE};
use rds_lite::{Host, Socket};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 6, last))
}

/// rds-lite, with the larger address: the peer connects.
fn lite() -> (Socket, u16) {
    let port = TcpListener::bind((ip(99), 0)).unwrap();
    let port = port.local_addr().unwrap().port();
    let mut config = TcpConfig::default();
    config.port = port;
    let host = Host::builder(TcpFabric::new(config)).build().unwrap();
    let socket = host.bind(SocketAddr::new(ip(2), 6)).unwrap();
    socket.set_receive_timeout(Some(LONG));
    socket.set_send_timeout(Some(LONG));
    (socket, port)
}

/// A connection of the peer.
struct Kernel {
    stream: TcpStream,
}

impl Kernel {
    fn connect(port: u16) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&SocketAddr::new(ip(1), 0).into()).unwrap();
        // So that little is on the way when a connection ends.
        socket.set_recv_buffer_size(4096).unwrap();
        let to = SocketAddr::new(ip(2), port);
        socket.connect_timeout(&to.into(), LONG).unwrap();
        let stream = TcpStream::from(socket);
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

    /// The next message, without what has no number.
    fn read(&mut self) -> (Header, Vec<u8>) {
        loop {
            let mut header = [0; HEADER_LEN];
            self.stream.read_exact(&mut header).unwrap();
            let (header, _) = Header::decode(&header).unwrap();
            assert!(header.len as usize <= MAX_MESSAGE);
            let mut payload = vec![0; header.len as usize];
            self.stream.read_exact(&mut payload).unwrap();
            if header.sequence != 0 {
                return (header, payload);
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
