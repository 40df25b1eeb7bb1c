//! One connection: the sending half.

use super::lock;
use super::threads::Threads;
use crate::fabric::{Link, Sink};
use crate::proto::{AtomicOp, DoneStatus, Frame, LinkId, OpKind, RdmaDone, RdmaWork, Transmission};
use mr_core::RemoteKey;
use mr_verbs::Status;
use mr_verbs::cm::{Batch, Connection, Ended, Flags, Refused, RemoteMemory};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A peer that sleeps until a frame says that it must not (the kernel does) is woken at the end of
/// what is sent together, and after so many frames: its ring must not fill meanwhile.
const FRAMES_ASLEEP: u32 = 32;

/// What the low bits of a work request's name say.
const FRAME: u64 = 0;
const TRANSFER: u64 = 1;
const ATOMIC: u64 = 2;
const ACK: u64 = 3;
const KINDS: u32 = 2;

/// A connection.
pub(super) struct VerbsLink {
    pub(super) id: LinkId,
    pub(super) connection: Connection,
    sink: Weak<dyn Sink>,
    threads: Threads,
    sending: Mutex<Sending>,
    /// This host wants nothing more of it.
    closed: AtomicBool,
}

#[derive(Default)]
struct Sending {
    /// What found no room in the send ring: at most what one call brings.
    queue: VecDeque<Transmission>,
    /// Operations that ended without having gone out, to be told by the link's thread.
    ended: Vec<RdmaDone>,
    /// The last call was told that there is no room.
    full: bool,
    /// The operation before is told of by the completion of the next frame.
    owed: bool,
    asleep: u32,
    over: bool,
}

