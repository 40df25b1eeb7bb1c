//! Work requests that go out together.

use crate::cm::connection::{Inner, Pending, SendSide};
use crate::cm::local::{Direction, Local};
use crate::cm::poller::{Ended, Over};
use crate::sys::rc::{Action, Piece, Request};
use crate::wait::lock;
use crate::{Error, Status};
use mr_core::RemoteKey;
use std::fmt;
use std::sync::MutexGuard;

bitflags::bitflags! {
    /// How a work request is treated.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// Its end is told as soon as it has ended. Without it, together with the end of a later one;
        /// or never, if none follows.
        const SIGNALLED = 1;
        /// The peer is woken also if it sleeps until a frame says so, as the kernel's RDS does.
        const SOLICITED = 2;
        /// It begins only after all RDMA reads and atomic operations before it have ended.
        const FENCE = 4;
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteMemory {
    /// The address of the first byte, as the peer's key has it.
    pub addr: u64,
    /// The key.
    pub key: RemoteKey,
}

/// Why a work request was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// As many as fit are under way. It fits again when some have ended.
    #[error("the send queue is full: post again when something has ended")]
    Full,
    /// It is longer, or in more pieces, than goes at once; or its header has another length than
    /// headers have.
    #[error("{len} where {max} go at once: split it")]
    TooLong {
        /// What it has.
        len: u64,
        /// What is allowed.
        max: u64,
    },
    /// Its buffers could not be registered.
    #[error("the buffers of an RDMA operation: {0}")]
    Buffers(Error),
}

/// An RDMA operation that was not taken, with its buffers.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct NotTaken {
    /// Why.
    pub why: Refused,
    /// The buffers, as they were.
    pub local: Vec<Vec<u8>>,
}

/// Work requests that are put together and go out with one doorbell, in order.
///
/// Whatever it has taken ends exactly once in [`Poller::poll`](crate::cm::Poller::poll) after it was
/// posted; on a connection that is over, as flushed. Dropping it without [`post`](Self::post) takes
/// everything back: nothing goes out, nothing ends, and buffers are dropped.
#[must_use = "nothing goes out before `post`"]
pub struct Batch<'c> {
    inner: &'c Inner,
    side: MutexGuard<'c, SendSide>,
    /// Number of its first request.
    first: u64,
    /// Requests for which it leaves room.
    spared: u64,
}

impl<'c> Batch<'c> {
    pub(crate) fn new(inner: &'c Inner) -> Self {
        let side = lock(&inner.sends);
        Self {
            inner,
            first: side.ledger.next(),
            side,
            spared: 0,
        }
    }

    /// From here on it leaves room for so many requests, and refuses as if the queue were full. A user
    /// that spares room for something of which only one at a time is under way finds it at any time.
    pub fn spare(&mut self, requests: u32) {
        self.spared = u64::from(requests);
    }

    /// Sends a frame: both parts are copied at once.
    ///
    /// # Errors
    ///
    /// Nothing was taken.
    pub fn send(
        &mut self,
        id: u64,
        header: &[u8],
        payload: &[u8],
        flags: Flags,
    ) -> Result<(), Refused> {
        let config = &self.inner.config;
        let header_bytes = config.header_bytes as usize;
        if header.len() != header_bytes {
            return Err(too_long(header.len(), header_bytes));
        }
        let most = config.payload_bytes as usize;
        if payload.len() > most {
            return Err(too_long(payload.len(), most));
        }
        self.check_room(1)?;
        let slot = self.slot();
        let outgoing = &self.inner.memory.outgoing;
        // SAFETY: the request that had the slot before has ended, since there are as many slots as
        // requests that may be under way, and the lock keeps others away.
        unsafe { outgoing.fill(slot, [header, payload]) };
        let piece = outgoing.piece(slot, (header.len() + payload.len()) as u32);
        // To some devices a piece of no bytes is one of 2 GiB.
        let pieces = if piece.len > 0 { &[piece][..] } else { &[] };
        self.take(Pending::Send { id }, &[(Action::Send, pieces)], flags);
        Ok(())
    }

    /// RDMA write of `local`, one buffer after the other, to the peer.
    ///
    /// # Errors
    ///
    /// The buffers come back.
    pub fn write(
        &mut self,
        id: u64,
        local: Vec<Vec<u8>>,
        remote: RemoteMemory,
        flags: Flags,
    ) -> Result<(), NotTaken> {
        self.transfer(id, local, remote, flags, Direction::Out)
    }

    /// RDMA read from the peer, filling one buffer of `local` after the other.
    ///
    /// # Errors
    ///
    /// The buffers come back.
    pub fn read(
        &mut self,
        id: u64,
        local: Vec<Vec<u8>>,
        remote: RemoteMemory,
        flags: Flags,
    ) -> Result<(), NotTaken> {
        self.transfer(id, local, remote, flags, Direction::In)
    }

    /// Adds to 8 bytes of the peer, which must be aligned, and fetches what they were.
    ///
    /// # Errors
    ///
    /// Nothing was taken.
    pub fn fetch_add(
        &mut self,
        id: u64,
        remote: RemoteMemory,
        add: u64,
        flags: Flags,
    ) -> Result<(), Refused> {
        let RemoteMemory { addr, key } = remote;
        let key = key.bits();
        self.atomic(id, Action::FetchAdd { addr, key, add }, flags)
    }

    /// Stores `swap` in 8 bytes of the peer, which must be aligned, if they are `compare`; fetches
    /// what they were.
    ///
    /// # Errors
    ///
    /// Nothing was taken.
    pub fn compare_swap(
        &mut self,
        id: u64,
        remote: RemoteMemory,
        compare: u64,
        swap: u64,
        flags: Flags,
    ) -> Result<(), Refused> {
        let RemoteMemory { addr, key } = remote;
        let action = Action::CompareSwap {
            addr,
            key: key.bits(),
            compare,
            swap,
        };
        self.atomic(id, action, flags)
    }

