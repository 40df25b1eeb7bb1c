//! The TCP connection over which two sides agree on a load.

use super::load::{Load, LoadError};
use mr_core::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long the other side has for a word: longer than a side takes to drain.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest word, in bytes.
const LONGEST: usize = 8 << 10;

/// A machine that vanished is noticed after the first time and `MISSED` times the second.
const QUIET: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_secs(5);
const MISSED: u32 = 3;

/// The longest reason that is told or shown.
const REASON: usize = 500;

/// What the sides say to each other: a line of JSON each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// The side that begins says what it wants.
    Load(Load),
    /// The tasks run.
    Ready,
    /// Nothing new is asked.
    NoMore,
    /// All answers are there.
    End,
    /// This side gives up.
    Failed(String),
}

impl Word {
    const fn name(&self) -> &'static str {
        match self {
            Self::Load(_) => "a load",
            Self::Ready => "ready",
            Self::NoMore => "no more",
            Self::End => "the end",
            Self::Failed(_) => "failure",
        }
    }
}

/// Why two sides did not agree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// This side cannot listen there.
    #[error("cannot listen at {addr}")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Nobody has come.
    #[error("nobody has begun a load in time")]
    Nobody,
    /// Nobody waits there.
    #[error("nobody waits at {to}: start `rds stress -r {}` there", .to.ip())]
    NobodyWaits {
        /// Where.
        to: SocketAddr,
        /// What connecting said.
        source: io::Error,
    },
    /// The connection has failed.
    #[error("the connection to the other side was lost")]
    Lost(#[from] io::Error),
    /// The other side has ended the connection.
    #[error("the other side has gone")]
    Gone,
    /// The other side says nothing.
    #[error("the other side says nothing for {PATIENCE:?}")]
    Silent,
    /// What the other side says is no word.
    #[error("the other side is no `rds stress` of this version")]
    NoWord,
    /// Another word than the one that was to come.
    #[error("the other side says {said} rather than {expected}")]
    OtherWord {
        /// What it says.
        said: &'static str,
        /// What was to come.
        expected: &'static str,
    },
    /// The other side gives up.
    #[error("the other side has given up: {0}")]
    Failed(String),
    /// The other side wants a load that nobody can run.
    #[error("the other side wants a load that cannot be run")]
    Load(#[from] LoadError),
}

/// A connection to the other side. Every wait for a word is bounded, and so is its length.
#[derive(Debug)]
pub struct Control {
    stream: TcpStream,
    peer: IpAddr,
    /// What has come and was not taken.
    inbox: Vec<u8>,
}

impl Control {
    /// Waits for the side that begins, and takes the load that it wants, which can be run. Whoever comes
    /// and wants none is no reason to stop waiting; the bound is on the time without anybody.
    ///
    /// # Errors
    ///
    /// [`ControlError`]; a load that cannot be run is refused.
    pub fn accept(
        addr: SocketAddr,
        at_most: Option<Duration>,
    ) -> Result<(Self, Load), ControlError> {
        let listener =
            listen(addr, at_most).map_err(|source| ControlError::Listen { addr, source })?;
        loop {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_late(&error) => return Err(ControlError::Nobody),
                Err(error) => return Err(error.into()),
            };
            let Some(peer) = peer.as_socket() else {
                continue;
            };
            let mut control = Self::new(stream.into(), peer.ip())?;
            match control.take_load() {
                Err(ControlError::Gone | ControlError::Lost(_) | ControlError::NoWord) => {}
                taken => return taken.map(|load| (control, load)),
            }
        }
    }

    /// Connects from the address that the sockets will have: the other side takes it from here. Tries
    /// again so often, with such pauses.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn connect(
        own: IpAddr,
        to: SocketAddr,
        mut retries: u32,
        pause: Duration,
    ) -> Result<Self, ControlError> {
        loop {
            match connect(own, to) {
                Ok(stream) => return Self::new(stream, to.ip()),
                Err(_) if retries > 0 => {
                    retries -= 1;
                    std::thread::sleep(pause);
                }
                Err(source) => return Err(ControlError::NobodyWaits { to, source }),
            }
        }
    }

    fn new(stream: TcpStream, peer: IpAddr) -> Result<Self, ControlError> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let probes = TcpKeepalive::new()
            .with_time(QUIET)
            .with_interval(PROBE)
            .with_retries(MISSED);
        SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        Ok(Self {
            stream,
            peer,
            inbox: Vec::new(),
        })
    }

    /// The address of the other side.
    #[must_use]
    pub const fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Tells the other side what is wanted.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn offer(&mut self, load: &Load) -> Result<(), ControlError> {
        self.send(&Word::Load(load.clone()))
    }

    fn take_load(&mut self) -> Result<Load, ControlError> {
        match self.receive()? {
            Word::Load(load) => match load.check() {
                Ok(()) => Ok(load),
                Err(error) => {
                    self.refuse(&error);
                    Err(error.into())
                }
            },
            Word::Failed(why) => Err(ControlError::Failed(why)),
            other => Err(ControlError::OtherWord {
                said: other.name(),
                expected: "a load",
            }),
        }
    }

    /// Tells the other side that this one gives up. If it has gone, it knows.
    pub fn refuse(&mut self, why: &impl fmt::Display) {
        let why: String = why.to_string().chars().take(REASON).collect();
        let _ = self.send(&Word::Failed(why));
    }

    pub(super) fn send(&mut self, word: &Word) -> Result<(), ControlError> {
        let mut line = serde_json::to_vec(word).map_err(io::Error::from)?;
        line.push(b'\n');
        Ok(self.stream.write_all(&line)?)
    }

    /// The other side says exactly this.
    pub(super) fn expect(&mut self, word: &Word) -> Result<(), ControlError> {
        match self.receive()? {
            said if said == *word => Ok(()),
            Word::Failed(why) => Err(ControlError::Failed(why)),
            said => Err(ControlError::OtherWord {
                said: said.name(),
                expected: word.name(),
            }),
        }
    }

    fn receive(&mut self) -> Result<Word, ControlError> {
        let word = serde_json::from_slice(&self.line()?);
        match word.map_err(|_| ControlError::NoWord)? {
            // It goes to a terminal.
            Word::Failed(why) => {
                let why = why.chars().take(REASON);
                let why = why.filter(|c| !c.is_control()).collect();
                Ok(Word::Failed(why))
            }
            word => Ok(word),
        }
    }

    /// A line, which has to come within `PATIENCE` as a whole.
    fn line(&mut self) -> Result<Vec<u8>, ControlError> {
        let clock = SystemClock::new();
        let start = clock.now();
        loop {
            if let Some(end) = self.inbox.iter().position(|&byte| byte == b'\n') {
                return Ok(self.inbox.drain(..=end).collect());
            }
            if self.inbox.len() >= LONGEST {
                return Err(ControlError::NoWord);
            }
            let left = PATIENCE.saturating_sub(clock.now().since(start));
            if left.is_zero() {
                return Err(ControlError::Silent);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut part = [0; 1024];
            match self.stream.read(&mut part) {
                Ok(0) => return Err(ControlError::Gone),
                Ok(len) => self.inbox.extend_from_slice(&part[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted || is_late(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the other side says something, at most `wait`. A side that is gone says
    /// something, too: then the next receive fails and says so.
    pub(super) fn has_word(&mut self, wait: Duration) -> bool {
        if !self.inbox.is_empty() {
            return true;
        }
        let wait = wait.max(Duration::from_millis(1));
        let said = self
            .stream
            .set_read_timeout(Some(wait))
            .and_then(|()| self.stream.peek(&mut [0]));
        said.map_or_else(|error| !is_late(&error), |_| true)
    }
}

/// Whether a wait with a bound was too long.
fn is_late(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

fn listen(addr: SocketAddr, at_most: Option<Duration>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(1)?;
    // On Linux this bounds accepting.
    socket.set_read_timeout(at_most)?;
    Ok(socket)
}

fn connect(own: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(own, 0).into())?;
    socket.connect_timeout(&to.into(), CONNECT)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A connection, and its other end.
    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let control = Control::connect(addr.ip(), addr, 0, Duration::ZERO).unwrap();
        (control, listener.accept().unwrap().0)
    }

    #[test]
    fn words_come_one_by_one() {
        let (mut control, peer) = pair();
        let mut far = Control::new(peer, control.peer()).unwrap();
        let load = Load {
            depth: 7,
            ..Load::default()
        };
        control.offer(&load).unwrap();
        control.send(&Word::Ready).unwrap();
        assert_eq!(far.take_load().unwrap(), load);
        assert!(far.has_word(PATIENCE));
        far.expect(&Word::Ready).unwrap();
        assert!(!far.has_word(Duration::ZERO));
        control.send(&Word::End).unwrap();
        let error = far.expect(&Word::NoMore).unwrap_err().to_string();
        assert_eq!(error, "the other side says the end rather than no more");
    }

    #[test]
    fn whatever_else_comes_is_refused() {
        for said in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\"re\n",
            b"\n",
            b"{\"load\":{}}\n",
        ] {
            let (mut control, mut peer) = pair();
            peer.write_all(said).unwrap();
            let error = control.take_load().unwrap_err();
            assert!(matches!(error, ControlError::NoWord), "{error}");
        }
        let (mut control, mut peer) = pair();
        peer.write_all(&vec![b'x'; LONGEST]).unwrap();
        let error = control.take_load().unwrap_err();
        assert!(matches!(error, ControlError::NoWord), "{error}");
        assert!(control.inbox.len() < 2 * LONGEST);

        let (mut control, peer) = pair();
        drop(peer);
        assert!(control.has_word(PATIENCE), "or nobody would look");
        let error = control.take_load().unwrap_err();
        assert!(matches!(error, ControlError::Gone), "{error}");
    }

    #[test]
    fn a_load_that_cannot_be_run_is_refused_with_the_reason() {
        let (mut control, peer) = pair();
        let mut far = Control::new(peer, control.peer()).unwrap();
        let load = Load {
            tasks: 999,
            ..Load::default()
        };
        control.offer(&load).unwrap();
        let error = far.take_load().unwrap_err();
        assert!(matches!(error, ControlError::Load(_)), "{error}");
        let error = control.expect(&Word::Ready).unwrap_err().to_string();
        let expected = "the other side has given up: -t must be from 1 to 256";
        assert_eq!(error, expected);
        far.refuse(&"\u{1b}[2J".repeat(200));
        let error = control.expect(&Word::Ready).unwrap_err().to_string();
        assert!(!error.contains('\u{1b}') && error.len() < 600, "{error:?}");
    }

    #[test]
    fn who_comes_by_and_wants_nothing_is_waited_past() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        let load = Load::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Control::accept(addr, Some(PATIENCE)));
            let connect = || Control::connect(addr.ip(), addr, 1000, Duration::from_millis(5));
            drop(connect().unwrap());
            connect().unwrap().stream.write_all(b"?\n").unwrap();
            let mut control = connect().unwrap();
            control.offer(&load).unwrap();
            assert_eq!(waiting.join().unwrap().unwrap().1, load);
        });
    }

    #[test]
    fn who_waits_for_nobody_gives_up() {
        let addr = "127.0.0.1:0".parse().unwrap();
        let error = Control::accept(addr, Some(Duration::from_millis(10))).unwrap_err();
        assert!(matches!(error, ControlError::Nobody), "{error}");
    }
}
