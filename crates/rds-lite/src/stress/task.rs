//! One task: a socket that asks all tasks of the other side, and answers them.

use super::carrier::{Arrived, Carrier, Operation, Refusal, Want};
use super::counts::{Counts, count};
use super::error::Fault;
use super::header::{HEADER, Header, Kind, Rdma};
use super::load::Load;
use super::side::Signals;
use super::slots::Peer;
use bytes::{Bytes, BytesMut};
use mr_core::{Clock, SystemClock, Time};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// RDMA begins behind this request: the first ones make the connection.
const RDMA_FROM: u32 = 10;

/// One task.
pub(super) struct Task<C> {
    carrier: C,
    peers: Vec<Peer>,
    by_addr: HashMap<SocketAddr, usize>,
    load: Load,
    asks: bool,
    counts: Arc<Counts>,
    clock: SystemClock,
    /// What is behind the headers, of all tasks.
    filler: Bytes,
    /// Answers that found no room: by the peer, what it asked for.
    unanswered: Vec<(usize, Header)>,
}

impl<C: Carrier> Task<C> {
    pub(super) fn new(
        carrier: C,
        peers: &[SocketAddr],
        load: &Load,
        asks: bool,
        counts: Arc<Counts>,
        filler: Bytes,
    ) -> Self {
        Self {
            carrier,
            peers: peers
                .iter()
                .map(|&addr| Peer::new(addr, load.depth))
                .collect(),
            by_addr: peers.iter().copied().zip(0..).collect(),
            load: load.clone(),
            asks,
            counts,
            clock: SystemClock::new(),
            filler,
            unanswered: Vec::new(),
        }
    }

    /// Answers until the end, and asks between the signals for that.
    pub(super) fn run(mut self, signals: &Signals) {
        let mut quiet = false;
        while !signals.end.load(Ordering::SeqCst) {
            let no_more = signals.no_more.load(Ordering::SeqCst);
            if no_more && !quiet {
                quiet = true;
                signals.quiet.fetch_add(1, Ordering::SeqCst);
            }
            let asks = signals.begin.load(Ordering::SeqCst) && !no_more;
            if let Err(fault) = self.round(asks) {
                return self.counts.fail(&fault);
            }
        }
        if let Err(fault) = self.finish() {
            self.counts.fail(&fault);
        }
    }

    fn round(&mut self, asks: bool) -> Result<(), Fault> {
        for (peer, request) in std::mem::take(&mut self.unanswered) {
            self.answer(peer, request)?;
        }
        if self.asks && asks {
            for peer in 0..self.peers.len() {
                self.ask(peer)?;
            }
        }
        let mut next = self.carrier.next(true)?;
        while let Some(arrived) = next {
            match arrived {
                Arrived::Message {
                    from,
                    payload,
                    cookie,
                } => self.take(from, &payload, cookie)?,
                Arrived::Uncongested(to) => {
                    if let Some(&peer) = self.by_addr.get(&to) {
                        self.peers[peer].congested = false;
                    }
                }
            }
            next = self.carrier.next(false)?;
        }
        Ok(())
    }

