//! One connection: the sending half.

use super::custody::{Custody, Loan};
use super::reader::{Found, Mode, Reader};
use super::{queue, reset, stall, start_thread};
use crate::fabric::{Bell, Link, Sink};
use crate::proto::{Frame, LinkId, Transmission};
use crate::wire::HEADER_LEN;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use socket2::Socket;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Frames per system call: two slices each.
const FRAMES_AT_ONCE: usize = 64;

/// How long a replaced connection has to hand over what has arrived on it: a second in all.
const FINISH_GLANCES: u32 = 1000;
const FINISH_PAUSE: Duration = Duration::from_millis(1);

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
    /// Bytes that the kernel has taken.
    taken: AtomicU64,
    custody: Custody,
}

#[derive(Default)]
struct Sending {
    frames: VecDeque<Frame>,
    /// Bytes of the first frame that are gone.
    gone: usize,
    /// The kernel's buffer is full, and the writer is at it.
    full: bool,
    has_writer: bool,
    /// What the host calls the link, once it has said so.
    id: Option<LinkId>,
    /// There was room again before the host could be told.
    untold: bool,
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
            taken: AtomicU64::new(0),
            custody: Custody::default(),
        }))
    }

    /// Reads until the link ends, in this thread.
    pub(super) fn run(self: &Arc<Self>, id: LinkId) {
        self.set_id(id);
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

    /// The host sends from the moment that it has the link, so there may already have been news for it.
    fn set_id(&self, id: LinkId) {
        let untold = {
            let mut sending = self.lock();
            sending.id = Some(id);
            std::mem::take(&mut sending.untold)
        };
        if untold && let Some(host) = self.sink.upgrade() {
            host.writable(id);
        }
    }

    fn read(&self, id: LinkId) -> io::Result<()> {
        let mut reader = Box::new(Reader::new());
        loop {
            if reader.read(&self.socket, Mode::Wait, id, &self.sink)? == Found::Stalled {
                if self.closed.load(Ordering::SeqCst) {
                    return Ok(());
                }
                stall::pause(&self.socket)?;
            }
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
        let id = self.lock().id.ok_or(io::ErrorKind::NotConnected)?;
        reader.spin.begin();
        while let Some(most) = patience() {
            match reader.read(&self.socket, Mode::Look, id, &self.sink)? {
                Found::Something => reader.spin.found(),
                Found::Nothing => {
                    if !reader.spin.again() {
                        bell.sleep(Some(self.socket.as_fd()), most, || patience().is_none())?;
                    }
                }
                Found::Stalled => {
                    if self.closed.load(Ordering::SeqCst) {
                        return Err(io::ErrorKind::NotConnected.into());
                    }
                    // Not on the socket: it has something to be read, most likely.
                    bell.sleep(None, most.min(stall::PAUSE), || patience().is_none())?;
                }
            }
        }
        self.custody.give_back(reader);
        Ok(())
    }

    /// Sends as much as the kernel takes now. Says whether that was all.
    fn push(&self, sending: &mut Sending) -> bool {
        while !sending.frames.is_empty() && !self.closed.load(Ordering::SeqCst) {
            match self.push_some(sending) {
                Ok(sent) => {
                    self.taken.fetch_add(sent as u64, Ordering::SeqCst);
                    sending.advance(sent);
                }
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

    fn push_some(&self, sending: &Sending) -> io::Result<usize> {
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
            .send_vectored_with_flags(&slices[..used], MSG_DONTWAIT | MSG_NOSIGNAL)
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
            if !self.push(&mut sending) {
                // Not with the lock: who reads needs it now and then, and of two peers that wait for each other
                // to read neither would.
                drop(sending);
                if let Err(error) = await_room(&self.socket) {
                    tracing::warn!(%error, "a full connection cannot be waited for");
                    let _ = self.socket.shutdown(Shutdown::Both);
                }
                sending = self.lock();
                continue;
            }
            sending.full = false;
            let id = sending.id;
            sending.untold = id.is_none();
            drop(sending);
            if let (Some(host), Some(id)) = (self.sink.upgrade(), id) {
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

/// Waits, bounded, until all that has arrived on a connection is with the host, and ends it. The peer has
/// replaced it, and knows from its TCP what has arrived: it will not send that again.
pub(super) fn finish(link: &Weak<TcpLink>) {
    let open = |link: &Weak<TcpLink>| {
        link.upgrade()
            .filter(|link| !link.closed.load(Ordering::SeqCst))
    };
    if let Some(link) = open(link) {
        // The reader takes what there is, and then sees the end.
        let _ = link.socket.shutdown(Shutdown::Read);
    }
    for _ in 0..FINISH_GLANCES {
        if open(link).is_none() {
            return;
        }
        std::thread::sleep(FINISH_PAUSE);
    }
}

/// Waits until the kernel takes more to send, or the connection ends.
fn await_room(socket: &Socket) -> io::Result<()> {
    match poll(&mut [PollFd::new(socket, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
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
        if self.push(&mut sending) {
            return true;
        }
        self.wake_writer(&mut sending);
        false
    }

    fn close(&self) {
        self.end();
    }

    fn finish(&self) {
        finish(&self.me);
    }

    fn arrived(&self) -> Option<u64> {
        // In this order: what the kernel takes in between counts as not arrived.
        let taken = self.taken.load(Ordering::SeqCst);
        let queued = queue::unacknowledged(&self.socket)?;
        Some(taken.saturating_sub(queued))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Arrival;
    use crate::proto::{Buf, Path, RdmaDone};
    use bytes::Bytes;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, Sender, channel};

    const LONG: Duration = Duration::from_secs(20);

    struct Told(Mutex<Sender<LinkId>>);

    impl Sink for Told {
        fn asked(&self, _: Path, _: &[u8]) -> Result<(LinkId, Vec<u8>), Vec<u8>> {
            Err(Vec::new())
        }
        fn wants(&self, _: LinkId) -> bool {
            true
        }
        fn opened(&self, _: LinkId, _: &[u8], _: Arc<dyn Link>) -> bool {
            false
        }
        fn rejected(&self, _: LinkId, _: &[u8]) {}
        fn dial_wanted(&self, _: Path) {}
        fn frames(&self, id: LinkId, _: &mut Vec<Arrival>) {
            self.0.lock().unwrap().send(id).unwrap();
        }
        fn buffer(&self, _: LinkId, _: &[u8; HEADER_LEN]) -> Option<Buf> {
            None
        }
        fn buffer_beyond(&self, _: &[u8; HEADER_LEN]) -> Option<Buf> {
            None
        }
        fn stalled(&self, _: LinkId) {}
        fn ack_ended(&self, _: LinkId) {}
        fn writable(&self, id: LinkId) {
            self.0.lock().unwrap().send(id).unwrap();
        }
        fn rdma_done(&self, _: RdmaDone) {}
        fn lost(&self, _: LinkId) {}
    }

    const ID: LinkId = LinkId {
        conn: 3,
        incarnation: 1,
    };

    /// A link, its peer, its sink, and what that is told.
    fn connected() -> (Arc<TcpLink>, TcpStream, Arc<dyn Sink>, Receiver<LinkId>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let (told, tells) = channel();
        let sink: Arc<dyn Sink> = Arc::new(Told(Mutex::new(told)));
        let link = TcpLink::new(socket.into(), Arc::downgrade(&sink)).unwrap();
        (link, peer, sink, tells)
    }

    fn frame() -> Transmission {
        Transmission::Frame(Frame {
            header: [0; HEADER_LEN],
            payload: Bytes::from_static(&[0; 1 << 20]),
            fence: false,
            ack: false,
        })
    }

    /// Sends until the link takes no more. Says how many bytes that were.
    fn fill(link: &TcpLink) -> usize {
        let mut sent = 0;
        loop {
            sent += HEADER_LEN + (1 << 20);
            if !link.transmit(&mut vec![frame()]) {
                return sent;
            }
        }
    }

    /// A host that reconnects with much to send fills the connection before it has told the link its
    /// name. Room that comes in between must not be lost: nothing would be sent ever again.
    #[test]
    fn room_that_comes_before_the_name_is_told_with_it() {
        let (link, mut peer, _sink, tells) = connected();
        let sent = fill(&link);
        peer.set_read_timeout(Some(LONG)).unwrap();
        peer.read_exact(&mut vec![0; sent]).unwrap();
        while link.lock().full {
            std::thread::yield_now();
        }

        link.run_in_thread(ID);
        assert_eq!(tells.recv_timeout(LONG), Ok(ID));
        link.close();
    }

    /// Two hosts that both write more than a connection holds, and read only what a writer lets them, would wait for
    /// each other.
    #[test]
    fn a_full_connection_is_read_from_all_the_same() {
        let (link, mut peer, _sink, tells) = connected();
        fill(&link);
        // More than the buffers of both sides ever grow to.
        link.transmit(&mut (0..64).map(|_| frame()).collect());
        link.run_in_thread(ID);
        peer.write_all(&[0; HEADER_LEN]).unwrap();
        assert_eq!(tells.recv_timeout(LONG), Ok(ID));
        assert!(link.lock().full);
        link.close();
    }
}
