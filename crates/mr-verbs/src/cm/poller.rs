//! What happens on a connection: frames, ends, and its own end.

use crate::cm::connection::{Connection, Inner, Pending, RECEIVE};
use crate::cm::waker::wait_readable;
use crate::sys::cm::{EventKind, RawEvent};
use crate::sys::{POLL_BATCH, RawCompletion};
use crate::wait::lock;
use crate::{Error, Status};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The receiving end of a connection: there is one, and whoever has it polls.
pub struct Poller {
    inner: Arc<Inner>,
    /// Taken from the HCA and not looked at.
    raw: VecDeque<RawCompletion>,
    /// Not told.
    ended: VecDeque<Done>,
    established: Told,
    over: Told,
    armed: bool,
    /// Whether the connection manager may have something. To ask it is a system call, which a wait
    /// saves that has seen that there is nothing.
    manager: bool,
    waited: bool,
}

/// An end of a work request that was not told.
enum Done {
    Whole(Ended),
    /// Its buffers are still as the HCA has left them; the number is what an atomic operation found.
    Raw(Pending, Status, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    NotYet,
    Due,
    Done,
}

/// Something that happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'p> {
    /// The peer, whose request was accepted, is ready. Told once, before anything else; not told to
    /// the end that dialled.
    Established,
    /// A frame has arrived.
    Frame(Frame<'p>),
    /// A work request has ended.
    Ended(Ended),
    /// The connection is over. Told once; what was posted still ends, in bounded time.
    Over(Over),
}

/// A frame, in the memory that it has arrived in.
#[derive(Clone, Copy)]
pub struct Frame<'p> {
    bytes: &'p [u8],
    header_bytes: usize,
}

/// The end of a work request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// What it was posted with.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// The buffers of an RDMA operation. Those of a read are filled if it succeeded; otherwise what
    /// is in them may be anything. None of them comes back if the HCA could not be kept from one.
    pub local: Vec<Vec<u8>>,
    /// What an atomic operation found, if it succeeded.
    pub value: u64,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Over {
    /// This end has closed it.
    Closed,
    /// The peer has closed it.
    Disconnected,
    /// A work request has failed so. [`Status::Flushed`] alone: the HCA gave it up, most often since
    /// the peer did what it may not do.
    Failed(Status),
    /// The peer, whose request was accepted, never said that it was ready.
    NotEstablished,
    /// The device is gone.
    DeviceGone,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed at this end"),
            Self::Disconnected => f.write_str("closed by the peer"),
            Self::Failed(status) => write!(f, "failed: {status}"),
            Self::NotEstablished => f.write_str("the peer never got ready"),
            Self::DeviceGone => f.write_str("the device is gone"),
        }
    }
}

impl Frame<'_> {
    /// Its header; shorter than headers are if the whole frame is.
    pub fn header(&self) -> &[u8] {
        &self.bytes[..self.header_bytes.min(self.bytes.len())]
    }

    /// What is behind the header.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.header_bytes.min(self.bytes.len())..]
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.bytes.len())
    }
}

impl Ended {
    /// Never posted.
    pub(crate) fn unposted(pending: Pending) -> Self {
        Self::finish(pending, false)
    }

    fn finish(pending: Pending, done: bool) -> Self {
        let (id, local) = match pending {
            Pending::Send { id } | Pending::Atomic { id, .. } => (id, Vec::new()),
            Pending::Rdma { id, local } => (id, local.finish(done)),
        };
        Self {
            id,
            status: Status::Flushed,
            local,
            value: 0,
        }
    }
}

impl Done {
    /// Ended by the HCA, or with its queue pair. To be called with the send side locked.
    fn new(inner: &Inner, pending: Pending, status: Status) -> Self {
        let value = match pending {
            Pending::Atomic { slot, .. } if status == Status::Success => {
                // SAFETY: the operation has ended, and whoever gives the slot to another request
                // needs the lock.
                let bytes = unsafe { inner.memory.outgoing.bytes(slot, 8) };
                let mut value = [0; 8];
                value.copy_from_slice(bytes);
                u64::from_ne_bytes(value)
            }
            _ => 0,
        };
        Self::Raw(pending, status, value)
    }

    /// Frees what the operation had beside its buffers: a system call for each registration.
    fn finish(self) -> Ended {
        match self {
            Self::Whole(ended) => ended,
            Self::Raw(pending, status, value) => Ended {
                status,
                value,
                ..Ended::finish(pending, status == Status::Success)
            },
        }
    }
}

