//! Everything that one host knows.

use crate::proto::connection::Connection;
pub use crate::proto::connection::{Greeting, LinkKind};
use crate::proto::slots::Slots;
use crate::proto::socket::{OpRecord, SocketState};
use crate::proto::{
    BufPool, Config, ConfigError, Counters, Event, Notification, Path, Received, SockId,
};
use crate::rdma::{Cookie, Region};
use crate::wire::CongestionMap;
use mr_core::Time;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The protocol state of one host.
///
/// Calls never block. Each may leave [`Event`]s, to be fetched with [`take_events`](Self::take_events).
#[derive(Debug)]
pub struct Core {
    pub(crate) config: Config,
    pub(crate) kind: LinkKind,
    pub(crate) buffers: Arc<BufPool>,
    pub(crate) sockets: Slots<SocketState>,
    pub(crate) ports: HashMap<SocketAddr, SockId>,
    /// Addresses of this host: all that a socket was ever bound to.
    pub(crate) locals: BTreeSet<IpAddr>,
    pub(crate) local_maps: HashMap<IpAddr, CongestionMap>,
    pub(crate) conns: Vec<Connection>,
    pub(crate) paths: HashMap<Path, u32>,
    pub(crate) events: Vec<Event>,
    pub(crate) ops: HashMap<u64, OpRecord>,
    pub(crate) next_op: u64,
    pub(crate) next_id: u64,
    pub(crate) out_bytes: usize,
    /// Sockets that were refused for want of the host's budget.
    pub(crate) starved: BTreeSet<SockId>,
    pub(crate) counters: Counters,
    /// Who this host is to the peers that it meets from now on.
    pub(crate) generation: u32,
    pub(crate) random: ChaCha8Rng,
    /// Messages that come now are left to the next host.
    pub(crate) hushed: bool,
    pub(crate) closed: bool,
    /// The latest time that the driver has told.
    pub(crate) now: Time,
    /// A deadline set since the driver asked.
    armed: Option<Time>,
}

/// Why a socket could not be bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another socket has this address.
    #[error("{0} is in use by another socket of this host")]
    InUse(SocketAddr),
    /// The address is no concrete unicast address, or the port is the probe port.
    #[error("{0} cannot be bound: give a concrete address of this host, and a port other than 1")]
    Invalid(SocketAddr),
    /// The fabric does not reach this address.
    #[error("{0} is not an address of this host on this fabric: {1}")]
    NotLocal(IpAddr, String),
    /// There are too many sockets, or no port is free.
    #[error("{0} sockets are bound, and no more are allowed: raise max_sockets")]
    TooMany(usize),
    /// The host is shut down.
    #[error("the host is shut down")]
    Closed,
}

impl Core {
    /// A host without sockets.
    ///
    /// # Errors
    ///
    /// A setting cannot hold.
    pub fn new(config: Config, kind: LinkKind) -> Result<Self, ConfigError> {
        config.check()?;
        let mut random = match config.seed {
            Some(seed) => ChaCha8Rng::seed_from_u64(seed),
            None => ChaCha8Rng::from_os_rng(),
        };
        Ok(Self {
            buffers: BufPool::new(config.receive_budget),
            config,
            kind,
            sockets: Slots::new(),
            ports: HashMap::new(),
            locals: BTreeSet::new(),
            local_maps: HashMap::new(),
            conns: Vec::new(),
            paths: HashMap::new(),
            events: Vec::new(),
            ops: HashMap::new(),
            next_op: 1,
            next_id: 1,
            out_bytes: 0,
            starved: BTreeSet::new(),
            counters: Counters::default(),
            generation: random.next_u32() | 1,
            random,
            hushed: false,
            closed: false,
            now: Time::ZERO,
            armed: None,
        })
    }

    /// Where buffers for received messages come from.
    pub fn buffers(&self) -> &Arc<BufPool> {
        &self.buffers
    }

