//! Sockets of the kernel as carriers of the load of `rds stress`.

use crate::kernel::{
    self, Attachment, Datagram, KernelSocket, MapFlags, Memory, Notice, OpFlags, Status,
};
use bytes::Bytes;
use rds_lite::proto;
use rds_lite::stress::{
    Arrived, Carrier, Fault, Load, NAP, Operation, Rdma, Refusal, Want, divide, fill, is_filled,
};
use rds_lite::wire::MAX_MESSAGE;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long the kernel may say `EINVAL` to memory: it does while a connection is being made.
const PATIENCE: Duration = Duration::from_secs(15);

/// The cookie that stands for all keys whose loans have ended.
const ALL: u64 = 0;

/// A socket of the kernel, and memory that is lent by the message that names it.
pub(super) struct KernelCarrier {
    socket: KernelSocket,
    load: Load,
    buffer: Vec<u8>,
    /// Which parts of the memory an operation moves.
    pieces: Vec<Range<usize>>,
    /// Memory to be had, all of the same length.
    spare: Vec<Memory>,
    /// What is lent, and what it must hold afterwards.
    lent: HashMap<u64, (Memory, Option<u64>)>,
    /// Memory of operations, and what a read must bring.
    local: HashMap<u64, (Memory, Option<u64>)>,
    tokens: u64,
    /// Since when the kernel says `EINVAL`.
    refused: Option<Instant>,
    scratch: Vec<u8>,
}

impl KernelCarrier {
    pub(super) fn new(socket: KernelSocket, load: &Load) -> Self {
        let mut at = 0;
        let pieces = divide(load.rdma_bytes, usize::from(load.rdma_vector)).map(|len| {
            at += len;
            at - len..at
        });
        Self {
            socket,
            load: load.clone(),
            buffer: vec![0; MAX_MESSAGE],
            pieces: pieces.collect(),
            spare: Vec::new(),
            lent: HashMap::new(),
            local: HashMap::new(),
            tokens: 0,
            refused: None,
            scratch: vec![0; load.rdma_bytes],
        }
    }

    /// Memory that is filled with a pattern.
    fn memory(&mut self, pattern: u64) -> Result<Memory, Fault> {
        let memory = match self.spare.pop() {
            Some(memory) => memory,
            None => Memory::new(self.load.rdma_bytes).map_err(Fault::socket)?,
        };
        fill(&mut self.scratch, pattern);
        memory.write(0, &self.scratch).map_err(Fault::socket)?;
        Ok(memory)
    }

    /// Whether memory holds what it must, if that is known and wanted.
    fn is_right(&mut self, memory: &Memory, pattern: Option<u64>) -> Result<bool, Fault> {
        let Some(pattern) = pattern.filter(|_| self.load.verify) else {
            return Ok(true);
        };
        memory.read(0, &mut self.scratch).map_err(Fault::socket)?;
        Ok(is_filled(&self.scratch, pattern))
    }

    /// What is known of memory with a pattern: of what is used by many requests, nothing.
    fn expected(&self, pattern: u64) -> Option<u64> {
        (!self.load.cache_mrs).then_some(pattern)
    }

    fn sent<T>(&mut self, result: io::Result<T>, has_memory: bool) -> Result<T, Refusal> {
        let error = match result {
            Ok(sent) => {
                self.refused = None;
                return Ok(sent);
            }
            Err(error) => error,
        };
        match error.raw_os_error() {
            // Nobody wakes a task whose destination is no longer congested: it looks again after a nap.
            Some(libc::EAGAIN | libc::ENOBUFS) => Err(Refusal::NotNow),
            Some(libc::EINVAL) if has_memory => {
                let since = *self.refused.get_or_insert_with(Instant::now);
                if since.elapsed() < PATIENCE {
                    return Err(Refusal::NotNow);
                }
                Err(Fault::socket(error).into())
            }
            _ => Err(Fault::socket(error).into()),
        }
    }

    fn ended(&mut self, notice: Notice) -> Result<(), Fault> {
        let token = notice.token;
        let status = match notice.status {
            Status::Success => proto::Status::Success,
            Status::RemoteError => proto::Status::RemoteError,
            Status::Canceled => proto::Status::Canceled,
            Status::Dropped => proto::Status::Dropped,
            Status::Other(_) => proto::Status::OtherError,
        };
        let held = self.local.remove(&token);
        let (memory, brings) = held.ok_or(Fault::Operation { token, status })?;
        if status != proto::Status::Success {
            return Err(Fault::Operation { token, status });
        }
        if !self.is_right(&memory, brings)? {
            return Err(Fault::Read(token));
        }
        self.spare.push(memory);
        Ok(())
    }
}

