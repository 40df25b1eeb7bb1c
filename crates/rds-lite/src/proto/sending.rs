//! From a socket into the queue of a connection, and back out of it.

use crate::proto::outgoing::{OpStage, Outgoing, ext_of};
use crate::proto::socket::{MessageFate, OpRecord};
use crate::proto::{
    AtomicOp, Core, DoneStatus, Event, FailReason, Notification, OpKind, Path, RdmaDone, RdmaWork,
    SendError, Sending, SockId, Status,
};
use crate::rdma::MAX_BUFFERS;
use crate::wire::MAX_MESSAGE;
use mr_core::Time;
use std::collections::VecDeque;
use std::net::SocketAddr;

impl Core {
    /// Queues a message and leaves an empty one in its place. Returns a number that names it in a failure report.
    ///
    /// # Errors
    ///
    /// [`SendError`], and leaves the message where it is. The order of checks is the kernel's: what can
    /// never work, then the destination's congestion, then room.
    pub fn send(
        &mut self,
        now: Time,
        sock: SockId,
        to: SocketAddr,
        message: &mut Sending,
    ) -> Result<u64, SendError> {
        self.now = self.now.max(now);
        let path = self.admit(sock, to, message)?;
        Ok(self.enqueue(sock, path, to, std::mem::take(message)))
    }

