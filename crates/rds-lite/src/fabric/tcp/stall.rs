//! Not reading: how a peer is held back that sends nothing again.
//!
//! The kernel's RDS over TCP takes for delivered what its TCP was told has arrived. A message for which
//! there is no buffer is therefore left where it is, and what is behind it in the TCP of both sides, until
//! there is one: the sender's TCP finds no room, and it waits. Buffers are given back by applications
//! without a word, so whoever reads looks again after a pause; where an application's thread reads, it
//! looks as soon as that thread has nothing to take.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::Socket;
use std::io;
use std::time::Duration;

/// Between two looks for a buffer: far less than an application takes that has stopped reading, and two
/// system calls each, so at most a thousand a second.
pub(super) const PAUSE: Duration = Duration::from_millis(2);

/// Whether nothing more can come than what has arrived: the peer has ended its half of the connection, or
/// this side has, or it has broken. There is nobody left to hold back then.
pub(super) fn has_ended(socket: &Socket) -> io::Result<bool> {
    look(socket, Duration::ZERO)
}

/// Waits for a [`PAUSE`], or until the connection ends.
pub(super) fn pause(socket: &Socket) -> io::Result<()> {
    look(socket, PAUSE).map(drop)
}

fn look(socket: &Socket, patience: Duration) -> io::Result<bool> {
    // Of a break poll tells unasked.
    let mut end = [PollFd::new(socket, PollFlags::RDHUP)];
    let limit = Timespec::try_from(patience).ok();
    match poll(&mut end, limit.as_ref()) {
        Ok(_) => Ok(!end[0].revents().is_empty()),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    /// With bytes that nobody has read.
    fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        peer.write_all(&[0; 1000]).unwrap();
        (socket.into(), peer)
    }

    fn ends(socket: &Socket) -> bool {
        (0..10_000).any(|_| look(socket, PAUSE).unwrap())
    }

    #[test]
    fn bytes_that_nobody_reads_are_no_end() {
        let (socket, _peer) = pair();
        pause(&socket).unwrap();
        assert!(!has_ended(&socket).unwrap());
    }

    #[test]
    fn the_end_is_seen_behind_bytes_that_nobody_reads() {
        let (socket, peer) = pair();
        peer.shutdown(Shutdown::Write).unwrap();
        assert!(ends(&socket), "the peer has ended it");
        let (socket, peer) = pair();
        super::super::reset(peer.into());
        assert!(ends(&socket), "the peer has reset it");
        let (socket, _peer) = pair();
        socket.shutdown(Shutdown::Read).unwrap();
        assert!(has_ended(&socket).unwrap(), "this side has ended it");
    }
}
