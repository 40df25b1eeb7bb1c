//! RDMA: memory for peers, and theirs.

use crate::proto::{AtomicOp, OpKind, Posted, SendError, Sending};
use crate::rdma::{Buffers, Cookie, FreeOutcome, MrError, MrFlags, Region};
use crate::socket::Socket;
use crate::wire::MAX_MESSAGE;
use bytes::Bytes;
use mr_core::Access;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

bitflags::bitflags! {
    /// How an RDMA operation is done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RdmaFlags: u8 {
        /// The message arrives after a read has ended. (After a write it always does.)
        const FENCE = 1;
        /// Success is reported, too. Failures are always, and so is what has fetched something.
        const NOTIFY = 2;
    }
}

/// An RDMA operation, and the message that tells the peer of it.
///
/// The local buffers (most often one) belong to the operation until its
/// [`Notification::Rdma`](crate::proto::Notification::Rdma) brings them back; a write that succeeds
/// without `NOTIFY` drops them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RdmaOp {
    /// The peer's memory.
    pub cookie: Cookie,
    /// Where to begin in it.
    pub offset: u64,
    /// How.
    pub flags: RdmaFlags,
    /// What the report shall name.
    pub token: u64,
    /// The message.
    pub message: Bytes,
}

impl RdmaOp {
    /// An operation at the beginning of the memory that `cookie` names, with an empty message.
    pub const fn new(cookie: Cookie) -> Self {
        Self {
            cookie,
            offset: 0,
            flags: RdmaFlags::empty(),
            token: 0,
            message: Bytes::new(),
        }
    }

