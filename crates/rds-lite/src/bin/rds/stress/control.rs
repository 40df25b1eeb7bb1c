//! The TCP connection over which two sides agree on a load.

use super::Options;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How long the other side has for a word.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest word.
const LONGEST: u64 = 64 << 10;

/// One JSON value per line.
pub(super) struct Control {
    stream: BufReader<TcpStream>,
    peer: IpAddr,
}

impl Control {
    /// Waits for the side that begins.
    pub(super) fn accept(addr: SocketAddr) -> Result<Self> {
        let listener =
            TcpListener::bind(addr).with_context(|| format!("cannot listen at {addr}"))?;
        let (stream, peer) = listener.accept()?;
        Self::new(stream, peer.ip())
    }

    /// Connects from the address that the sockets will have: the other side takes it from here.
    pub(super) fn connect(own: IpAddr, to: SocketAddr, options: &Options) -> Result<Self> {
        let mut left = options.connect_retries;
        loop {
            match connect(own, to) {
                Ok(stream) => return Self::new(stream, to.ip()),
                Err(_) if left > 0 => {
                    left -= 1;
                    std::thread::sleep(Duration::from_secs(1));
                }
                Err(error) => {
                    let hint = format!(
                        "nobody waits at {to}: start `rds stress -r {}` there",
                        to.ip()
                    );
                    return Err(error).context(hint);
                }
            }
        }
    }

    fn new(stream: TcpStream, peer: IpAddr) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
            peer,
        })
    }

    pub(super) const fn peer(&self) -> IpAddr {
        self.peer
    }

    pub(super) fn send(&mut self, word: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(word)?;
        line.push('\n');
        Ok(self.stream.get_mut().write_all(line.as_bytes())?)
    }

    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let mut limited = Read::by_ref(&mut self.stream).take(LONGEST);
        let read = limited.read_line(&mut line);
        let read = read.context("the other side does not answer")?;
        ensure!(read > 0, "the other side has gone");
        serde_json::from_str(&line).context("the other side is no `rds stress` of this version")
    }

    /// The other side says exactly this.
    pub(super) fn expect(&mut self, word: &str) -> Result<()> {
        let said: String = self.receive()?;
        ensure!(
            said == word,
            "the other side says {said:?} rather than {word:?}"
        );
        Ok(())
    }

    /// Waits until the other side says something, at most `wait`. A side that is gone says
    /// something, too.
    pub(super) fn has_word(&mut self, wait: Duration) -> bool {
        let stream = self.stream.get_ref();
        let wait = wait.max(Duration::from_millis(1));
        let said = stream
            .set_read_timeout(Some(wait))
            .and_then(|()| stream.peek(&mut [0]));
        // If it fails now, the next receive fails and says so.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        said.is_ok()
    }
}

fn connect(own: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(own, 0).into())?;
    socket.connect_timeout(&to.into(), Duration::from_secs(5))?;
    Ok(socket.into())
}
