//! What is under way arrives.

use super::network::{Happening, MockLink, Net, flushed};
use crate::fabric::{Arrival, ArrivedPayload, Link, Sink};
use crate::proto::{AtomicOp, DoneStatus, Frame, OpKind, RdmaDone, RdmaWork};
use crate::rdma::Buffers;
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
            Happening::Opened(pair) => self.opened(pair),
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
        let reached = self.lock().reach(number);
        let Some((sink, path)) = reached else {
            let mut state = self.lock();
            let timeout = state.faults.dial_timeout;
            return state.end_pair(now + timeout, number, "nobody answers");
        };
        let link = self.link(number, 1, Weak::clone(&sink));
        {
            // Ahead of what the other side sends as soon as it has accepted.
            let mut state = self.lock();
            let at = state.arrival(now, number, 0);
            state.schedule(at, Happening::Opened(number));
        }
        let id = sink.upgrade().and_then(|sink| sink.accepted(path, link));
        let mut state = self.lock();
        let Some(id) = id else {
            return state.end_pair(now, number, "refused");
        };
        if let Some(pair) = state.pairs.get_mut(&number) {
            pair.ends[1].id = Some(id);
        } else {
            // The other side has given up meanwhile.
            let sink = state.sink(path.local);
            if let Some(sink) = sink {
                state.schedule(now, Happening::Lost(sink, id));
            }
        }
    }

    fn opened(self: &Arc<Self>, number: u64) {
        let end = {
            let state = self.lock();
            let end = state.pairs.get(&number).map(|pair| &pair.ends[0]);
            end.map(|end| (Weak::clone(&end.sink), end.id))
        };
        let Some((sink, id)) = end else {
            return;
        };
        let link = self.link(number, 0, Weak::clone(&sink));
        let wanted = match (sink.upgrade(), id) {
            (Some(sink), Some(id)) => sink.opened(id, Arc::clone(&link)),
            _ => false,
        };
        if !wanted {
            link.close();
        }
    }

    fn frame(&self, number: u64, side: usize, first: Frame) {
        let mut arrivals = ARRIVALS.take();
        arrivals.push(arrival(first));
        let to = {
            let mut state = self.lock();
            let now = self.clock.now();
            // What is due next on the same link comes along.
            while arrivals.len() < BATCH
                && let Some(entry) = state.under_way.first_entry()
                && entry.key().0 <= now
                && matches!(entry.get(), Happening::Frame(pair, to, _) if (*pair, *to) == (number, side))
                && let Happening::Frame(_, _, frame) = entry.remove()
            {
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