    /// Fills the depth of a peer with requests.
    fn ask(&mut self, peer: usize) -> Result<(), Fault> {
        while !self.peers[peer].congested
            && let Some(index) = self.peers[peer].free_slot()
        {
            let seq = self.peers[peer].next_seq;
            let rdma = self.choose(seq);
            let header = Header {
                seq,
                index: index as u16,
                kind: Kind::Request,
                rdma,
                pattern: pattern(seq, index),
                cookie: 0,
                rdma_bytes: self.load.rdma_bytes as u32,
            };
            let (to, mut lent) = (self.peers[peer].addr, self.peers[peer].slots[index].lent);
            let start = self.clock.now();
            let sent = if rdma == Rdma::None {
                let message = compose(&header, self.load.req_bytes, &self.filler);
                self.carrier.send(message, to)
            } else {
                let pattern = header.pattern;
                let want = lent.map_or(Want::New { rdma, pattern }, Want::Again);
                let (len, filler) = (self.load.req_bytes, &self.filler);
                let asked = self.carrier.ask(to, want, |cookie| {
                    compose(&Header { cookie, ..header }, len, filler)
                });
                asked.map(|cookie| lent = Some(cookie))
            };
            if !self.was_sent(sent, peer, start, self.load.req_bytes)? {
                return Ok(());
            }
            self.counts.asked();
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

    /// Whether a message was sent; if not, it can be later.
    fn was_sent(
        &mut self,
        sent: Result<(), Refusal>,
        peer: usize,
        start: Time,
        bytes: usize,
    ) -> Result<bool, Fault> {
        match sent {
            Ok(()) => {
                let took = self.clock.now().since(start);
                count(&self.counts.send_nanos, took.as_nanos() as u64);
                count(&self.counts.sent, 1);
                count(&self.counts.bytes, bytes as u64);
                Ok(true)
            }
            Err(Refusal::NotNow) => Ok(false),
            Err(Refusal::Congested) => {
                self.peers[peer].congested = true;
                Ok(false)
            }
            Err(Refusal::Failed(fault)) => Err(fault),
        }
    }

    fn take(&mut self, from: SocketAddr, bytes: &[u8], beside: Option<u64>) -> Result<(), Fault> {
        let peer = *self.by_addr.get(&from).ok_or(Fault::Stranger(from))?;
        let header = Header::decode(bytes).ok_or(Fault::NoHeader(from))?;
        let (seq, len) = (header.seq, bytes.len());
        let agreed = match header.kind {
            Kind::Request => self.load.req_bytes,
            Kind::Answer => self.load.ack_bytes,
        };
        if len != agreed {
            return Err(Fault::Length {
                seq,
                from,
                len,
                agreed,
            });
        }
        if self.load.verify && bytes[HEADER..] != self.filler[..len - HEADER] {
            return Err(Fault::Changed { seq, from });
        }
        count(&self.counts.received, 1);
        count(&self.counts.bytes, len as u64);
        match header.kind {
            Kind::Request => {
                let cookie = beside.unwrap_or(header.cookie);
                self.asked(peer, Header { cookie, ..header })
            }
            Kind::Answer => self.answered(peer, &header),
        }
    }

    /// A request: what it says is held to what was agreed.
    fn asked(&mut self, peer: usize, request: Header) -> Result<(), Fault> {
        let (seq, from) = (request.seq, self.peers[peer].addr);
        let expected = &mut self.peers[peer].expected;
        if seq != *expected {
            let expected = *expected;
            return Err(Fault::Order {
                seq,
                from,
                expected,
            });
        }
        *expected = expected.wrapping_add(1);
        let waiting = &mut self.peers[peer].unanswered;
        *waiting += 1;
        let what = if *waiting > self.load.depth {
            "more are under way"
        } else if request.rdma != Rdma::None && request.rdma_bytes as usize != self.load.rdma_bytes
        {
            "its memory has another length"
        } else if request.rdma != Rdma::None && self.load.rdma_bytes == 0 {
            "no RDMA was"
        } else {
            return self.answer(peer, request);
        };
        Err(Fault::Beyond { seq, from, what })
    }

    /// Answers a request, with what it asks for of RDMA ahead of the answer.
    fn answer(&mut self, peer: usize, request: Header) -> Result<(), Fault> {
        let to = self.peers[peer].addr;
        let header = Header {
            kind: Kind::Answer,
            ..request
        };
        let answer = compose(&header, self.load.ack_bytes, &self.filler);
        let start = self.clock.now();
        let operation = Operation {
            cookie: request.cookie,
            write: request.rdma == Rdma::Write,
            pattern: request.pattern,
        };
        let sent = match request.rdma {
            Rdma::None => self.carrier.send(answer, to),
            _ => self.carrier.operate(to, operation, answer),
        };
        if !self.was_sent(sent, peer, start, self.load.ack_bytes)? {
            self.unanswered.push((peer, request));
            return Ok(());
        }
        self.peers[peer].unanswered -= 1;
        let len = u64::from(request.rdma_bytes);
        match request.rdma {
            Rdma::Read => count(&self.counts.rdma_read, len),
            Rdma::Write => count(&self.counts.rdma_written, len),
            Rdma::None => {}
        }
        Ok(())
    }

    fn answered(&mut self, peer: usize, header: &Header) -> Result<(), Fault> {
        let (seq, from) = (header.seq, self.peers[peer].addr);
        let slot = self.peers[peer].slots.get_mut(usize::from(header.index));
        let slot = slot.filter(|slot| slot.busy && slot.seq == seq);
        let slot = slot.ok_or(Fault::Unasked { seq, from })?;
        slot.busy = false;
        let rtt = self.clock.now().since(slot.sent);
        let lent = slot.lent.filter(|_| !self.load.cache_mrs);
        if lent.is_some() {
            slot.lent = None;
        }
        self.counts.answered();
        count(&self.counts.rtt_nanos, rtt.as_nanos() as u64);
        count(&self.counts.answers, 1);
        lent.map_or(Ok(()), |cookie| self.carrier.settle(cookie))
    }

    /// Everything that was lent comes back, and is verified.
    fn finish(&mut self) -> Result<(), Fault> {
        let slots = self.peers.iter_mut().flat_map(|peer| &mut peer.slots);
        let cached = slots.filter_map(|slot| slot.lent.take().filter(|_| !slot.busy));
        for cookie in cached {
            self.carrier.settle(cookie)?;
        }
        self.carrier.finish()
    }
}

fn compose(header: &Header, len: usize, filler: &Bytes) -> Bytes {
    let mut message = BytesMut::with_capacity(len);
    message.extend_from_slice(&header.encode());
    message.extend_from_slice(&filler[..len - HEADER]);
    message.freeze()
}

fn pattern(seq: u32, index: usize) -> u64 {
    u64::from(seq) << 32 | (index as u64 & 0xffff) << 8 | 0xa5
}

#[cfg(test)]
mod tests;
