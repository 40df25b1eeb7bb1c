//! What wakes a thread that waits for a descriptor and for something else at once.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Wakes the one thread that sleeps on a descriptor, when something happens that the descriptor does
/// not tell.
#[derive(Debug)]
pub struct Bell {
    event: OwnedFd,
    /// Somebody is about to sleep, or sleeps. Nobody else has to be woken, so that ringing costs
    /// nothing while the thread is awake.
    asleep: AtomicBool,
}

impl Bell {
    /// A bell that has not rung.
    ///
    /// # Errors
    ///
    /// There are no more descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            asleep: AtomicBool::new(false),
        })
    }

    /// Wakes the sleeper, if there is one. What it waits for must have happened before.
    pub fn ring(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            // It fails only if the bell has rung already and nobody has heard it yet.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until `source` can be read or is at its end, the bell rings, or `patience` is over; not at
    /// all if `awake` says so. May wake for no reason. One thread at a time.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn sleep(
        &self,
        source: Option<BorrowedFd<'_>>,
        patience: Duration,
        awake: impl Fn() -> bool,
    ) -> io::Result<()> {
        self.asleep.store(true, Ordering::SeqCst);
        // Whoever rings from now on sees a sleeper; what happened before is seen here.
        let slept = if awake() {
            Ok(())
        } else {
            self.sleep_on(source, patience)
        };
        self.asleep.store(false, Ordering::SeqCst);
        slept
    }

    fn sleep_on(&self, source: Option<BorrowedFd<'_>>, patience: Duration) -> io::Result<()> {
        let bell = PollFd::new(&self.event, PollFlags::IN);
        let source = source.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
        let mut both = [bell.clone(), source.unwrap_or(bell)];
        // A patience that the kernel cannot count is for ever.
        let limit = Timespec::try_from(patience).ok();
        match poll(&mut both, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !both[0].revents().is_empty() {
            // Non-blocking: the next sleep begins with a bell that has not rung.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicU32;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn whatever_has_happened_before_the_bell_rang_is_seen() {
        const TIMES: u32 = 2000;
        let bell = Bell::new().unwrap();
        let (silent, _peer) = UnixStream::pair().unwrap();
        let (asked, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=TIMES {
                    asked.store(round, Ordering::SeqCst);
                    bell.ring();
                    while seen.load(Ordering::SeqCst) < round {
                        std::thread::yield_now();
                    }
                }
            });
            for round in 1..=TIMES {
                let there = || asked.load(Ordering::SeqCst) >= round;
                while !there() {
                    bell.sleep(Some(silent.as_fd()), LONG, there).unwrap();
                }
                seen.store(round, Ordering::SeqCst);
            }
        });
    }

    #[test]
    fn a_source_that_ends_wakes_as_one_that_has_bytes() {
        let bell = Bell::new().unwrap();
        let (source, peer) = UnixStream::pair().unwrap();
        drop(peer);
        bell.sleep(Some(source.as_fd()), LONG, || false).unwrap();
    }
}
