//! One connection: the sending half.

use super::custody::{Custody, Loan};
use super::reader::{Mode, Reader};
use super::{reset, start_thread};
use crate::fabric::{Bell, Link, Sink};
use crate::proto::{Frame, LinkId, Transmission};
use crate::wire::HEADER_LEN;
use socket2::Socket;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Frames per system call: two slices each.
const FRAMES_AT_ONCE: usize = 64;

/// Linux's flags of `send`: return rather than wait; and no signal if the peer is gone.
const MSG_DONTWAIT: i32 = 0x40;
const MSG_NOSIGNAL: i32 = 0x4000;

/// A connection.
pub(super) struct TcpLink {
    me: Weak<Self>,
    socket: Socket,
    sink: Weak<dyn Sink>,
    sending: Mutex<Sending>,
    /// There is something for the writer, or the link is closed.
    changed: Condvar,
    closed: AtomicBool,
    custody: Custody,
    id: OnceLock<LinkId>,
}

#[derive(Default)]
struct Sending {
    frames: VecDeque<Frame>,
    /// Bytes of the first frame that are gone.
    gone: usize,
    /// The kernel's buffer is full, and the writer is at it.
    full: bool,
    has_writer: bool,
}

impl TcpLink {
    pub(super) fn new(socket: Socket, sink: Weak<dyn Sink>) -> io::Result<Arc<Self>> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(None)?;
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            socket,
            sink,
            sending: Mutex::default(),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
            custody: Custody::default(),
            id: OnceLock::new(),
        }))
    }

    /// Reads until the link ends, in this thread.
    pub(super) fn run(self: &Arc<Self>, id: LinkId) {
        // A link is run once, so nobody else has set it.
        let _ = self.id.set(id);
        if let Err(error) = self.read(id) {
            tracing::debug!(?id, %error, "connection ended");
        }
        if !self.closed.load(Ordering::SeqCst)
            && let Some(host) = self.sink.upgrade()
        {
            host.lost(id);
        }
        self.end();
    }

    fn read(&self, id: LinkId) -> io::Result<()> {
        let mut reader = Box::new(Reader::new());
        loop {
            reader.read(&self.socket, Mode::Wait, id, &self.sink)?;
            match self.custody.lend(reader) {
                Some(back) => reader = back,
                None => return Ok(()),
            }
        }
    }

    pub(super) fn run_in_thread(self: &Arc<Self>, id: LinkId) {
        let link = Arc::clone(self);
        if let Err(error) = start_thread("rds-read", move || link.run(id)) {
            tracing::warn!(%error, "no thread to read with");
            self.end();
            if let Some(host) = self.sink.upgrade() {
                host.lost(id);
            }
        }
    }

    /// Ends a connection that nobody wants, with a reset.
    pub(super) fn reset(&self) {
        if let Ok(socket) = self.socket.try_clone() {
            reset(socket);
        }
        self.end();
    }

    fn end(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes whoever reads or writes. It fails if the peer was faster; that is as good.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.custody.end();
        // A writer that is about to sleep holds the lock from its last look until it sleeps.
        drop(self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads for an application until its patience is over.
    fn read_for(
        &self,
        mut reader: Box<Reader>,
        bell: &Bell,
        patience: &dyn Fn() -> Option<Duration>,
    ) -> io::Result<()> {
        let id = *self.id.get().ok_or(io::ErrorKind::NotConnected)?;
        reader.spin.begin();
        while let Some(most) = patience() {
            if reader.read(&self.socket, Mode::Look, id, &self.sink)? {
                reader.spin.found();
            } else if !reader.spin.again() {
                bell.sleep(Some(self.socket.as_fd()), most, || patience().is_none())?;
            }
        }
        self.custody.give_back(reader);
        Ok(())
    }

    /// Sends as much as possible. Says whether that was all.
    fn push(&self, sending: &mut Sending, flags: i32) -> bool {
        while !sending.frames.is_empty() && !self.closed.load(Ordering::SeqCst) {
            match self.push_some(sending, flags) {
                Ok(sent) => sending.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::debug!(%error, "send failed");
                    // The reader sees the end, and says so.
                    let _ = self.socket.shutdown(Shutdown::Both);
                    sending.frames.clear();
                }
            }
        }
        true
    }

    fn push_some(&self, sending: &Sending, flags: i32) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); 2 * FRAMES_AT_ONCE];
        let mut used = 0;
        let mut skip = sending.gone;
        for frame in sending.frames.iter().take(FRAMES_AT_ONCE) {
            for part in [&frame.header[..], &frame.payload[..]] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() {
                    slices[used] = IoSlice::new(&part[skipped..]);
                    used += 1;
                }
            }
        }
        self.socket
            .send_vectored_with_flags(&slices[..used], flags | MSG_NOSIGNAL)
    }

    /// Sends what the kernel's buffer had no room for, as it gets room.
    fn write(self: &Arc<Self>) {
        let mut sending = self.lock();
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            if !sending.full {
                let waited = self.changed.wait(sending);
                sending = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            self.push(&mut sending, 0);
            sending.full = false;
            drop(sending);
            if let (Some(host), Some(&id)) = (self.sink.upgrade(), self.id.get()) {
                host.writable(id);
            }
            sending = self.lock();
        }
    }

    fn wake_writer(&self, sending: &mut Sending) {
        sending.full = true;
        if !sending.has_writer {
            let Some(me) = self.me.upgrade() else {
                return;
            };
            match start_thread("rds-write", move || me.write()) {
                Ok(()) => sending.has_writer = true,
                Err(error) => {
                    tracing::warn!(%error, "no thread to write with");
                    let _ = self.socket.shutdown(Shutdown::Both);
                }
            }
        }
        self.changed.notify_all();
    }
}

impl Sending {
    fn advance(&mut self, sent: usize) {
        self.gone += sent;
        while let Some(first) = self.frames.front() {
            let len = HEADER_LEN + first.payload.len();
            if self.gone < len {
                return;
            }
            self.gone -= len;
            self.frames.pop_front();
        }
        self.gone = 0;
    }
}

impl Link for TcpLink {
    fn transmit(&self, what: &mut Vec<Transmission>) -> bool {
        let mut sending = self.lock();
        for transmission in what.drain(..) {
            match transmission {
                Transmission::Frame(frame) => sending.frames.push_back(frame),
                // The core refuses these on a fabric without RDMA.
                Transmission::Rdma(work) => tracing::error!(?work, "RDMA over TCP"),
            }
        }
        if sending.full {
            return false;
        }
        if self.push(&mut sending, MSG_DONTWAIT) {
            return true;
        }
        self.wake_writer(&mut sending);
        false
    }

    fn close(&self) {
        self.end();
    }

    fn serve(&self, bell: &Arc<Bell>, patience: &dyn Fn() -> Option<Duration>) -> bool {
        while let Some(most) = patience() {
            let waited = match self.custody.borrow(bell) {
                Loan::Reader(reader) => self.read_for(reader, bell, patience),
                Loan::Later => bell.sleep(None, most, || patience().is_none()),
                Loan::Over => return false,
            };
            if let Err(error) = waited {
                tracing::debug!(%error, "connection ended");
                // The connection's thread says so to the host.
                self.custody.end();
                return false;
            }
        }
        true
    }

    fn recall(&self) {
        self.custody.recall();
    }
}
