//! One task: a socket that asks all tasks of the other side, and answers them.

use super::header::{HEADER, Header, Kind, Rdma, fill, filler, is_filled};
use super::options::Load;
use super::slots::Peer;
use bytes::{Bytes, BytesMut};
use mr_core::{Access, Clock, SystemClock};
use rds_lite::proto::{Notification, Received, SendError, Status};
use rds_lite::rdma::{FreeOutcome, MrError, MrFlags};
use rds_lite::{Cookie, Incoming, RdmaFlags, RdmaOp, RecvError, Socket};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// RDMA begins behind this request: the first ones make the connection.
const RDMA_FROM: u32 = 10;

/// How long a task sleeps at most.
const NAP: Duration = Duration::from_millis(10);

macro_rules! counts {
    ($($name:ident),+) => {
        /// What the tasks of one side have done.
        #[derive(Default)]
        pub(super) struct Counts {
            $($name: AtomicU64,)+
            outstanding: AtomicU64,
            failure: Mutex<Option<String>>,
        }

        /// The same, summed up at one time.
        #[derive(Clone, Default)]
        pub(super) struct Sums {
            $(pub(super) $name: u64,)+
        }

        impl Sums {
            pub(super) fn add(&mut self, counts: &Counts) {
                $(self.$name += counts.$name.load(Ordering::Relaxed);)+
            }

            pub(super) fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name - before.$name,)+ }
            }
        }
    };
}

counts!(
    sent,
    received,
    bytes,
    rdma_read,
    rdma_written,
    send_nanos,
    rtt_nanos,
    answers
);

impl Counts {
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::SeqCst)
    }

    /// What went wrong first.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn fail(&self, failure: String) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// One task.
pub(super) struct Task {
    socket: Socket,
    peers: Vec<Peer>,
    by_addr: HashMap<SocketAddr, usize>,
    load: Load,
    sends: bool,
    counts: Arc<Counts>,
    clock: SystemClock,
    filler: Vec<u8>,
    /// Answers that found no room.
    unanswered: Vec<(SocketAddr, Header)>,
    /// Memory to be had.
    spare: Vec<Vec<u8>>,
    /// What memory must hold when it comes back; `None` if anything may be in there.
    lent: HashMap<Cookie, Option<u64>>,
    /// What a read must bring.
    reading: HashMap<u64, u64>,
    tokens: u64,
}

impl Task {
    pub(super) fn new(
        socket: Socket,
        peers: &[SocketAddr],
        load: &Load,
        sends: bool,
        counts: Arc<Counts>,
    ) -> Self {
        socket.set_receive_timeout(Some(NAP));
        // What one round asks and answers leaves together, before the task sleeps.
        socket.set_corked(true);
        let by_addr = peers.iter().copied().zip(0..).collect();
        Self {
            socket,
            peers: peers
                .iter()
                .map(|&addr| Peer::new(addr, load.depth))
                .collect(),
            by_addr,
            load: load.clone(),
            sends,
            counts,
            clock: SystemClock::new(),
            filler: filler(load.req_bytes.max(load.ack_bytes) - HEADER),
            unanswered: Vec::new(),
            spare: Vec::new(),
            lent: HashMap::new(),
            reading: HashMap::new(),
            tokens: 0,
        }
    }

    /// Asks and answers until `end`; asks nothing new after `no_more`.
    pub(super) fn run(mut self, no_more: &AtomicBool, end: &AtomicBool) {
        while !end.load(Ordering::SeqCst) {
            if let Err(failure) = self.round(no_more.load(Ordering::SeqCst)) {
                return self.counts.fail(failure);
            }
        }
        self.socket.set_corked(false);
        if let Err(failure) = self.free_cached() {
            self.counts.fail(failure);
        }
    }

