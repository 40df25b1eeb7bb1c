//! Sockets of this crate as carriers of the load.

use super::carrier::{Arrived, Carrier, NAP, Operation, Refusal, Want};
use super::error::Fault;
use super::header::Rdma;
use super::load::Load;
use super::pattern::{divide, fill, is_filled};
use crate::proto::{Buf, Notification, SendError, Status};
use crate::rdma::{Buffers, Cookie, FreeOutcome, MrError, MrFlags};
use crate::{Incoming, RdmaFlags, RdmaOp, RecvError, Socket};
use bytes::Bytes;
use mr_core::Access;
use std::collections::HashMap;
use std::net::SocketAddr;

/// A socket, and memory that is leased before it is named in a message.
#[derive(Debug)]
pub struct LiteCarrier {
    socket: Socket,
    load: Load,
    /// Memory to be had.
    spare: Vec<Vec<u8>>,
    /// The same for operations with several buffers.
    divided: Vec<Vec<Vec<u8>>>,
    /// What memory must hold when it comes back; `None` if anything may be in there.
    lent: HashMap<Cookie, Option<u64>>,
    /// What a read must bring.
    reading: HashMap<u64, u64>,
    tokens: u64,
}

impl LiteCarrier {
    /// A socket of a host that the load was [configured](Load::configure) for.
    #[must_use]
    pub fn new(socket: Socket, load: &Load) -> Self {
        socket.set_receive_timeout(Some(NAP));
        // What a round sends leaves together, when the task waits for what comes.
        socket.set_corked(true);
        Self {
            socket,
            load: load.clone(),
            spare: Vec::new(),
            divided: Vec::new(),
            lent: HashMap::new(),
            reading: HashMap::new(),
            tokens: 0,
        }
    }

    /// Leases memory. `None` if there is none at this moment.
    fn lend(&mut self, rdma: Rdma, pattern: u64) -> Result<Option<Cookie>, Fault> {
        self.reclaim()?;
        let len = self.load.rdma_bytes;
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(len, 0);
        fill(&mut buffer, if rdma == Rdma::Read { pattern } else { 0 });
        let mut flags = MrFlags::empty();
        flags.set(MrFlags::USE_ONCE, self.load.use_once);
        flags.set(MrFlags::INVALIDATE, self.load.invalidate);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        match self.socket.get_mr(buffer, access, flags) {
            Ok(cookie) => {
                // What cached memory holds is known to nobody: many requests have had it.
                let expected = (!self.load.cache_mrs).then_some(pattern);
                self.lent.insert(cookie, expected);
                Ok(Some(cookie))
            }
            Err(MrError::Refused {
                temporary: true,
                buffer,
                ..
            }) => {
                self.spare.extend(buffer);
                Ok(None)
            }
            Err(error) => Err(Fault::socket(error)),
        }
    }

    fn free(&mut self, cookie: Cookie) -> Result<(), Fault> {
        match self.socket.free_mr(cookie, self.load.invalidate) {
            Ok(FreeOutcome::Dead(buffer)) => self.came_back(cookie, buffer),
            Ok(_) => Ok(()),
            Err(error) => Err(Fault::socket(error)),
        }
    }

    fn reclaim(&mut self) -> Result<(), Fault> {
        while let Some((cookie, buffer)) = self.socket.reclaim() {
            self.came_back(cookie, buffer)?;
        }
        Ok(())
    }

    /// Memory is back: whether read or written, it holds the pattern of its request.
    fn came_back(&mut self, cookie: Cookie, buffer: Vec<u8>) -> Result<(), Fault> {
        if let Some(Some(pattern)) = self.lent.remove(&cookie)
            && self.load.verify
            && !is_filled(&buffer, pattern)
        {
            return Err(Fault::Memory(cookie.bits()));
        }
        self.spare.push(buffer);
        Ok(())
    }

    /// Local memory for an operation.
    fn local(&mut self) -> Buffers {
        let len = self.load.rdma_bytes;
        let count = usize::from(self.load.rdma_vector);
        if count == 1 {
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.resize(len, 0);
            return buffer.into();
        }
        let mut buffers = self.divided.pop().unwrap_or_default();
        buffers.resize_with(count, Vec::new);
        for (buffer, len) in buffers.iter_mut().zip(divide(len, count)) {
            buffer.resize(len, 0);
        }
        buffers.into()
    }

    fn keep(&mut self, buffers: Buffers) {
        if buffers.len() == 1 {
            self.spare.push(buffers.into_first());
        } else {
            self.divided.push(buffers.into_vec());
        }
    }