impl VerbsLink {
    pub(super) fn new(
        id: LinkId,
        connection: Connection,
        threads: &Threads,
        sink: Weak<dyn Sink>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            connection,
            sink,
            threads: threads.clone(),
            sending: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// The host, while it is there.
    pub(super) fn host(&self) -> Option<Arc<dyn Sink>> {
        self.sink.upgrade()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Ends the connection. The host is told of the ends of RDMA operations, and of nothing else.
    pub(super) fn end(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.connection.disconnect();
    }

    /// Posts what waits, now that work requests have ended. Says whether there is room again that the
    /// host does not know of.
    pub(super) fn go_on(&self) -> bool {
        let mut sending = lock(&self.sending);
        if !sending.full {
            return false;
        }
        self.push(&mut sending);
        sending.full = !sending.queue.is_empty();
        !sending.full
    }

    /// Moves the ends of operations that never went out to `to`.
    pub(super) fn take_ended(&self, to: &mut Vec<RdmaDone>) {
        to.append(&mut lock(&self.sending).ended);
    }

    /// The connection is over: what waits ends, and so does what comes later.
    pub(super) fn give_up(&self, to: &mut Vec<RdmaDone>) {
        let mut sending = lock(&self.sending);
        sending.over = true;
        to.append(&mut sending.ended);
        to.extend(sending.queue.drain(..).filter_map(flushed));
    }

    /// Posts from the queue with one doorbell, until it is empty or the send ring is full.
    fn push(&self, sending: &mut Sending) {
        let mut batch = self.connection.batch();
        while let Some(next) = sending.queue.pop_front() {
            let more = !sending.queue.is_empty();
            let refused = match next {
                Transmission::Frame(frame) => {
                    batch.spare(u32::from(!frame.ack));
                    let taken = sending.send(&mut batch, &frame, more);
                    taken.map_err(|why| (why, Transmission::Frame(frame)))
                }
                Transmission::Rdma(work) => {
                    batch.spare(1);
                    let taken = sending.operate(&mut batch, work);
                    taken.map_err(|(why, work)| (why, Transmission::Rdma(*work)))
                }
            };
            match refused {
                Ok(()) => {}
                Err((Refused::Full, back)) => {
                    sending.queue.push_front(back);
                    break;
                }
                Err((why, Transmission::Rdma(work))) => {
                    // Its message must not go out alone: the peer would take the operation for done. It is
                    // dropped with the connection.
                    tracing::warn!(%why, "an RDMA operation cannot be done");
                    sending.ended.push(work.end(DoneStatus::Failed));
                    self.connection.disconnect();
                    break;
                }
                Err((why, Transmission::Frame(_))) => {
                    // Frames are never longer than fragments.
                    tracing::error!(%why, "a frame cannot be sent");
                    self.connection.disconnect();
                    break;
                }
            }
        }
        batch.post();
    }

    /// Posts the acknowledgement that waits behind what has no room, if there is one: one at a time is
    /// under way, and everything else spares room for it.
    fn push_ack(&self, sending: &mut Sending) {
        let is_ack =
            |waits: &Transmission| matches!(waits, Transmission::Frame(frame) if frame.ack);
        let Some(at) = sending.queue.iter().position(is_ack) else {
            return;
        };
        if let Some(Transmission::Frame(frame)) = sending.queue.remove(at) {
            let mut batch = self.connection.batch();
            match sending.send(&mut batch, &frame, false) {
                Ok(()) => batch.post(),
                Err(why) => {
                    drop(batch);
                    tracing::error!(%why, "an acknowledgement cannot be sent");
                    self.connection.disconnect();
                }
            }
        }
    }
}

impl Sending {
    fn send(&mut self, batch: &mut Batch<'_>, frame: &Frame, more: bool) -> Result<(), Refused> {
        let wakes = !more || self.asleep + 1 >= FRAMES_ASLEEP;
        let mut flags = Flags::empty();
        flags.set(Flags::SIGNALLED, self.owed || frame.ack);
        flags.set(Flags::SOLICITED, wakes);
        flags.set(Flags::FENCE, frame.fence);
        let name = if frame.ack { ACK } else { FRAME };
        batch.send(name, &frame.header, &frame.payload, flags)?;
        // The completion of an acknowledgement tells of what is before it as well as any.
        self.owed = false;
        self.asleep = if wakes { 0 } else { self.asleep + 1 };
        Ok(())
    }

    /// Enters an operation. Where its message follows, the completion of the one tells of both.
    fn operate(
        &mut self,
        batch: &mut Batch<'_>,
        work: RdmaWork,
    ) -> Result<(), (Refused, Box<RdmaWork>)> {
        let with_message = matches!(self.queue.front(), Some(Transmission::Frame(_)));
        let flags = if with_message {
            Flags::empty()
        } else {
            Flags::SIGNALLED
        };
        let remote = RemoteMemory {
            addr: work.offset,
            key: RemoteKey::from_bits(work.rkey),
        };
        let RdmaWork {
            op,
            kind,
            rkey,
            offset,
        } = work;
        let again = |kind| {
            Box::new(RdmaWork {
                op,
                kind,
                rkey,
                offset,
            })
        };
        let name = op << KINDS;
        match kind {
            OpKind::Write(buffers) => batch
                .write(name | TRANSFER, buffers.into_vec(), remote, flags)
                .map_err(|not| (not.why, again(OpKind::Write(not.local.into())))),
            OpKind::Read(buffers) => batch
                .read(name | TRANSFER, buffers.into_vec(), remote, flags)
                .map_err(|not| (not.why, again(OpKind::Read(not.local.into())))),
            OpKind::Atomic(atomic) => {
                let taken = match atomic {
                    AtomicOp::FetchAdd { add } => {
                        batch.fetch_add(name | ATOMIC, remote, add, flags)
                    }
                    AtomicOp::CompareSwap { compare, swap } => {
                        batch.compare_swap(name | ATOMIC, remote, compare, swap, flags)
                    }
                };
                taken.map_err(|why| (why, again(OpKind::Atomic(atomic))))
            }
        }?;
        self.owed |= with_message;
        Ok(())
    }
}

impl Link for VerbsLink {
    fn transmit(&self, what: &mut Vec<Transmission>) -> bool {
        let mut sending = lock(&self.sending);
        if sending.over {
            let ended: Vec<_> = what.drain(..).filter_map(flushed).collect();
            drop(sending);
            // Rare: the link's thread is gone, and this is no place to tell the host.
            if let Some(host) = self.host().filter(|_| !ended.is_empty()) {
                self.threads
                    .start_short(move || ended.into_iter().for_each(|done| host.rdma_done(done)));
            }
            return true;
        }
        sending.queue.extend(what.drain(..));
        // Behind what waits already there is nothing to try.
        if !sending.full {
            self.push(&mut sending);
            sending.full = !sending.queue.is_empty();
        }
        if sending.full {
            self.push_ack(&mut sending);
        }
        if !sending.ended.is_empty() {
            self.connection.waker().wake();
        }
        !sending.full
    }

    fn close(&self) {
        self.end();
    }
}

fn flushed(transmission: Transmission) -> Option<RdmaDone> {
    match transmission {
        Transmission::Rdma(work) => Some(work.end(DoneStatus::Flushed)),
        Transmission::Frame(_) => None,
    }
}

/// Whether it is the acknowledgement that was under way.
pub(super) fn is_ack(ended: &Ended) -> bool {
    ended.id & ((1 << KINDS) - 1) == ACK
}

/// What the end of a work request says to the host; `None` for a frame.
pub(super) fn done(ended: Ended) -> Option<RdmaDone> {
    let status = match ended.status {
        Status::Success => DoneStatus::Success,
        Status::RemoteAccess | Status::RemoteInvalidRequest => DoneStatus::Refused,
        // With the link; whether the operation took place is not known.
        Status::Flushed | Status::RetryExceeded | Status::ReceiverNotReady => DoneStatus::Flushed,
        _ => DoneStatus::Failed,
    };
    let buffers = match ended.id & ((1 << KINDS) - 1) {
        TRANSFER => ended.local.into(),
        ATOMIC => ended.value.to_ne_bytes().to_vec().into(),
        _ => return None,
    };
    Some(RdmaDone {
        op: ended.id >> KINDS,
        status,
        buffers,
    })
}