    fn round(&mut self, no_more: bool) -> Result<(), String> {
        for (to, header) in std::mem::take(&mut self.unanswered) {
            self.answer(to, header)?;
        }
        if self.sends && !no_more {
            for peer in 0..self.peers.len() {
                self.ask(peer)?;
            }
        }
        let first = match self.socket.recv() {
            Ok(first) => first,
            Err(RecvError::TimedOut) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let mut next = Some(first);
        while let Some(incoming) = next {
            match incoming {
                Incoming::Message(message) => self.take(&message)?,
                Incoming::Notification(note) => self.note(note)?,
                _ => {}
            }
            next = self.socket.try_recv().ok();
        }
        Ok(())
    }

    /// Fills the depth of a peer with requests.
    fn ask(&mut self, peer: usize) -> Result<(), String> {
        while !self.peers[peer].congested
            && let Some(index) = self.peers[peer].free_slot()
        {
            let seq = self.peers[peer].next_seq;
            let rdma = self.choose(seq);
            let Some(lent) = self.lend(peer, index, seq, rdma)? else {
                return Ok(());
            };
            let header = Header {
                seq,
                index: index as u16,
                kind: Kind::Request,
                rdma,
                pattern: pattern(seq, index),
                cookie: lent.map_or(0, Cookie::bits),
                rdma_bytes: self.load.rdma_bytes as u32,
            };
            let to = self.peers[peer].addr;
            let message = self.compose(&header, self.load.req_bytes);
            let start = self.clock.now();
            self.socket.set_nonblocking(true);
            let sent = self.socket.send_bytes(message, to);
            self.socket.set_nonblocking(false);
            if !self.was_sent(sent, peer, self.load.req_bytes)? {
                if let Some(cookie) = lent.filter(|_| !self.load.cache_mrs) {
                    self.free(cookie)?;
                }
                return Ok(());
            }
            let now = self.clock.now();
            count(&self.counts.send_nanos, now.since(start).as_nanos() as u64);
            self.counts.outstanding.fetch_add(1, Ordering::SeqCst);
            let peer = &mut self.peers[peer];
            peer.next_seq = seq.wrapping_add(1);
            let slot = &mut peer.slots[index];
            (slot.seq, slot.sent, slot.busy) = (seq, start, true);
            (slot.lent, slot.rdma) = (lent, rdma);
        }
        Ok(())
    }

    fn choose(&self, seq: u32) -> Rdma {
        match self.load.rdma_mode {
            _ if self.load.rdma_bytes == 0 || seq <= RDMA_FROM => Rdma::None,
            1 => Rdma::Read,
            2 => Rdma::Write,
            _ if seq.is_multiple_of(2) => Rdma::Read,
            _ => Rdma::Write,
        }
    }

    /// Leases memory for a request. `None` if there is none at this moment.
    fn lend(
        &mut self,
        peer: usize,
        index: usize,
        seq: u32,
        rdma: Rdma,
    ) -> Result<Option<Option<Cookie>>, String> {
        if rdma == Rdma::None {
            return Ok(Some(self.peers[peer].slots[index].lent));
        }
        if let Some(cached) = self.peers[peer].slots[index]
            .lent
            .filter(|_| self.load.cache_mrs)
        {
            // What it holds is known only when it comes back; until then others write there.
            self.lent.insert(cached, None);
            return Ok(Some(Some(cached)));
        }
        self.reclaim()?;
        let len = self.load.rdma_bytes;
        let mut buffer = self.spare.pop().unwrap_or_else(|| vec![0; len]);
        fill(
            &mut buffer,
            if rdma == Rdma::Read {
                pattern(seq, index)
            } else {
                0
            },
        );
        let mut flags = MrFlags::empty();
        flags.set(MrFlags::USE_ONCE, self.load.use_once);
        flags.set(MrFlags::INVALIDATE, self.load.invalidate);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        match self.socket.get_mr(buffer, access, flags) {
            Ok(cookie) => {
                let expected = (!self.load.cache_mrs).then(|| pattern(seq, index));
                self.lent.insert(cookie, expected);
                Ok(Some(Some(cookie)))
            }
            Err(MrError::Refused {
                temporary: true,
                buffer,
                ..
            }) => {
                self.spare.extend(buffer);
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether a message was sent; if not, it can be later.
    fn was_sent(
        &mut self,
        sent: Result<u64, SendError>,
        peer: usize,
        bytes: usize,
    ) -> Result<bool, String> {
        match sent {
            Ok(_) => {
                count(&self.counts.sent, 1);
                count(&self.counts.bytes, bytes as u64);
                Ok(true)
            }
            Err(SendError::WouldBlock) => Ok(false),
            Err(SendError::Congested(_)) => {
                self.peers[peer].congested = true;
                Ok(false)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn compose(&self, header: &Header, len: usize) -> Bytes {
        let mut message = BytesMut::zeroed(HEADER);
        header.encode(&mut message);
        message.extend_from_slice(&self.filler[..len - HEADER]);
        message.freeze()
    }

    fn take(&mut self, message: &Received) -> Result<(), String> {
        let bytes = &message.payload;
        let Some(&peer) = self.by_addr.get(&message.from) else {
            return Err(format!(
                "a message from {}, which has no part in this",
                message.from
            ));
        };
        let header = Header::decode(bytes).ok_or("a message without a header")?;
        if self.load.verify && bytes[HEADER..] != self.filler[..bytes.len() - HEADER] {
            return Err(format!(
                "message {} of {} was changed",
                header.seq, message.from
            ));
        }
        count(&self.counts.received, 1);
        count(&self.counts.bytes, bytes.len() as u64);
        match header.kind {
            Kind::Request => {
                let expected = &mut self.peers[peer].expected;
                if header.seq != *expected {
                    let (seq, from) = (header.seq, message.from);
                    return Err(format!("request {seq} of {from} rather than {expected}"));
                }
                *expected = expected.wrapping_add(1);
                self.answer(message.from, header)
            }
            Kind::Answer => self.answered(peer, &header),
        }
    }

    /// Answers a request, with what it asks for of RDMA ahead of the answer.
    fn answer(&mut self, to: SocketAddr, request: Header) -> Result<(), String> {
        let Some(&peer) = self.by_addr.get(&to) else {
            return Ok(());
        };
        let header = Header {
            kind: Kind::Answer,
            ..request
        };
        let message = self.compose(&header, self.load.ack_bytes);
        let len = request.rdma_bytes as usize;
        let start = self.clock.now();
        self.socket.set_nonblocking(true);
        let sent = if request.rdma == Rdma::None {
            self.socket.send_bytes(message, to)
        } else {
            self.tokens += 1;
            let mut flags = RdmaFlags::NOTIFY;
            flags.set(RdmaFlags::FENCE, self.load.fence);
            let cookie = Cookie::from_bits(request.cookie);
            let op = RdmaOp::new(cookie)
                .flags(flags)
                .token(self.tokens)
                .message(message);
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.resize(len, 0);
            if request.rdma == Rdma::Write {
                fill(&mut buffer, request.pattern);
                self.socket
                    .rdma_write(to, op, buffer)
                    .map_err(SendError::from)
            } else {
                self.reading.insert(self.tokens, request.pattern);
                self.socket
                    .rdma_read(to, op, buffer)
                    .map_err(SendError::from)
            }
        };
        self.socket.set_nonblocking(false);
        if self.was_sent(sent, peer, self.load.ack_bytes)? {
            let took = self.clock.now().since(start);
            count(&self.counts.send_nanos, took.as_nanos() as u64);
            match request.rdma {
                Rdma::Read => count(&self.counts.rdma_read, len as u64),
                Rdma::Write => count(&self.counts.rdma_written, len as u64),
                Rdma::None => {}
            }
        } else {
            self.unanswered.push((to, request));
        }
        Ok(())
    }

    fn answered(&mut self, peer: usize, header: &Header) -> Result<(), String> {
        let from = self.peers[peer].addr;
        let slot = self.peers[peer].slots.get_mut(usize::from(header.index));
        let slot = slot.filter(|slot| slot.busy && slot.seq == header.seq);
        let Some(slot) = slot else {
            return Err(format!("an answer of {from} to nothing: {}", header.seq));
        };
        slot.busy = false;
        let (lent, rdma, sent) = (slot.lent, slot.rdma, slot.sent);
        if !self.load.cache_mrs {
            slot.lent = None;
        }
        self.counts.outstanding.fetch_sub(1, Ordering::SeqCst);
        let rtt = self.clock.now().since(sent);
        count(&self.counts.rtt_nanos, rtt.as_nanos() as u64);
        count(&self.counts.answers, 1);
        match lent {
            Some(cookie) if rdma != Rdma::None && !self.load.use_once && !self.load.cache_mrs => {
                self.free(cookie)
            }
            _ => Ok(()),
        }
    }

    fn free(&mut self, cookie: Cookie) -> Result<(), String> {
        match self.socket.free_mr(cookie, self.load.invalidate) {
            Ok(FreeOutcome::Dead(buffer)) => self.came_back(cookie, buffer),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn reclaim(&mut self) -> Result<(), String> {
        while let Some((cookie, buffer)) = self.socket.reclaim() {
            self.came_back(cookie, buffer)?;
        }
        Ok(())
    }

    /// Memory is back: whether read or written, it holds the pattern of its request.
    fn came_back(&mut self, cookie: Cookie, buffer: Vec<u8>) -> Result<(), String> {
        if let Some(Some(pattern)) = self.lent.remove(&cookie)
            && self.load.verify
            && !is_filled(&buffer, pattern)
        {
            return Err(format!(
                "memory behind {cookie:?} holds something else than was written"
            ));
        }
        self.spare.push(buffer);
        Ok(())
    }

    fn note(&mut self, note: Notification) -> Result<(), String> {
        match note {
            Notification::Rdma {
                token,
                status,
                buffers,
            } => {
                let buffer = buffers.into_first();
                if status != Status::Success {
                    return Err(format!("RDMA operation {token} ended with {status:?}"));
                }
                if let Some(pattern) = self.reading.remove(&token)
                    && self.load.verify
                    && !self.load.cache_mrs
                    && !is_filled(&buffer, pattern)
                {
                    return Err(format!("RDMA read {token} brought something else"));
                }
                self.spare.push(buffer);
            }
            Notification::Uncongested(addr) => {
                if let Some(&peer) = self.by_addr.get(&addr) {
                    self.peers[peer].congested = false;
                }
            }
            Notification::PeerRestarted(peer) => return Err(format!("{peer} has begun anew")),
            Notification::SendFailed { to, reason, .. } => {
                return Err(format!("a message to {to} was lost: {reason:?}"));
            }
            _ => {}
        }
        Ok(())
    }

    fn free_cached(&mut self) -> Result<(), String> {
        let cached: Vec<Cookie> = self
            .peers
            .iter()
            .flat_map(|peer| peer.slots.iter().filter_map(|slot| slot.lent))
            .filter(|_| self.load.cache_mrs)
            .collect();
        for cookie in cached {
            self.free(cookie)?;
        }
        if self.load.rdma_bytes > 0 {
            // Everything that was lent comes back, and is verified.
            self.socket.flush_mrs().map_err(|error| error.to_string())?;
            self.reclaim()?;
        }
        Ok(())
    }
}

fn pattern(seq: u32, index: usize) -> u64 {
    u64::from(seq) << 32 | (index as u64 & 0xffff) << 8 | 0xa5
}