    /// Takes a notification; returns what the task wants to know.
    fn note(&mut self, note: Notification) -> Result<Option<SocketAddr>, Fault> {
        match note {
            Notification::Rdma {
                token,
                status,
                buffers,
            } => {
                if status != Status::Success {
                    return Err(Fault::Operation { token, status });
                }
                if let Some(pattern) = self.reading.remove(&token)
                    && self.load.verify
                    && !self.load.cache_mrs
                    && !buffers.iter().all(|buffer| is_filled(buffer, pattern))
                {
                    return Err(Fault::Read(token));
                }
                self.keep(buffers);
                Ok(None)
            }
            Notification::Uncongested(to) => Ok(Some(to)),
            Notification::PeerRestarted(peer) => Err(Fault::Restarted(peer)),
            Notification::SendFailed { to, reason, .. } => Err(Fault::Lost {
                to,
                reason: format!("{reason:?}"),
            }),
        }
    }
}

impl Carrier for LiteCarrier {
    type Payload = Buf;

    fn send(&mut self, message: Bytes, to: SocketAddr) -> Result<(), Refusal> {
        self.socket.set_nonblocking(true);
        let sent = self.socket.send_bytes(message, to);
        self.socket.set_nonblocking(false);
        sent.map(drop).map_err(refusal)
    }

    fn ask(
        &mut self,
        to: SocketAddr,
        want: Want,
        compose: impl FnOnce(u64) -> Bytes,
    ) -> Result<u64, Refusal> {
        let cookie = match want {
            Want::New { rdma, pattern } => self.lend(rdma, pattern)?.ok_or(Refusal::NotNow)?,
            Want::Again(cookie) => Cookie::from_bits(cookie),
        };
        let sent = self.send(compose(cookie.bits()), to);
        if sent.is_err() && matches!(want, Want::New { .. }) {
            // Nobody was given it, so nobody has written to it.
            self.lent.insert(cookie, None);
            self.free(cookie)?;
        }
        sent.map(|()| cookie.bits())
    }

    fn settle(&mut self, cookie: u64) -> Result<(), Fault> {
        // The answer has ended what was lent for one use; it comes back through `reclaim`.
        if self.load.use_once {
            return Ok(());
        }
        self.free(Cookie::from_bits(cookie))
    }

    fn operate(
        &mut self,
        to: SocketAddr,
        operation: Operation,
        answer: Bytes,
    ) -> Result<(), Refusal> {
        let mut flags = RdmaFlags::NOTIFY;
        flags.set(RdmaFlags::FENCE, self.load.fence);
        self.tokens += 1;
        let token = self.tokens;
        let op = RdmaOp::new(Cookie::from_bits(operation.cookie))
            .flags(flags)
            .token(token)
            .message(answer);
        let mut buffers = self.local();
        self.socket.set_nonblocking(true);
        let sent = if operation.write {
            for buffer in buffers.as_mut_slice() {
                fill(buffer, operation.pattern);
            }
            self.socket.rdma_write(to, op, buffers)
        } else {
            self.socket.rdma_read(to, op, buffers)
        };
        self.socket.set_nonblocking(false);
        match sent {
            Ok(_) if operation.write => Ok(()),
            Ok(_) => {
                self.reading.insert(token, operation.pattern);
                Ok(())
            }
            Err(refused) => {
                self.keep(refused.buffers);
                Err(refusal(refused.reason))
            }
        }
    }

    fn next(&mut self, wait: bool) -> Result<Option<Arrived<Buf>>, Fault> {
        let mut came = if wait {
            self.socket.recv()
        } else {
            self.socket.try_recv()
        };
        loop {
            match came {
                Ok(Incoming::Message(message)) => {
                    return Ok(Some(Arrived::Message {
                        from: message.from,
                        payload: message.payload,
                        cookie: message.cookie.map(Cookie::bits),
                    }));
                }
                Ok(Incoming::Notification(note)) => {
                    if let Some(to) = self.note(note)? {
                        return Ok(Some(Arrived::Uncongested(to)));
                    }
                }
                Err(RecvError::WouldBlock | RecvError::TimedOut) => return Ok(None),
                Err(error) => return Err(Fault::socket(error)),
            }
            came = self.socket.try_recv();
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.socket.set_corked(false);
        if self.load.rdma_bytes > 0 {
            self.socket.flush_mrs().map_err(Fault::socket)?;
            self.reclaim()?;
        }
        Ok(())
    }
}

fn refusal(error: SendError) -> Refusal {
    match error {
        SendError::WouldBlock => Refusal::NotNow,
        SendError::Congested(_) => Refusal::Congested,
        error => Refusal::Failed(Fault::socket(error)),
    }
}
