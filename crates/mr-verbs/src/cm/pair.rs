//! The queue pair of a connection, with its completion queue.

use crate::device::report_leak;
use crate::sys::rc::{self, Bell, Piece, Request, Room, Size};
use crate::sys::{self, Cq, PostError, Qp, RawCompletion};
use crate::{Domain, Errno, Error};
use rustix::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

/// A queue pair that can go before its owner does.
#[derive(Debug)]
pub(crate) struct Pair {
    /// `None`: it is gone. Who uses it holds the lock, so it goes only when nobody does.
    qp: RwLock<Option<Qp>>,
    number: u32,
    queue: Queue,
    domain: Arc<Domain>,
}

/// A completion queue with its bell.
#[derive(Debug)]
struct Queue {
    cq: Cq,
    bell: Bell,
}

impl Pair {
    pub(crate) fn new(domain: &Arc<Domain>, size: Size) -> Result<Self, Error> {
        let device = domain.device();
        // In error each request completes, signalled or not.
        let entries = size.sends + size.receives + 1;
        let queue = Queue::new(device.context(), entries.min(device.attr().max_cqe))?;
        // SAFETY: domain and completion queue live as long as the queue pair, which owns them.
        let (qp, number) = unsafe { rc::create_qp(domain.raw(), queue.cq, size) }
            .map_err(|errno| Error::system("creating a queue pair", errno))?;
        domain
            .population()
            .queue_pairs
            .fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            qp: RwLock::new(Some(qp)),
            number,
            queue,
            domain: Arc::clone(domain),
        })
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Does something with the queue pair, unless it is gone.
    pub(crate) fn with<R>(&self, act: impl FnOnce(Qp) -> R) -> Option<R> {
        self.qp
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .map(act)
    }

    /// Whether the queue pair is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.with(|_| ()).is_none()
    }

    /// Posts sends. `None`: the queue pair is gone, and nothing was posted.
    ///
    /// # Safety
    ///
    /// The memory of the pieces must stay until the requests have completed or the queue pair is
    /// gone.
    pub(crate) unsafe fn post_sends(
        &self,
        room: &mut Room,
        requests: &[Request],
        pieces: &[Piece],
    ) -> Option<Result<(), PostError>> {
        // SAFETY: the queue pair exists; the rest is the caller's promise.
        self.with(|qp| unsafe { rc::post_sends(qp, room, requests, pieces) })
    }

    /// Posts receives. `None`: as above.
    ///
    /// # Safety
    ///
    /// As above.
    pub(crate) unsafe fn post_receives(
        &self,
        room: &mut Room,
        slots: impl Iterator<Item = (u64, Piece)>,
    ) -> Option<Result<usize, PostError>> {
        // SAFETY: as above.
        self.with(|qp| unsafe { rc::post_receives(qp, room, slots) })
    }

    /// Puts the queue pair into error: whatever is posted is flushed.
    pub(crate) fn break_off(&self) {
        // SAFETY: the queue pair exists while the lock is held.
        let broken = self.with(|qp| unsafe { sys::qp_to_error(qp) });
        if let Some(Err(errno)) = broken {
            tracing::warn!(%errno, "a queue pair could not be put into error");
        }
    }

    /// Frees the queue pair: on `Ok` the HCA does nothing more with what was posted on it. Freed
    /// already, that is so.
    pub(crate) fn destroy(&self) -> Result<(), Errno> {
        let mut qp = self.qp.write().unwrap_or_else(PoisonError::into_inner);
        let Some(raw) = *qp else {
            return Ok(());
        };
        // SAFETY: it exists, and nobody else uses it while the lock is held, nor afterwards.
        unsafe { sys::destroy_qp(raw) }?;
        *qp = None;
        let population = self.domain.population();
        population.queue_pairs.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes what has completed, up to a batch; says how many.
    pub(crate) fn poll(&self, take: impl FnMut(RawCompletion)) -> Result<usize, Errno> {
        // SAFETY: the queue exists while `self` does.
        unsafe { sys::poll_cq(self.queue.cq, take) }
    }

    /// Has the bell ring at the next completion; what has completed before must be polled for after
    /// this.
    pub(crate) fn arm(&self) -> Result<(), Errno> {
        // SAFETY: as above.
        unsafe { rc::arm(self.queue.cq) }
    }

    /// Takes a ring of the bell away: there is one each time that it was armed. Says whether there
    /// was.
    pub(crate) fn silence(&self) -> bool {
        // SAFETY: the bell exists while `self` does.
        unsafe { rc::silence(self.queue.bell) }
    }

    /// Readable when the bell has rung.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        // SAFETY: as above.
        unsafe { rc::bell_fd(self.queue.bell) }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Err(errno) = self.destroy() {
            report_leak("queue pair", errno);
        }
    }
}

impl Queue {
    fn new(context: sys::Context, entries: u32) -> Result<Self, Error> {
        // SAFETY: the device is open as long as the pair lives, which holds on to its domain.
        let bell = unsafe { rc::create_bell(context) }
            .map_err(|errno| Error::system("creating a completion channel", errno))?;
        // SAFETY: as above.
        match unsafe { rc::create_cq(context, entries, bell) } {
            Ok(cq) => Ok(Self { cq, bell }),
            Err(errno) => {
                // SAFETY: made above, and not used again.
                let _ = unsafe { rc::destroy_bell(bell) };
                Err(Error::system("creating a completion queue", errno))
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the queue pair went before, or its destruction failed, and then this does.
        if let Err(errno) = unsafe { sys::destroy_cq(self.cq) } {
            return report_leak("completion queue", errno);
        }
        // SAFETY: its queue is gone.
        if let Err(errno) = unsafe { rc::destroy_bell(self.bell) } {
            report_leak("completion channel", errno);
        }
    }
}
