//! Two processes over TCP, one of them killed and started again in the middle.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, outside of a test function; the child reports by its output"
)]

use rds_lite::fabric::tcp::{TcpConfig, TcpFabric};
use rds_lite::proto::Notification;
use rds_lite::{Host, Incoming, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const ROLE: &str = "RDS_TEST_RECEIVER";
const MESSAGES: u32 = 3000;

fn at(last: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 8, last)), port)
}

fn bind(last: u8, port: u16) -> Socket {
    let mut config = TcpConfig::default();
    config.port = port;
    let host = Host::builder(TcpFabric::new(config)).build().unwrap();
    // A port of a killed process may take a moment.
    for _ in 0..500 {
        match host.bind(at(last, 9)) {
            Ok(socket) => return socket,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("{last} cannot be bound");
}

/// The process that is killed: says what it receives, one line each. Does nothing when the tests are
/// run as usual.
#[test]
fn receiver_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (last, port) = role.split_once(':').unwrap();
    let socket = bind(last.parse().unwrap(), port.parse().unwrap());
    println!("\nready");
    while let Ok(message) = socket.recv_message() {
        let number = u32::from_be_bytes(message.payload[..4].try_into().unwrap());
        println!("\ngot {number}");
    }
}

struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(last: u8, port: u16) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "receiver_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, format!("{last}:{port}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    break;
                }
            }
        });
        let process = Self { child, lines };
        process.await_line(|line| line == "ready");
        process
    }

    fn await_line(&self, wanted: impl Fn(&str) -> bool) {
        let limit = Duration::from_secs(30);
        while !wanted(
            &self
                .lines
                .recv_timeout(limit)
                .expect("the receiver is silent"),
        ) {}
    }

    /// SIGKILL, and everything that it has said.
    fn kill(mut self, got: &mut Vec<u32>) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        got.extend(self.lines.iter().filter_map(|line| number(&line)));
    }
}

fn number(line: &str) -> Option<u32> {
    line.strip_prefix("got ")?.parse().ok()
}

/// What the sender knows of its messages.
#[derive(Default)]
struct Ledger {
    by_id: BTreeMap<u64, u32>,
    failed: BTreeSet<u32>,
    /// Whatever was sent before is not known to have been taken.
    restarted_at: Option<u32>,
    restarts: u32,
}

impl Ledger {
    fn read(&mut self, socket: &Socket, sent: u32) {
        while let Some(note) = socket.notification() {
            match note {
                Notification::SendFailed { id, .. } => {
                    self.failed.insert(self.by_id[&id]);
                }
                Notification::PeerRestarted(_) => {
                    self.restarted_at = Some(sent);
                    self.restarts += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

impl Ledger {
    /// The message just sent makes the connection, and that brings the word.
    fn await_restart(&mut self, socket: &Socket, sent: u32) {
        let before = self.restarts;
        for _ in 0..3000 {
            self.read(socket, sent);
            if self.restarts > before {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no word of the restart");
    }
}

/// Whoever of the two has the smaller address dials, so both are tried.
fn killed_and_restarted(sender: u8, receiver: u8) {
    let probe = TcpListener::bind(at(99, 0)).unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let socket = bind(sender, port);
    let mut process = Process::start(receiver, port);
    let mut got = Vec::new();
    let mut ledger = Ledger::default();
    let mut awaits_word = false;
    for message in 0..MESSAGES {
        let id = socket
            .send_to(&message.to_be_bytes(), at(receiver, 9))
            .unwrap();
        ledger.by_id.insert(id, message);
        if message == 0 {
            process.await_line(|line| number(line) == Some(0));
            got.push(0);
        }
        if awaits_word {
            ledger.await_restart(&socket, message + 1);
            awaits_word = false;
        }
        ledger.read(&socket, message + 1);
        if message % 1000 == 500 {
            process.kill(&mut got);
            process = Process::start(receiver, port);
            awaits_word = true;
        }
    }
    // The last one has arrived when everything before it has, or was reported.
    let last = MESSAGES - 1;
    socket.set_receive_timeout(Some(Duration::from_millis(10)));
    for _ in 0..3000 {
        if let Ok(Incoming::Message(message)) = socket.try_recv() {
            panic!("{message:?}");
        }
        ledger.read(&socket, MESSAGES);
        while let Ok(line) = process.lines.try_recv() {
            got.extend(number(&line));
        }
        if socket.unsent() == 0 && (got.contains(&last) || ledger.failed.contains(&last)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    ledger.read(&socket, MESSAGES);
    process.kill(&mut got);
    assert_eq!(socket.unsent(), 0);

    let distinct: BTreeSet<u32> = got.iter().copied().collect();
    assert_eq!(distinct.len(), got.len(), "delivered twice");
    assert!(got.is_sorted(), "out of order");
    assert!(got.len() > 100, "only {} of {MESSAGES} arrived", got.len());
    let restarted_at = ledger.restarted_at.expect("no word of the restart");
    for message in 0..MESSAGES {
        let reported = ledger.failed.contains(&message) || message < restarted_at;
        assert!(
            distinct.contains(&message) || reported,
            "{message} has vanished"
        );
    }
    assert_eq!(ledger.restarts, 3);
    assert!(
        restarted_at < MESSAGES - 100,
        "no message was tested behind the restart"
    );
}

#[test]
fn nothing_comes_twice_or_vanishes_when_the_acceptor_is_killed() {
    killed_and_restarted(1, 2);
}

#[test]
fn nothing_comes_twice_or_vanishes_when_the_dialler_is_killed() {
    killed_and_restarted(4, 3);
}
