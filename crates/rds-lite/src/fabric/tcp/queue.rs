//! How much of what was sent the peer's TCP has not acknowledged.

#![allow(unsafe_code, reason = "no safe library asks for it")]

use socket2::Socket;
use std::os::fd::AsRawFd;

/// Bytes that this end has taken and the other has not acknowledged, also of a connection that has ended;
/// `None` if the system does not tell. Its end counts as a byte.
pub(super) fn unacknowledged(socket: &Socket) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: on a socket this request writes one integer to where the pointer shows.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    let bytes = (result == 0).then_some(bytes)?;
    u64::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn what_is_acknowledged_is_known_after_the_end() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&[0; 1000]).unwrap();
        peer.read_exact(&mut [0; 1000]).unwrap();
        let socket = Socket::from(socket);
        while unacknowledged(&socket).unwrap() > 0 {
            std::thread::yield_now();
        }
        // More than fits: the rest stays here.
        socket.set_nonblocking(true).unwrap();
        let mut taken = 0;
        while let Ok(sent) = socket.send(&[0; 1 << 16]) {
            taken += sent as u64;
        }
        let queued = unacknowledged(&socket).unwrap();
        assert!(0 < queued && queued < taken, "{queued} of {taken}");
        // A reset: the peer has not read what it has.
        drop(peer);
        socket.set_nonblocking(false).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        assert!((&socket).read(&mut [0]).is_err());
        assert!(unacknowledged(&socket).unwrap() >= queued.min(1));
    }
}