    /// Whether nothing was taken yet.
    pub fn is_empty(&self) -> bool {
        self.side.requests.is_empty()
    }

    /// Lets everything go out: one doorbell, which is a system call on a software device.
    ///
    /// It never fails: what cannot go out ends as flushed.
    pub fn post(mut self) {
        let SendSide {
            requests,
            pieces,
            room,
            ..
        } = &mut *self.side;
        if requests.is_empty() {
            return;
        }
        let posted = if self.inner.is_broken() {
            Err(None)
        } else {
            // SAFETY: the memory is that of slots and of `Local`s in the ledger, which stay until
            // their requests have ended.
            match unsafe { self.inner.pair.post_sends(room, requests, pieces) } {
                None => Err(None),
                Some(Ok(())) => Ok(()),
                Some(Err(error)) => Err(Some(error)),
            }
        };
        requests.clear();
        pieces.clear();
        if let Err(error) = posted {
            let went = error.map_or(0, |error| error.posted as u64);
            self.cut(self.first + went);
            if let Some(error) = error {
                tracing::warn!(errno = %error.errno, "work requests");
                self.inner.end(Over::Failed(Status::Flushed));
            }
            self.inner.waker.wake();
        }
        self.first = self.side.ledger.next();
    }

    fn transfer(
        &mut self,
        id: u64,
        local: Vec<Vec<u8>>,
        remote: RemoteMemory,
        flags: Flags,
        direction: Direction,
    ) -> Result<(), NotTaken> {
        // Registering is dear: look for room first, with a bound on what it can take.
        let elements = self.inner.elements();
        let requests = local.len().div_ceil(elements).max(1) as u64;
        if let Err(why) = self.check_room(requests) {
            return Err(NotTaken { why, local });
        }
        let len = local.iter().map(|buffer| buffer.len() as u64).sum();
        if len > LONGEST_TRANSFER {
            let why = Refused::TooLong {
                len,
                max: LONGEST_TRANSFER,
            };
            return Err(NotTaken { why, local });
        }
        let staging = &self.inner.memory.staging;
        let (local, pieces) = Local::prepare(&self.inner.domain, staging, local, direction)?;
        let key = remote.key.bits();
        let mut addr = remote.addr;
        let act = |pieces: &[Piece]| {
            let action = match direction {
                Direction::Out => Action::Write { addr, key },
                Direction::In => Action::Read { addr, key },
            };
            let bytes = pieces.iter().map(|piece| u64::from(piece.len)).sum::<u64>();
            addr = addr.wrapping_add(bytes);
            action
        };
        let pending = Pending::Rdma { id, local };
        if pieces.is_empty() {
            let mut act = act;
            self.take(pending, &[(act(&[]), &[])], flags);
        } else {
            let chunks = pieces.chunks(elements);
            let actions: Vec<_> = chunks.clone().map(act).zip(chunks).collect();
            self.take(pending, &actions, flags);
        }
        Ok(())
    }

    fn atomic(&mut self, id: u64, action: Action, flags: Flags) -> Result<(), Refused> {
        self.check_room(1)?;
        let slot = self.slot();
        let piece = self.inner.memory.outgoing.piece(slot, 8);
        self.take(Pending::Atomic { id, slot }, &[(action, &[piece])], flags);
        Ok(())
    }

    fn check_room(&self, requests: u64) -> Result<(), Refused> {
        let longest = self.side.ledger.longest();
        if requests > longest {
            let elements = self.inner.elements() as u64;
            return Err(Refused::TooLong {
                len: requests * elements,
                max: longest * elements,
            });
        }
        if requests > self.side.free_room().saturating_sub(self.spared) {
            return Err(Refused::Full);
        }
        Ok(())
    }

    /// The slot of the next request.
    fn slot(&self) -> u32 {
        let slots = u64::from(self.inner.memory.outgoing.count());
        (self.side.ledger.next() % slots) as u32
    }

    /// Enters requests for which there is room.
    fn take(&mut self, pending: Pending, actions: &[(Action, &[Piece])], flags: Flags) {
        let SendSide {
            ledger,
            requests,
            pieces,
            ..
        } = &mut *self.side;
        let first = ledger.next();
        let wanted = flags.contains(Flags::SIGNALLED);
        let signalled = ledger.push(actions.len() as u64, wanted, pending);
        let last = actions.len() - 1;
        for (place, (action, own)) in actions.iter().enumerate() {
            requests.push(Request {
                id: first + place as u64,
                action: *action,
                pieces: own.len() as u32,
                signalled: signalled && place == last,
                solicited: flags.contains(Flags::SOLICITED),
                fence: flags.contains(Flags::FENCE),
            });
            pieces.extend_from_slice(own);
        }
    }

    /// Ends the requests from `number` on, which have not gone out.
    fn cut(&mut self, number: u64) {
        let SendSide { ledger, dead, .. } = &mut *self.side;
        ledger.cut(number, |pending| dead.push(Ended::unposted(pending)));
    }
}

/// Bytes of one operation: what the InfiniBand specification lets a message have.
const LONGEST_TRANSFER: u64 = 1 << 30;

const fn too_long(len: usize, max: usize) -> Refused {
    Refused::TooLong {
        len: len as u64,
        max: max as u64,
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let SendSide {
            ledger,
            requests,
            pieces,
            ..
        } = &mut *self.side;
        if !requests.is_empty() {
            requests.clear();
            pieces.clear();
            ledger.retract(self.first);
        }
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("requests", &self.side.requests.len())
            .finish_non_exhaustive()
    }
}
