//! A bound socket.

mod futures;
mod receiving;
mod remote;
mod sending;

pub use receiving::{Incoming, RecvError};
pub use remote::{RdmaFlags, RdmaOp, RefusedOp};
pub use sending::Readiness;

use crate::host::{Host, SocketSignals};
use crate::proto::{Core, LinkId, SockId};
use mr_core::Time;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A socket, bound to an address and a port: one that is not bound does not exist, so nobody can
/// send from it.
///
/// Datagrams arrive once and in order per pair of sockets, whatever happens to links in between, or
/// a [`Notification`](crate::proto::Notification) says which did not.
///
/// All methods may be called from any thread. Dropping the socket closes it: what it had queued is
/// taken back, and the keys of its regions are killed.
pub struct Socket {
    pub(crate) host: Host,
    pub(crate) id: SockId,
    pub(crate) signals: Arc<SocketSignals>,
    addr: SocketAddr,
    options: Mutex<Options>,
    nonblocking: AtomicBool,
    corked: AtomicBool,
    held: Mutex<Held>,
}

/// What a corked socket has not sent yet.
#[derive(Default)]
struct Held {
    links: Vec<LinkId>,
    messages: usize,
}

/// Messages that a corked socket holds back at most.
const MAX_HELD: usize = 64;

#[derive(Clone, Copy, Default)]
struct Options {
    peer: Option<SocketAddr>,
    send_timeout: Option<Duration>,
    receive_timeout: Option<Duration>,
}

impl Socket {
    pub(crate) fn new(
        host: Host,
        id: SockId,
        addr: SocketAddr,
        signals: Arc<SocketSignals>,
    ) -> Self {
        Self {
            host,
            id,
            signals,
            addr,
            options: Mutex::default(),
            nonblocking: AtomicBool::new(false),
            corked: AtomicBool::new(false),
            held: Mutex::default(),
        }
    }

    /// Where it is bound.
    pub const fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The host that it belongs to.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Sets where [`send`](Self::send) sends to. Messages from others still arrive.
    pub fn connect(&self, peer: SocketAddr) {
        self.options().peer = Some(peer);
    }

    /// Where [`send`](Self::send) sends to.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.options().peer
    }

    /// Whether calls return at once rather than wait. Defaults to false, and is always so on a host
    /// that is driven by hand.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// While it is on, messages are held back and leave together: when it is switched off, when the
    /// socket waits for something, or when there are 64. It saves system calls to those who send
    /// several messages in a row. Defaults to false.
    pub fn set_corked(&self, corked: bool) {
        self.corked.store(corked, Ordering::Relaxed);
        if !corked {
            self.send_held();
        }
    }

    /// How long a send waits for room, or for a congested destination. Defaults to `None`: for
    /// ever.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        self.options().send_timeout = timeout;
    }

    /// How long a receive waits. Defaults to `None`: for ever.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) {
        self.options().receive_timeout = timeout;
    }

    /// Changes the bytes that may be queued or unacknowledged. Defaults to the host's setting.
    pub fn set_send_buffer(&self, bytes: usize) {
        let shared = &self.host.shared;
        shared.with(|core| core.set_buffers(self.id, Some(bytes), None));
    }

    /// Changes the bytes above which the port is congested. Defaults to the host's setting.
    pub fn set_receive_buffer(&self, bytes: usize) {
        let shared = &self.host.shared;
        shared.with(|core| core.set_buffers(self.id, None, Some(bytes)));
    }

    /// Closes the socket, as dropping it does. If it has lent memory this waits for the keys to die, at most
    /// the host's [`shutdown_timeout`](crate::proto::Config::shutdown_timeout).
    pub fn close(self) {}

    pub(crate) fn blocks(&self) -> bool {
        let manual = self.host.shared.driving == crate::Driving::Manual;
        !manual && !self.nonblocking.load(Ordering::Relaxed)
    }

    /// Runs a send on the core; what it causes is sent now, or later if the socket is corked.
    pub(crate) fn with_core<T>(&self, send: impl FnOnce(&mut Core) -> T) -> T {
        let shared = &self.host.shared;
        if !self.corked.load(Ordering::Relaxed) {
            return shared.with(send);
        }
        let mut links = Vec::new();
        let result = shared.with_holding(Some(&mut links), send);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for id in links {
            if !held.links.contains(&id) {
                held.links.push(id);
            }
        }
        held.messages += 1;
        if held.messages >= MAX_HELD {
            drop(held);
            self.send_held();
        }
        result
    }

    /// Sends what was held back.
    pub(crate) fn send_held(&self) {
        let mut links = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.messages = 0;
            std::mem::take(&mut held.links)
        };
        // Without the lock: who is woken by this may send in turn.
        self.host.shared.send_held(&mut links);
    }

    fn options(&self) -> MutexGuard<'_, Options> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deadline(&self, timeout: Option<Duration>) -> Option<Time> {
        timeout.map(|timeout| self.host.now() + timeout)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.send_held();
        let shared = &self.host.shared;
        let regions = shared.with(|core| core.close(self.id));
        shared
            .signals
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
        shared.abandon(regions);
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("addr", &self.addr)
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}