impl Carrier for KernelCarrier {
    type Payload = Vec<u8>;

    fn send(&mut self, message: Bytes, to: SocketAddr) -> Result<(), Refusal> {
        let sent = self.socket.send(&message, to, &Attachment::None);
        self.sent(sent, false).map(drop)
    }

    fn ask(
        &mut self,
        to: SocketAddr,
        want: Want,
        compose: impl FnOnce(u64) -> Bytes,
    ) -> Result<u64, Refusal> {
        // The kernel names the memory when it has sent the message: the cookie goes beside it.
        let message = compose(0);
        let (rdma, pattern) = match want {
            Want::New { rdma, pattern } => (rdma, pattern),
            Want::Again(cookie) => {
                let sent = self.socket.send(&message, to, &Attachment::Cookie(cookie));
                return self.sent(sent, true).map(|_| cookie);
            }
        };
        if !self.socket.may_lend(to.ip()).map_err(Fault::socket)? {
            return Err(Refusal::NotNow);
        }
        let memory = self.memory(if rdma == Rdma::Read { pattern } else { 0 })?;
        let mut flags = MapFlags::WRITE;
        flags.set(MapFlags::USE_ONCE, self.load.use_once);
        flags.set(MapFlags::INVALIDATE, self.load.invalidate);
        let lend = Attachment::Lend(&memory, 0..self.load.rdma_bytes, flags);
        let sent = self.socket.send(&message, to, &lend);
        let sent = self.sent(sent, true);
        match sent.map(|cookie| cookie.ok_or_else(|| Fault::socket("no cookie"))) {
            Ok(cookie) => {
                let cookie = cookie?;
                self.lent.insert(cookie, (memory, self.expected(pattern)));
                Ok(cookie)
            }
            Err(refusal) => {
                self.spare.push(memory);
                Err(refusal)
            }
        }
    }

    fn settle(&mut self, cookie: u64) -> Result<(), Fault> {
        // The message behind its use has ended what was lent for one.
        if !self.load.use_once {
            let freed = self.socket.free(cookie, self.load.invalidate);
            freed.map_err(Fault::socket)?;
        }
        let lent = self.lent.remove(&cookie);
        let (memory, pattern) = lent.ok_or_else(|| Fault::socket("nothing was lent so"))?;
        if !self.is_right(&memory, pattern)? {
            return Err(Fault::Memory(cookie));
        }
        self.spare.push(memory);
        Ok(())
    }

    fn operate(
        &mut self,
        to: SocketAddr,
        operation: Operation,
        answer: Bytes,
    ) -> Result<(), Refusal> {
        let write = operation.write;
        let memory = self.memory(if write { operation.pattern } else { 0 })?;
        let mut flags = OpFlags::NOTIFY;
        flags.set(OpFlags::WRITE, write);
        flags.set(OpFlags::FENCE, self.load.fence);
        self.tokens += 1;
        let token = self.tokens;
        let operate = Attachment::Operate(kernel::Operation {
            cookie: operation.cookie,
            offset: 0,
            local: (&memory, &self.pieces),
            flags,
            token,
        });
        let sent = self.socket.send(&answer, to, &operate);
        if let Err(refusal) = self.sent(sent, true) {
            self.spare.push(memory);
            return Err(refusal);
        }
        let brings = self.expected(operation.pattern).filter(|_| !write);
        self.local.insert(token, (memory, brings));
        Ok(())
    }

    fn next(&mut self, wait: bool) -> Result<Option<Arrived<Vec<u8>>>, Fault> {
        let mut waits = wait;
        loop {
            match self.socket.receive(&mut self.buffer) {
                Ok(Datagram::Message { from, len, cookie }) => {
                    let payload = self.buffer.get(..len);
                    let payload = payload.ok_or(Fault::NoHeader(from))?.to_vec();
                    return Ok(Some(Arrived::Message {
                        from,
                        payload,
                        cookie,
                    }));
                }
                Ok(Datagram::Notices(notices)) => {
                    for notice in notices {
                        self.ended(notice)?;
                    }
                }
                Ok(Datagram::Uncongested(_)) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !std::mem::take(&mut waits) {
                        return Ok(None);
                    }
                    self.socket.wait(false, NAP).map_err(Fault::socket)?;
                }
                Err(error) => return Err(Fault::socket(error)),
            }
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if self.load.rdma_bytes > 0 {
            self.socket.free(ALL, true).map_err(Fault::socket)?;
        }
        Ok(())
    }
}