    /// Begins at `offset` in the peer's memory.
    #[must_use]
    pub const fn at(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Sets how it is done.
    #[must_use]
    pub const fn flags(mut self, flags: RdmaFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Sets what the report names.
    #[must_use]
    pub const fn token(mut self, token: u64) -> Self {
        self.token = token;
        self
    }

    /// Sets the message.
    #[must_use]
    pub fn message(mut self, message: impl Into<Bytes>) -> Self {
        self.message = message.into();
        self
    }

    fn sending(self, kind: OpKind) -> Sending {
        Sending {
            payload: self.message,
            cookie: None,
            op: Some(Posted {
                kind,
                cookie: self.cookie,
                offset: self.offset,
                fence: self.flags.contains(RdmaFlags::FENCE),
                notify: self.flags.contains(RdmaFlags::NOTIFY),
                token: self.token,
            }),
        }
    }
}

/// An operation that was not taken, with its buffers.
#[derive(Debug)]
pub struct RefusedOp {
    /// Why not.
    pub reason: SendError,
    /// The local buffers.
    pub buffers: Buffers,
}

impl fmt::Display for RefusedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for RefusedOp {}

impl From<RefusedOp> for SendError {
    fn from(refused: RefusedOp) -> Self {
        refused.reason
    }
}

impl Socket {
    /// Lets peers reach `buffer` through the cookie returned, as far as `access` goes. Waits up to
    /// one second for a region.
    ///
    /// # Errors
    ///
    /// [`MrError`], which gives the buffer back; unless the pool had to keep it, or its key could not be
    /// killed, which the error says.
    pub fn get_mr(
        &self,
        buffer: Vec<u8>,
        access: Access,
        flags: MrFlags,
    ) -> Result<Cookie, MrError> {
        let shared = &self.host.shared;
        let fabric = shared.fabric.name();
        let pool = shared.memory.regions();
        let Some(pool) = pool.filter(|_| shared.fabric.kind().rdma) else {
            let buffer = Some(buffer);
            return Err(MrError::Unsupported { fabric, buffer });
        };
        if buffer.len() > MAX_MESSAGE {
            return Err(MrError::TooLong { buffer });
        }
        // What is back already makes room for what will come.
        shared.memory.reclaim(shared);
        let patience = if self.blocks() {
            Duration::from_secs(1)
        } else {
            Duration::ZERO
        };
        let lease = pool.lease(buffer, access, patience)?;
        let Ok(offset) = u32::try_from(lease.remote_addr()) else {
            let cookie = Cookie::new(lease.key(), 0);
            let buffer = self.take_back(Region {
                cookie,
                flags,
                lease,
            });
            return Err(MrError::NotZeroBased { buffer });
        };
        let cookie = Cookie::new(lease.key(), offset);
        shared.memory.meter(cookie);
        let region = Region {
            cookie,
            flags,
            lease,
        };
        match shared.with(|core| core.add_region(self.id, region)) {
            Ok(()) => Ok(cookie),
            Err(region) => {
                let buffer = self.take_back(region);
                Err(MrError::Closed { buffer })
            }
        }
    }

    /// The buffer of a region that nobody gets. If its key does not die it comes back through
    /// [`reclaim`](Self::reclaim).
    fn take_back(&self, region: Region) -> Option<Vec<u8>> {
        match self.host.shared.memory.free(self.id, region, true) {
            FreeOutcome::Dead(buffer) => Some(buffer),
            FreeOutcome::InProgress => None,
        }
    }

    /// Ends the use of a cookie. With `invalidate` its key is killed now: then
    /// [`FreeOutcome::Dead`] says that the HCA refuses it, and returns the buffer. Without, or if the
    /// key could not be killed, peers may go on using the memory until the policy has had its
    /// flush; the buffer comes back through [`reclaim`](Self::reclaim).
    ///
    /// # Errors
    ///
    /// [`MrError::UnknownCookie`]: not of this socket, freed before, or used up.
    pub fn free_mr(&self, cookie: Cookie, invalidate: bool) -> Result<FreeOutcome, MrError> {
        let shared = &self.host.shared;
        let region = shared.with(|core| core.take_region(self.id, cookie));
        let region = region.ok_or(MrError::UnknownCookie)?;
        let invalidate = invalidate || region.flags.contains(MrFlags::INVALIDATE);
        Ok(shared.memory.free(self.id, region, invalidate))
    }

    /// Kills all keys that any socket of the host has released, or whose loans were ended by a use that somebody
    /// has heard of. Says whether all are dead; then their buffers can be [reclaimed](Self::reclaim).
    ///
    /// # Errors
    ///
    /// [`MrError::Unsupported`].
    pub fn flush_mrs(&self) -> Result<bool, MrError> {
        let shared = &self.host.shared;
        let fabric = shared.fabric.name();
        let pool = shared.memory.regions();
        let buffer = None;
        let pool = pool.ok_or(MrError::Unsupported { fabric, buffer })?;
        let dead = shared.memory.flush(&**pool);
        shared.memory.reclaim(shared);
        Ok(dead)
    }

    /// Writes a buffer, or several one behind the other, into memory of the peer, and then delivers
    /// the message.
    ///
    /// # Errors
    ///
    /// [`RefusedOp`]; nothing was done, and the buffers are in there.
    pub fn rdma_write(
        &self,
        to: SocketAddr,
        op: RdmaOp,
        buffers: impl Into<Buffers>,
    ) -> Result<u64, RefusedOp> {
        self.post(to, op.sending(OpKind::Write(buffers.into())))
    }

    /// Fills a buffer, or several one after the other, from memory of the peer, and delivers the message; before the read has ended,
    /// unless it is fenced.
    ///
    /// # Errors
    ///
    /// [`RefusedOp`]; nothing was done, and the buffers are in there.
    pub fn rdma_read(
        &self,
        to: SocketAddr,
        op: RdmaOp,
        buffers: impl Into<Buffers>,
    ) -> Result<u64, RefusedOp> {
        self.post(to, op.sending(OpKind::Read(buffers.into())))
    }

    fn post(&self, to: SocketAddr, mut sending: Sending) -> Result<u64, RefusedOp> {
        self.send_message(&mut sending, to).map_err(|reason| {
            let buffers = match sending.op.map(|op| op.kind) {
                Some(OpKind::Write(buffers) | OpKind::Read(buffers)) => buffers,
                _ => Buffers::none(),
            };
            RefusedOp { reason, buffers }
        })
    }

    /// Changes 8 aligned bytes of the peer's memory. The report brings what was there.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was done.
    pub fn atomic(&self, to: SocketAddr, op: RdmaOp, change: AtomicOp) -> Result<u64, SendError> {
        self.send_message(&mut op.sending(OpKind::Atomic(change)), to)
    }
}
