//! What is under way arrives.

use super::network::{Happening, MockLink, Net, flushed};
use crate::fabric::{Arrival, ArrivedPayload, Link, Sink};
use crate::proto::{AtomicOp, DoneStatus, Frame, LinkId, OpKind, RdmaDone, RdmaWork};
use crate::rdma::Buffers;
use crate::wire::CONNECT_MAX;
use mr_core::RemoteKey;
use mr_mock::{Refusal, RemotePeer};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

/// Frames that are handed over at once.
const BATCH: usize = 64;

thread_local! {
    static ARRIVALS: RefCell<Vec<Arrival>> = const { RefCell::new(Vec::new()) };
}

impl Net {
    /// Lets happen what is due, unless another thread is at it. Says whether anything was.
    pub(super) fn deliver_due(self: &Arc<Self>) -> bool {
        let mut any = false;
        loop {
            // A sink may send, and so end up here again: then the outer call goes on.
            let Ok(_delivering) = self.delivering.try_lock() else {
                return any;
            };
            while let Some(happening) = self.take_due() {
                any = true;
                self.happen(happening);
            }
            drop(_delivering);
            // Whoever found the lock taken may have left something behind.
            if !self.has_due() {
                return any;
            }
        }
    }

    fn has_due(&self) -> bool {
        let now = self.clock.now();
        let state = self.lock();
        state
            .under_way
            .keys()
            .next()
            .is_some_and(|key| key.0 <= now)
    }