    /// Binds a socket. Port 0 stands for any port that is free.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn bind(&mut self, addr: SocketAddr) -> Result<SockId, BindError> {
        if self.closed {
            return Err(BindError::Closed);
        }
        let ip = addr.ip();
        if ip.is_unspecified() || ip.is_multicast() || addr.port() == crate::wire::PROBE_PORT {
            return Err(BindError::Invalid(addr));
        }
        if self.sockets.len() >= self.config.max_sockets {
            return Err(BindError::TooMany(self.sockets.len()));
        }
        let addr = self.pick_port(addr)?;
        let (send, receive) = (self.config.send_buffer, self.config.receive_buffer);
        let id = self.sockets.insert(SocketState::new(addr, send, receive));
        self.ports.insert(addr, id);
        self.locals.insert(ip);
        Ok(id)
    }

    fn pick_port(&mut self, mut addr: SocketAddr) -> Result<SocketAddr, BindError> {
        if addr.port() != 0 {
            let taken = self.ports.contains_key(&addr);
            return if taken {
                Err(BindError::InUse(addr))
            } else {
                Ok(addr)
            };
        }
        let first = self.random.next_u32();
        for step in 0..1 << 16 {
            addr.set_port(first.wrapping_add(step) as u16);
            if addr.port() > 1 && !self.ports.contains_key(&addr) {
                return Ok(addr);
            }
        }
        Err(BindError::TooMany(self.sockets.len()))
    }

    /// The address of a socket.
    pub fn address(&self, sock: SockId) -> Option<SocketAddr> {
        self.sockets.get(sock).map(|state| state.addr)
    }

    /// Changes the buffer sizes of a socket.
    pub fn set_buffers(&mut self, sock: SockId, send: Option<usize>, receive: Option<usize>) {
        if let Some(state) = self.sockets.get_mut(sock) {
            state.send_buffer = send.unwrap_or(state.send_buffer).max(1);
            state.receive_buffer = receive.unwrap_or(state.receive_buffer).max(1);
        }
        self.update_congestion(sock);
    }

    /// Closes a socket: what it had queued is taken back, and its regions are given to the caller
    /// to be released.
    pub fn close(&mut self, sock: SockId) -> Vec<(Cookie, Box<dyn crate::rdma::Leased>)> {
        self.cancel(sock, None);
        let Some(mut state) = self.sockets.remove(sock) else {
            return Vec::new();
        };
        self.ports.remove(&state.addr);
        self.starved.remove(&sock);
        for conn in &mut self.conns {
            conn.waiters.retain(|&(waiter, _)| waiter != sock);
        }
        self.out_bytes = self.out_bytes.saturating_sub(state.out_bytes);
        self.set_local_bit(state.addr, false);
        let regions = state.regions.drain();
        regions
            .map(|region| (region.cookie, region.lease))
            .collect()
    }

    /// The next notification of a socket.
    pub fn next_note(&mut self, sock: SockId) -> Option<Notification> {
        let state = self.sockets.get_mut(sock)?;
        let note = state.notes.pop_front();
        if note.is_some() && state.notes.is_empty() {
            self.events.push(Event::Writable(sock));
        }
        note
    }

    /// The next message of a socket.
    pub fn receive(&mut self, sock: SockId) -> Option<Received> {
        let state = self.sockets.get_mut(sock)?;
        let message = state.pop()?;
        self.counters.recv_delivered += 1;
        self.counters.recv_bytes_freed_fromsock += message.payload.len() as u64;
        self.update_congestion(sock);
        Some(message)
    }

    /// Whether a socket has something to be received; `None` if it is closed.
    pub fn is_readable(&self, sock: SockId) -> Option<bool> {
        Some(self.sockets.get(sock)?.is_readable())
    }

    /// Whether a socket is there and its host is not shut down.
    pub fn is_open(&self, sock: SockId) -> bool {
        !self.closed && self.sockets.get(sock).is_some()
    }

    /// Messages of a socket that are queued or unacknowledged.
    pub fn unsent(&self, sock: SockId) -> usize {
        self.sockets.get(sock).map_or(0, |state| state.out_messages)
    }

    /// Gives a region to a socket. `Err` gives it back: the socket or the host is closed.
    pub fn add_region(&mut self, sock: SockId, region: Region) -> Result<(), Region> {
        match self.sockets.get_mut(sock) {
            Some(state) if !self.closed => {
                state.regions.insert(region);
                Ok(())
            }
            _ => Err(region),
        }
    }

    /// Takes a region from a socket.
    pub fn take_region(&mut self, sock: SockId, cookie: Cookie) -> Option<Region> {
        self.sockets.get_mut(sock)?.regions.take(cookie)
    }

    /// Says that the key of an [`Event::Invalidate`] is dead.
    pub fn key_dead(&mut self, sock: SockId, cookie: Cookie) {
        if let Some(state) = self.sockets.get_mut(sock) {
            state.note_death(cookie);
            if state.is_readable() {
                self.events.push(Event::Readable(sock));
            }
        }
    }

    /// A thread that had something to send found another sending.
    pub(crate) fn note_contention(&mut self) {
        self.counters.send_lock_contention += 1;
    }

    /// What is to be done.
    pub fn take_events(&mut self, into: &mut Vec<Event>) {
        into.append(&mut self.events);
    }

    /// Whether anything is to be done.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// When [`tick`](Self::tick) is to be called next.
    pub fn deadline(&self) -> Option<Time> {
        self.conns.iter().filter_map(Connection::deadline).min()
    }

    /// The earliest deadline set since the last call: whether a driver that sleeps has to look
    /// again.
    pub fn take_armed(&mut self) -> Option<Time> {
        self.armed.take()
    }

    pub(crate) fn arm(&mut self, at: Time) {
        self.armed = Some(self.armed.map_or(at, |armed| armed.min(at)));
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Gives a socket a notification, and wakes it. Reports of RDMA operations bring buffers back and
    /// are bounded by the operations admitted; of the others the oldest goes when there are too
    /// many.
    pub(crate) fn notify(&mut self, sock: SockId, note: Notification) {
        let most = self.config.max_queued;
        let Some(state) = self.sockets.get_mut(sock) else {
            return;
        };
        let rdma = |note: &Notification| matches!(note, Notification::Rdma { .. });
        if !rdma(&note) && state.notes.len() >= most {
            self.counters.lite_notes_dropped += 1;
            match state.notes.iter().position(|note| !rdma(note)) {
                Some(oldest) => drop(state.notes.remove(oldest)),
                None => return,
            }
        }
        state.notes.push_back(note);
        self.events.push(Event::Readable(sock));
    }

    /// Gives a socket a notification unless the same one waits already.
    pub(crate) fn notify_once(&mut self, sock: SockId, note: Notification) {
        let known = self.sockets.get(sock);
        if known.is_some_and(|state| !state.notes.contains(&note)) {
            self.notify(sock, note);
        }
    }
}