    /// Whether a message to `to` would be taken now.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn writable(&mut self, now: Time, sock: SockId, to: SocketAddr) -> Result<(), SendError> {
        self.now = self.now.max(now);
        self.admit(sock, to, &Sending::default()).map(|_| ())
    }

    fn admit(
        &mut self,
        sock: SockId,
        to: SocketAddr,
        message: &Sending,
    ) -> Result<Path, SendError> {
        if self.closed {
            return Err(SendError::Closed);
        }
        let state = self.sockets.get(sock).ok_or(SendError::Closed)?;
        let path = Path {
            local: state.addr.ip(),
            remote: to.ip(),
        };
        let unreachable = to.ip().is_unspecified() || to.ip().is_multicast();
        if unreachable || to.is_ipv4() != state.addr.is_ipv4() {
            return Err(SendError::BadDestination(to));
        }
        check_length(message.payload.len(), state.send_buffer.min(MAX_MESSAGE))?;
        if message
            .cookie
            .is_some_and(|own| !state.regions.contains(own))
        {
            return Err(SendError::UnknownCookie);
        }
        let local = self.locals.contains(&path.remote);
        if let Some(op) = &message.op {
            check_length(op.kind.bytes(), MAX_MESSAGE)?;
            check_count(&op.kind)?;
            let offset = op.offset;
            op.begin().ok_or(SendError::BadOffset { offset })?;
            if !self.kind.rdma || local {
                return Err(SendError::NoRdma(to));
            }
        }
        self.check_congestion(sock, path, to)?;
        let room = self.sockets.get(sock).is_some_and(|state| {
            // Each operation ends with a report, for which there must be room.
            let reports = state.notes.len() + state.out_messages;
            let reportable = message.op.is_none() || reports < self.config.max_queued;
            state.has_room(self.config.max_queued) && reportable
        });
        if !room || self.out_bytes >= self.config.send_budget {
            self.counters.send_queue_full += 1;
            self.starved.insert(sock);
            return Err(SendError::WouldBlock);
        }
        Ok(path)
    }

    fn check_congestion(
        &mut self,
        sock: SockId,
        path: Path,
        to: SocketAddr,
    ) -> Result<(), SendError> {
        if self.locals.contains(&path.remote) {
            let map = self.local_maps.get(&path.remote);
            let congested = map.is_some_and(|map| map.contains(to.port()));
            if !congested {
                return Ok(());
            }
            // There is no connection to wait at: the receiving socket wakes local senders.
            self.starved.insert(sock);
            self.counters.cong_send_error += 1;
            return Err(SendError::Congested(to));
        }
        let conn = self.connection(path)?;
        if !conn.peer_map.contains(to.port()) {
            return Ok(());
        }
        if !conn.waiters.contains(&(sock, to.port())) {
            conn.waiters.push((sock, to.port()));
        }
        self.counters.cong_send_error += 1;
        Err(SendError::Congested(to))
    }

    fn enqueue(&mut self, sock: SockId, path: Path, to: SocketAddr, message: Sending) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.counters.send_queued += 1;
        if self.locals.contains(&path.remote) {
            self.deliver_locally(sock, to, message);
            return id;
        }
        let Some(sport) = self.sockets.get(sock).map(|state| state.addr.port()) else {
            return id;
        };
        let ext = ext_of(&message);
        let op = self.register(sock, message.op);
        let Ok(conn) = self.connection(path) else {
            return id;
        };
        let outgoing = Outgoing {
            sock: Some(sock),
            id,
            seq: conn.take_seq(),
            sport,
            dport: to.port(),
            payload: message.payload,
            ext,
            op,
            again: false,
            end: 0,
        };
        let charge = outgoing.charge();
        conn.queue.push_back(outgoing);
        let index = conn.index;
        self.out_bytes += charge;
        if let Some(state) = self.sockets.get_mut(sock) {
            state.out_bytes += charge;
            state.out_messages += 1;
        }
        self.wants_link(index);
        self.wants_transmit(index);
        id
    }

    fn register(&mut self, sock: SockId, posted: Option<crate::proto::Posted>) -> OpStage {
        let Some(posted) = posted else {
            return OpStage::None;
        };
        let op = self.next_op;
        self.next_op += 1;
        let fetches = !matches!(posted.kind, OpKind::Write(_));
        // It has been admitted, so there is one.
        let offset = posted.begin().unwrap_or(u64::MAX);
        match &posted.kind {
            OpKind::Atomic(AtomicOp::FetchAdd { .. }) => self.counters.ib_atomic_fadd += 1,
            OpKind::Atomic(AtomicOp::CompareSwap { .. }) => self.counters.ib_atomic_cswp += 1,
            OpKind::Write(_) | OpKind::Read(_) => {
                self.counters.send_rdma += 1;
                self.counters.send_rdma_bytes += posted.kind.bytes() as u64;
            }
        }
        let record = OpRecord {
            sock,
            token: posted.token,
            notify: posted.notify || fetches,
            done: None,
            message: MessageFate::Pending,
        };
        self.ops.insert(op, record);
        let work = RdmaWork {
            op,
            kind: posted.kind,
            rkey: posted.cookie.key().bits(),
            offset,
        };
        OpStage::Queued(Box::new(work), posted.fence && fetches)
    }

    /// Takes back what a socket has queued for `to`, or for anyone. What the fabric has already is
    /// not called back: it arrives, and is not sent again.
    pub fn cancel(&mut self, sock: SockId, to: Option<SocketAddr>) {
        for index in 0..self.conns.len() {
            let conn = &mut self.conns[index];
            let remote = conn.path.remote;
            if to.is_some_and(|to| to.ip() != remote) {
                continue;
            }
            let matches = |message: &Outgoing| {
                let port = to.is_none_or(|to| to.port() == message.dport);
                message.sock == Some(sock) && port
            };
            // The message under way is finished: the peer is in the middle of it.
            let under_way = usize::from(conn.head.is_some());
            let mut gone = Vec::new();
            let queued = conn.queue.split_off(under_way.min(conn.queue.len()));
            for message in queued {
                if matches(&message) {
                    gone.push(message);
                } else {
                    conn.queue.push_back(message);
                }
            }
            let sent = std::mem::take(&mut conn.unacked);
            let (taken, kept): (VecDeque<_>, _) =
                sent.into_iter().partition(|message| matches(message));
            conn.unacked = kept;
            gone.extend(taken);
            for message in gone {
                self.fail(message, remote, FailReason::Canceled);
            }
        }
    }

    /// A message has arrived: its room is free.
    pub(crate) fn settle(&mut self, message: Outgoing, fate: MessageFate) {
        if message.sock.is_none() {
            return;
        }
        self.release_room(&message);
        match message.op {
            OpStage::None => {}
            OpStage::Posted(op) => self.settle_op(op, fate),
            OpStage::Queued(work, _) => self.cancel_op(*work),
        }
    }

    /// A message will not be sent (again).
    pub(crate) fn fail(&mut self, message: Outgoing, remote: std::net::IpAddr, reason: FailReason) {
        if let (Some(sock), OpStage::None) = (message.sock, &message.op) {
            let to = SocketAddr::new(remote, message.dport);
            let id = message.id;
            self.notify(sock, Notification::SendFailed { to, id, reason });
        }
        self.settle(message, MessageFate::Lost);
    }

    fn release_room(&mut self, message: &Outgoing) {
        let charge = message.charge();
        let Some(sock) = message.sock else {
            return;
        };
        let Some(state) = self.sockets.get_mut(sock) else {
            return;
        };
        let had_room = state.has_room(self.config.max_queued);
        state.out_bytes = state.out_bytes.saturating_sub(charge);
        state.out_messages = state.out_messages.saturating_sub(1);
        let empty = state.out_messages == 0;
        let has_room = state.has_room(self.config.max_queued);
        if empty || (!had_room && has_room) {
            self.events.push(Event::Writable(sock));
        }
        let was_full = self.out_bytes >= self.config.send_budget;
        self.out_bytes = self.out_bytes.saturating_sub(charge);
        if was_full && self.out_bytes < self.config.send_budget {
            let starved = std::mem::take(&mut self.starved);
            self.events.extend(starved.into_iter().map(Event::Writable));
        }
    }

    /// The fabric reports the end of an RDMA operation.
    pub fn rdma_done(&mut self, done: RdmaDone) {
        for index in 0..self.conns.len() {
            if self.conns[index].fence == Some(done.op) {
                self.conns[index].fence = None;
                self.wants_transmit(index as u32);
            }
        }
        if let Some(record) = self.ops.get_mut(&done.op) {
            record.done = Some((done.status, done.buffers));
            self.report(done.op);
        }
    }

    fn settle_op(&mut self, op: u64, fate: MessageFate) {
        if let Some(record) = self.ops.get_mut(&op) {
            record.message = fate;
            self.report(op);
        }
    }

    fn cancel_op(&mut self, work: RdmaWork) {
        let Some(record) = self.ops.remove(&work.op) else {
            return;
        };
        let buffers = work.end(DoneStatus::Flushed).buffers;
        let (token, status) = (record.token, Status::Canceled);
        let note = Notification::Rdma {
            token,
            status,
            buffers,
        };
        self.notify(record.sock, note);
    }

    /// Tells the socket how an operation ended, once the fate of its message is known, too.
    fn report(&mut self, op: u64) {
        let Some(record) = self.ops.get(&op) else {
            return;
        };
        let over = record.done.is_some() && record.message != MessageFate::Pending;
        if !over {
            return;
        }
        let Some(record) = self.ops.remove(&op) else {
            return;
        };
        let Some((done, buffers)) = record.done else {
            return;
        };
        let status = match (done, record.message) {
            (DoneStatus::Success, MessageFate::Arrived) => Status::Success,
            (DoneStatus::Success | DoneStatus::Flushed, _) => Status::Dropped,
            (DoneStatus::Refused, _) => Status::RemoteError,
            (DoneStatus::Failed, _) => Status::OtherError,
        };
        if record.notify || status != Status::Success {
            let token = record.token;
            let note = Notification::Rdma {
                token,
                status,
                buffers,
            };
            self.notify(record.sock, note);
        }
    }
}

fn check_length(len: usize, most: usize) -> Result<(), SendError> {
    if len > most {
        return Err(SendError::TooLong { len, most });
    }
    Ok(())
}

fn check_count(kind: &OpKind) -> Result<(), SendError> {
    match kind {
        OpKind::Write(buffers) | OpKind::Read(buffers) if buffers.len() > MAX_BUFFERS => {
            let count = buffers.len();
            Err(SendError::TooManyBuffers { count })
        }
        _ => Ok(()),
    }
}