    fn take_due(&self) -> Option<Happening> {
        let now = self.clock.now();
        let mut state = self.lock();
        let entry = state.under_way.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    fn happen(self: &Arc<Self>, happening: Happening) {
        match happening {
            Happening::Dialled(pair) => self.dialled(pair),
            Happening::Answered(pair) => self.answered(pair),
            Happening::Established(pair) => self.established(pair),
            Happening::Rejected(sink, id, reason) => {
                if let Some(sink) = sink.upgrade() {
                    sink.rejected(id, &reason);
                }
            }
            Happening::Frame(pair, side, frame) => self.frame(pair, side, frame),
            Happening::Rdma(pair, side, sink, work) => self.rdma(pair, side, sink, work),
            Happening::Done(pair, sink, done) => self.done(pair, &sink, done),
            Happening::Lost(sink, id) => {
                if let Some(sink) = sink.upgrade() {
                    sink.lost(id);
                }
            }
        }
    }

    fn link(self: &Arc<Self>, pair: u64, side: usize, sink: Weak<dyn Sink>) -> Arc<dyn Link> {
        let net = Arc::downgrade(self);
        Arc::new(MockLink {
            net,
            pair,
            side,
            sink,
        })
    }

    fn dialled(self: &Arc<Self>, number: u64) {
        let now = self.clock.now();
        let reached = {
            let mut state = self.lock();
            let said = state.pairs.get(&number).map(|pair| pair.said.clone());
            state.reach(number).zip(said)
        };
        let Some(((sink, path), said)) = reached else {
            let mut state = self.lock();
            let timeout = state.faults.dial_timeout;
            return state.end_pair(now + timeout, number, "nobody answers");
        };
        let asked = sink.upgrade().map(|sink| sink.asked(path, &padded(said)));
        let mut state = self.lock();
        match asked {
            Some(Ok((id, answer))) => {
                let Some(pair) = state.pairs.get_mut(&number) else {
                    // The other side has given up meanwhile.
                    return state.schedule(now, Happening::Lost(sink, id));
                };
                pair.ends[1].id = Some(id);
                state.count_credits(number, &answer);
                let at = state.arrival(now, number, 0);
                state.schedule(at, Happening::Answered(number));
            }
            Some(Err(reason)) => state.reject(now, number, reason),
            None => state.end_pair(now, number, "refused"),
        }
    }

    /// The answer is with the side that has dialled.
    fn answered(self: &Arc<Self>, number: u64) {
        let Some((sink, id, answer)) = self.end_of(number, 0) else {
            return;
        };
        let link = self.link(number, 0, Weak::clone(&sink));
        {
            // Ahead of what this side sends as soon as it has the link.
            let now = self.clock.now();
            let mut state = self.lock();
            let at = state.arrival(now, number, 1);
            state.schedule(at, Happening::Established(number));
        }
        let host = sink.upgrade();
        if !host.is_some_and(|host| host.opened(id, &padded(answer), Arc::clone(&link))) {
            link.close();
        }
    }

    /// The side that was dialled hears that the other has its answer.
    fn established(self: &Arc<Self>, number: u64) {
        let Some((sink, id, _)) = self.end_of(number, 1) else {
            return;
        };
        let link = self.link(number, 1, Weak::clone(&sink));
        let host = sink.upgrade();
        if !host.is_some_and(|host| host.opened(id, &[], Arc::clone(&link))) {
            link.close();
        }
    }

    fn end_of(&self, number: u64, side: usize) -> Option<(Weak<dyn Sink>, LinkId, Vec<u8>)> {
        let state = self.lock();
        let pair = state.pairs.get(&number)?;
        let end = &pair.ends[side];
        Some((Weak::clone(&end.sink), end.id?, pair.said.clone()))
    }

    fn frame(&self, number: u64, side: usize, first: Frame) {
        let mut arrivals = ARRIVALS.take();
        let to = {
            let mut state = self.lock();
            state.take_grant(number, side, &first);
            arrivals.push(arrival(first));
            let now = self.clock.now();
            // What is due next on the same link comes along.
            while arrivals.len() < BATCH
                && let Some(entry) = state.under_way.first_entry()
                && entry.key().0 <= now
                && matches!(entry.get(), Happening::Frame(pair, to, _) if (*pair, *to) == (number, side))
                && let Happening::Frame(_, _, frame) = entry.remove()
            {
                state.take_grant(number, side, &frame);
                arrivals.push(arrival(frame));
            }
            let end = state.pairs.get(&number).map(|pair| &pair.ends[side]);
            end.and_then(|end| Some((end.sink.upgrade()?, end.id?)))
        };
        if let Some((sink, id)) = to {
            sink.frames(id, &mut arrivals);
        }
        arrivals.clear();
        ARRIVALS.set(arrivals);
    }

    /// An operation arrives at the HCA of the other end.
    fn rdma(&self, number: u64, side: usize, sink: Weak<dyn Sink>, work: RdmaWork) {
        let now = self.clock.now();
        let reach = {
            let state = self.lock();
            let end = state.pairs.get(&number).map(|pair| &pair.ends[side]);
            end.and_then(|end| end.reach.clone())
        };
        let key = work.rkey;
        let (done, refusal) = match reach {
            Some(peer) => perform(&peer, work),
            None => (flushed(work), None),
        };
        let mut state = self.lock();
        state.tell(now, || match refusal {
            None => format!("link {number}: rdma {} with key {key:#x}", done.op),
            Some(refusal) => format!("link {number}: rdma {}: {refusal}", done.op),
        });
        let at = state.arrival(now, number, side);
        state.schedule(at, Happening::Done(number, sink, done));
        if refusal.is_some() {
            // A refused key puts the queue pair into error.
            state.end_pair(now, number, "an RDMA operation was refused");
        }
    }

    fn done(&self, number: u64, sink: &Weak<dyn Sink>, mut done: RdmaDone) {
        let alive = self.lock().pairs.contains_key(&number);
        if !alive && done.status == DoneStatus::Success {
            // The completion was lost with the link.
            done.status = DoneStatus::Flushed;
        }
        if let Some(sink) = sink.upgrade() {
            sink.rdma_done(done);
        }
    }
}

/// What a connection manager makes of it: there are zeros behind, and no telling how many bytes were
/// said.
fn padded(mut said: Vec<u8>) -> Vec<u8> {
    if !said.is_empty() {
        said.resize(CONNECT_MAX.max(said.len()), 0);
    }
    said
}

fn arrival(frame: Frame) -> Arrival {
    Arrival {
        header: frame.header,
        payload: ArrivedPayload::Bytes(frame.payload),
    }
}

fn perform(peer: &RemotePeer, work: RdmaWork) -> (RdmaDone, Option<Refusal>) {
    let key = RemoteKey::from_bits(work.rkey);
    let offset = work.offset;
    let (result, buffers) = match work.kind {
        OpKind::Write(buffers) => (write(peer, key, offset, &buffers).err(), buffers),
        OpKind::Read(mut buffers) => (read(peer, key, offset, &mut buffers).err(), buffers),
        OpKind::Atomic(atomic) => match change(peer, key, offset, atomic) {
            Ok(before) => (None, before.to_ne_bytes().to_vec().into()),
            Err(refusal) => (Some(refusal), Buffers::none()),
        },
    };
    let status = match result {
        None => DoneStatus::Success,
        Some(_) => DoneStatus::Refused,
    };
    let op = work.op;
    let done = RdmaDone {
        op,
        status,
        buffers,
    };
    (done, result)
}

fn write(peer: &RemotePeer, key: RemoteKey, at: u64, buffers: &Buffers) -> Result<(), Refusal> {
    buffers.iter().try_fold(at, |at, buffer| {
        peer.write(key, at, buffer)?;
        Ok(at.saturating_add(buffer.len() as u64))
    })?;
    Ok(())
}

fn read(peer: &RemotePeer, key: RemoteKey, at: u64, into: &mut Buffers) -> Result<(), Refusal> {
    into.as_mut_slice().iter_mut().try_fold(at, |at, buffer| {
        peer.read(key, at, buffer)?;
        Ok(at.saturating_add(buffer.len() as u64))
    })?;
    Ok(())
}

fn change(peer: &RemotePeer, key: RemoteKey, offset: u64, op: AtomicOp) -> Result<u64, Refusal> {
    let done = match op {
        AtomicOp::FetchAdd { add } => peer.fetch_add(key, offset, add),
        AtomicOp::CompareSwap { compare, swap } => peer.compare_swap(key, offset, compare, swap),
    };
    done.map(|(before, _)| before)
}