impl Poller {
    /// Both ends of what has been made.
    pub(crate) fn pair(inner: Inner, established: bool) -> (Connection, Self) {
        let inner = Arc::new(inner);
        let connection = Connection {
            inner: Arc::clone(&inner),
        };
        let poller = Self {
            inner,
            raw: VecDeque::with_capacity(POLL_BATCH),
            ended: VecDeque::new(),
            established: if established {
                Told::Done
            } else {
                Told::NotYet
            },
            over: Told::NotYet,
            armed: false,
            manager: true,
            waited: false,
        };
        (connection, poller)
    }

    /// Tells `handle` what has happened, in order, until nothing is left or `max` things are told.
    /// Says how many. Never blocks.
    ///
    /// A frame's slot is free, and not posted, when `handle` has returned:
    /// [`Connection::repost`] posts it again. `handle` may call everything of [`Connection`].
    pub fn poll(&mut self, max: usize, mut handle: impl FnMut(Event<'_>)) -> usize {
        if !std::mem::take(&mut self.waited) {
            self.manager = true;
        }
        let mut told = 0;
        while told < max && self.tell_one(&mut handle) {
            told += 1;
        }
        told
    }

    /// Waits until there is something to poll for, at most `limit`, or until it is woken through
    /// [`Connection::waker`]. Says whether there may be something.
    pub fn wait(&mut self, limit: Duration) -> bool {
        const WAKER: u32 = 1;
        const MANAGER: u32 = 1 << 1;
        const BELL: u32 = 1 << 2;
        self.waited = true;
        if self.is_ready() {
            return true;
        }
        let mut limit = limit;
        if let Some(deadline) = self.drain_deadline() {
            limit = limit.min(deadline.saturating_duration_since(Instant::now()));
        }
        let inner = Arc::clone(&self.inner);
        let fds = [inner.waker.fd(), inner.id.fd(), inner.pair.bell()];
        let mut watched = &fds[..2];
        if !inner.pair.is_gone() {
            if !self.armed {
                if let Err(errno) = inner.pair.arm() {
                    tracing::error!(%errno, "a completion queue cannot be armed");
                    inner.end(Over::Failed(Status::Flushed));
                }
                self.armed = true;
            }
            if self.fetch() {
                return true;
            }
            watched = &fds;
        }
        let readable = wait_readable(watched, limit);
        if readable & WAKER != 0 {
            inner.waker.take();
        }
        self.manager |= readable & MANAGER != 0;
        if readable & BELL != 0 && inner.pair.silence() {
            self.armed = false;
        }
        readable != 0 || self.drain_deadline().is_some_and(|at| at <= Instant::now())
    }

    /// Whether the connection is over, that has been told, and everything has ended and been told.
    pub fn is_drained(&self) -> bool {
        let side = lock(&self.inner.sends);
        self.over == Told::Done
            && self.ended.is_empty()
            && side.dead.is_empty()
            && side.ledger.is_empty()
    }

    /// Ends the connection at once: when this returns the HCA has nothing to do with it any more.
    /// Returns the ends that have not been told.
    ///
    /// # Errors
    ///
    /// The queue pair could not be destroyed: it is leaked, with its memory.
    pub fn close(mut self) -> Result<Vec<Ended>, Error> {
        self.inner.end(Over::Closed);
        // What has completed has ended as it says; of the rest nobody knows.
        while !self.raw.is_empty() || self.fetch() {
            if let Some(raw) = self.raw.pop_front() {
                self.look_at(raw, &mut |_| {});
            }
        }
        self.destroy()?;
        self.collect_dead();
        Ok(self.ended.drain(..).map(Done::finish).collect())
    }

    /// Tells the next thing; `false` if there is none.
    fn tell_one(&mut self, handle: &mut impl FnMut(Event<'_>)) -> bool {
        loop {
            if self.established == Told::Due {
                self.established = Told::Done;
                handle(Event::Established);
                return true;
            }
            if let Some(ended) = self.ended.pop_front() {
                handle(Event::Ended(ended.finish()));
                return true;
            }
            if self.raw.is_empty() {
                // Frames come before the peer's having closed.
                if !self.fetch() && !self.look_at_manager() && !self.settle() {
                    return self.tell_over(handle);
                }
                continue;
            }
            let Some(raw) = self.raw.pop_front() else {
                continue;
            };
            if self.look_at(raw, handle) {
                return true;
            }
        }
    }

    /// Takes completions from the HCA; says whether there were any.
    fn fetch(&mut self) -> bool {
        if self.inner.pair.is_gone() {
            return false;
        }
        let raw = &mut self.raw;
        if let Err(errno) = self.inner.pair.poll(|completion| raw.push_back(completion)) {
            tracing::error!(%errno, "a completion queue cannot be polled");
            self.inner.end(Over::Failed(Status::Flushed));
        }
        !self.raw.is_empty()
    }

    /// Says whether there was something to tell.
    fn look_at(&mut self, raw: RawCompletion, handle: &mut impl FnMut(Event<'_>)) -> bool {
        let status = Status::from_raw(raw.status);
        if status != Status::Success {
            self.inner.end(Over::Failed(status));
        }
        if raw.id & RECEIVE == 0 {
            let (inner, ended) = (&*self.inner, &mut self.ended);
            let mut side = lock(&inner.sends);
            side.ledger.complete(raw.id, status, |pending, status| {
                ended.push_back(Done::new(inner, pending, status));
            });
            return false;
        }
        if status == Status::Success && self.established == Told::NotYet {
            // Whoever sends is ready; its saying so may be lost, or come later.
            self.established = Told::Due;
            self.raw.push_front(raw);
            return false;
        }
        let slot = (raw.id & !RECEIVE) as u32;
        if status == Status::Success {
            let incoming = &self.inner.memory.incoming;
            // SAFETY: the HCA has filled the slot, and it is not posted before it is given back.
            let bytes = unsafe { incoming.bytes(slot, raw.bytes) };
            let header_bytes = self.inner.config.header_bytes as usize;
            handle(Event::Frame(Frame {
                bytes,
                header_bytes,
            }));
        }
        self.inner.give_slot_back(slot);
        status == Status::Success
    }

    /// Asks the connection manager; says whether it had something.
    fn look_at_manager(&mut self) -> bool {
        if !self.manager {
            return false;
        }
        match self.inner.id.event() {
            Ok(Some(event)) => {
                self.take_event(&event);
                true
            }
            Ok(None) => {
                self.manager = false;
                false
            }
            Err(error) => {
                self.manager = false;
                tracing::error!(%error, "the connection manager");
                self.inner.end(Over::DeviceGone);
                false
            }
        }
    }

    fn take_event(&mut self, event: &RawEvent) {
        match event.kind {
            EventKind::Established if self.established == Told::NotYet => {
                self.established = Told::Due;
            }
            EventKind::Disconnected => {
                let first = self.inner.end(Over::Disconnected);
                // The peer expects an answer, also where this end was the first.
                if !first {
                    self.inner.id.disconnect();
                }
            }
            EventKind::ConnectError | EventKind::Unreachable | EventKind::Rejected => {
                self.inner.end(Over::NotEstablished);
            }
            EventKind::DeviceRemoval => {
                self.inner.end(Over::DeviceGone);
            }
            _ => {}
        }
    }

    /// Collects what has ended by itself; says whether there was something.
    fn settle(&mut self) -> bool {
        if self.drain_deadline().is_some_and(|at| at <= Instant::now()) {
            tracing::warn!("the HCA did not end everything in time; the queue pair is destroyed");
            if let Err(error) = self.destroy() {
                tracing::error!(%error, "the ends of its work requests are lost");
                // Not dropped: the HCA may still use their memory.
                let mut side = lock(&self.inner.sends);
                side.ledger.end_all(|pending, _| std::mem::forget(pending));
            }
        }
        self.collect_dead()
    }

    fn collect_dead(&mut self) -> bool {
        let mut side = lock(&self.inner.sends);
        // What was posted before ends before.
        if !side.ledger.is_empty() {
            return false;
        }
        self.ended.extend(side.dead.drain(..).map(Done::Whole));
        !self.ended.is_empty()
    }

    /// Destroys the queue pair, and ends what it had.
    fn destroy(&mut self) -> Result<(), Error> {
        self.inner.destroy_pair()?;
        let (inner, ended) = (&*self.inner, &mut self.ended);
        let mut side = lock(&inner.sends);
        side.ledger.end_all(|pending, status| {
            ended.push_back(Done::new(inner, pending, status));
        });
        Ok(())
    }

    fn tell_over(&mut self, handle: &mut impl FnMut(Event<'_>)) -> bool {
        if self.over == Told::Done {
            return false;
        }
        let Some((over, _)) = self.inner.over() else {
            return false;
        };
        self.over = Told::Done;
        handle(Event::Over(over));
        true
    }

    /// When the HCA's time is over, if something is left to end.
    fn drain_deadline(&self) -> Option<Instant> {
        let (_, since) = self.inner.over()?;
        let left = !lock(&self.inner.sends).ledger.is_empty();
        left.then(|| since + self.inner.config.drain)
    }

    /// Whether a poll would find something that needs no look at the HCA.
    fn is_ready(&self) -> bool {
        !self.raw.is_empty()
            || !self.ended.is_empty()
            || self.established == Told::Due
            || (self.over != Told::Done && self.inner.is_broken())
            || {
                let side = lock(&self.inner.sends);
                side.ledger.is_empty() && !side.dead.is_empty()
            }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("over", &self.inner.over().map(|(over, _)| over))
            .field("drained", &self.is_drained())
            .finish_non_exhaustive()
    }
}
