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
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Takes everything, and brings what a test has put into it.
    #[derive(Default)]
    struct Script {
        brings: VecDeque<(SocketAddr, Vec<u8>)>,
        /// Nothing can be sent.
        full: bool,
        sent: Vec<Header>,
    }

    impl Carrier for Script {
        type Payload = Vec<u8>;

        fn send(&mut self, message: Bytes, _: SocketAddr) -> Result<(), Refusal> {
            if self.full {
                return Err(Refusal::NotNow);
            }
            self.sent.extend(Header::decode(&message));
            Ok(())
        }

        fn ask(
            &mut self,
            to: SocketAddr,
            _: Want,
            compose: impl FnOnce(u64) -> Bytes,
        ) -> Result<u64, Refusal> {
            self.send(compose(7), to).map(|()| 7)
        }

        fn settle(&mut self, _: u64) -> Result<(), Fault> {
            Ok(())
        }

        fn operate(&mut self, to: SocketAddr, _: Operation, answer: Bytes) -> Result<(), Refusal> {
            self.send(answer, to)
        }

        fn next(&mut self, _: bool) -> Result<Option<Arrived<Vec<u8>>>, Fault> {
            let came = self.brings.pop_front();
            Ok(came.map(|(from, payload)| Arrived::Message {
                from,
                payload,
                cookie: None,
            }))
        }

        fn finish(&mut self) -> Result<(), Fault> {
            Ok(())
        }
    }

    const LOAD: Load = Load {
        ack_bytes: 63,
        req_bytes: 100,
        one_way: false,
        depth: 2,
        tasks: 1,
        time: None,
        rdma_bytes: 64,
        rdma_vector: 1,
        rdma_mode: 0,
        verify: true,
        use_once: false,
        fence: true,
        invalidate: false,
        cache_mrs: false,
    };

    fn peer() -> SocketAddr {
        ([10, 0, 0, 2], 4001).into()
    }

    fn task(load: &Load) -> Task<Script> {
        let filler = super::super::pattern::filler(load.req_bytes - HEADER).into();
        let counts = Arc::default();
        Task::new(Script::default(), &[peer()], load, false, counts, filler)
    }

    fn request(seq: u32) -> Header {
        Header {
            seq,
            index: 0,
            kind: Kind::Request,
            rdma: Rdma::None,
            pattern: 1,
            cookie: 7,
            rdma_bytes: 64,
        }
    }

    /// What a task says of these messages.
    fn told(load: &Load, full: bool, messages: &[(SocketAddr, Bytes)]) -> String {
        let mut task = task(load);
        task.carrier.full = full;
        let messages = messages.iter();
        task.carrier.brings = messages
            .map(|(from, bytes)| (*from, bytes.to_vec()))
            .collect();
        match task.round(false) {
            Ok(()) => format!("{} answers", task.carrier.sent.len()),
            Err(fault) => fault.to_string(),
        }
    }

    #[test]
    fn a_peer_that_does_not_keep_to_the_load_ends_it() {
        let filler = super::super::pattern::filler(1 << 20).into();
        let message = |header: Header, len| (peer(), compose(&header, len, &filler));
        let fine = || message(request(1), 100);
        let wide = Load {
            rdma_bytes: 0,
            ..LOAD
        };
        let read = Header {
            rdma: Rdma::Read,
            ..request(1)
        };
        let long = Header {
            rdma_bytes: u32::MAX,
            ..read
        };
        let answer = Header {
            kind: Kind::Answer,
            ..request(1)
        };
        let stranger = ([10, 0, 0, 3], 4001).into();
        let mut damaged = fine().1.to_vec();
        damaged[99] ^= 1;
        for (load, messages, says) in [
            (&LOAD, vec![fine(), message(request(2), 100)], "2 answers"),
            (&LOAD, vec![message(read, 100)], "1 answers"),
            (&LOAD, vec![(stranger, fine().1)], "has no part in this"),
            (&LOAD, vec![(peer(), Bytes::new())], "without a header"),
            (
                &LOAD,
                vec![message(request(1), 101)],
                "101 bytes rather than 100",
            ),
            (&LOAD, vec![message(request(1), 1 << 20)], "1048576 bytes"),
            (
                &LOAD,
                vec![message(request(1), 63)],
                "63 bytes rather than 100",
            ),
            (&LOAD, vec![(peer(), damaged.into())], "was changed"),
            (
                &LOAD,
                vec![fine(), fine()],
                "request 1 of 10.0.0.2:4001 rather than 2",
            ),
            (
                &LOAD,
                vec![message(long, 100)],
                "its memory has another length",
            ),
            (
                &wide,
                vec![message(read, 100)],
                "its memory has another length",
            ),
            (
                &LOAD,
                vec![message(answer, 63)],
                "an answer of 10.0.0.2:4001 to nothing",
            ),
        ] {
            let told = told(load, false, &messages);
            assert!(told.contains(says), "{told}, and not {says}");
        }
        let nothing = Header {
            rdma_bytes: 0,
            ..read
        };
        let told = told(&wide, false, &[message(nothing, 100)]);
        assert!(told.contains("no RDMA was"), "{told}");
    }

    #[test]
    fn a_peer_that_is_not_answered_can_ask_no_more_than_was_agreed() {
        let filler = super::super::pattern::filler(100).into();
        let message = |seq| (peer(), compose(&request(seq), 100, &filler));
        assert_eq!(told(&LOAD, true, &[message(1), message(2)]), "0 answers");
        let told = told(&LOAD, true, &[message(1), message(2), message(3)]);
        assert!(told.contains("more are under way"), "{told}");
    }

    #[test]
    fn what_found_no_room_is_answered_later() {
        let mut task = task(&LOAD);
        let filler = task.filler.clone();
        for round in 0..3 {
            task.carrier.full = true;
            for at in 1..=2 {
                let bytes = compose(&request(2 * round + at), 100, &filler);
                task.carrier.brings.push_back((peer(), bytes.to_vec()));
            }
            task.round(false).unwrap();
            task.carrier.full = false;
            task.round(false).unwrap();
        }
        let sent: Vec<u32> = task.carrier.sent.iter().map(|header| header.seq).collect();
        assert_eq!(sent, [1, 2, 3, 4, 5, 6]);
    }
}
