//! Waiting for several things at once, one of which is another thread.

use crate::{Errno, Error};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Wakes whoever waits with it. Clones wake the same one.
///
/// It is sticky: what is woken before it waits does not wait.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that nobody waits with yet.
    ///
    /// # Errors
    ///
    /// The process has no file descriptor left.
    pub fn new() -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags)
            .map_err(|error| Error::system("making an eventfd", Errno(error.raw_os_error())))?;
        Ok(Self(Arc::new(fd)))
    }

    /// Ends the wait that is under way, or else the next one. One system call.
    pub fn wake(&self) {
        // It fails only when it has been woken 2^64 - 2 times, and then it is awake.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Whether it was woken since it was asked last.
    pub(crate) fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The end of a wait of `limit` that begins now.
pub(crate) fn deadline(limit: Duration) -> Instant {
    /// As good as for ever, and far from what a clock can count.
    const LONGEST: Duration = Duration::from_secs(365 * 86_400);
    Instant::now() + limit.min(LONGEST)
}

/// Waits until some of `fds` are readable, and says which: a bit for each, from the lowest. None: the
/// time is over.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], limit: Duration) -> u32 {
    let started = Instant::now();
    let mut polled: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    loop {
        let left = limit.saturating_sub(started.elapsed());
        // A wait of that many seconds is one without end.
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {
                let ready = |fd: &PollFd<'_>| u32::from(!fd.revents().is_empty());
                return polled.iter().rev().fold(0, |all, fd| all << 1 | ready(fd));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                // Without poll there is no waiting; whoever called looks for itself.
                tracing::error!(%error, "cannot wait for events");
                return u32::MAX;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_woken_before_does_not_wait() {
        let waker = Waker::new().unwrap();
        assert!(!waker.take());
        assert_eq!(wait_readable(&[waker.fd()], Duration::ZERO), 0);
        waker.clone().wake();
        waker.wake();
        let other = Waker::new().unwrap();
        let fds = [other.fd(), waker.fd()];
        assert_eq!(wait_readable(&fds, Duration::MAX), 0b10);
        assert!(waker.take());
        assert!(!waker.take(), "taken once");
    }

    #[test]
    fn another_thread_ends_a_wait() {
        let waker = Waker::new().unwrap();
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        assert_eq!(wait_readable(&[waker.fd()], Duration::from_secs(60)), 1);
        thread.join().unwrap();
    }
}
