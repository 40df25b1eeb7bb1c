//! The peer's end of a connection: what it can do with a key.

use crate::cost::Costs;
use crate::hca::Device;
use crate::packet::Request;
use crate::tpt::State;
use mr_core::RemoteKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One connection (an RC queue pair), seen from the peer that presents keys.
///
/// Offsets count from the start of the mapping, unless its HCA is
/// [based elsewhere](crate::MockHca::based_at). A transfer without bytes checks no key, as on
/// hardware. Anything refused puts the connection into error, and everything on it fails until
/// [`recover`](Self::recover).
///
/// May be shared between threads. Bytes are moved run by run (at most one MTT line, 32 KiB), so
/// an invalidation can come in between: the bytes before it have moved, the rest is refused.
#[derive(Debug)]
pub struct RemotePeer {
    device: Arc<Device>,
    domain: u32,
    number: u32,
    error: AtomicBool,
}

/// What a peer does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMA write.
    Write,
    /// RDMA read.
    Read,
}

/// Why a key worked that should not have: a security event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StaleSource {
    /// Its owner had released it, and the table still honours it.
    Table,
    /// The table says otherwise by now; only a cache knew the key or its pages.
    Cache,
}

/// A transfer that went through, or as far as it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transfer {
    /// Bytes moved.
    pub bytes: u64,
    /// Packets that carried them.
    pub packets: u64,
    /// Whether any of them passed through a stale key; if by both ways, `Cache`.
    pub stale: Option<StaleSource>,
    /// HCA and link time, and misses.
    pub costs: Costs,
}

/// An operation that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} refused after {} bytes: {reason}", transfer.bytes)]
pub struct Refusal {
    /// The key presented.
    pub key: RemoteKey,
    /// Why.
    pub reason: RefusalReason,
    /// What had gone through before, and what all of it cost.
    pub transfer: Transfer,
}

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// No region has this index.
    #[error("no region has this key's index")]
    UnknownKey,
    /// The region honours no key, or another one.
    #[error("the key is not honoured (any more)")]
    Invalidated,
    /// The key belongs to another protection domain.
    #[error("the key belongs to another protection domain")]
    WrongDomain,
    /// The key belongs to another connection.
    #[error("the key belongs to another connection")]
    WrongConnection,
    /// The mapping does not allow this operation.
    #[error("the mapping does not allow this operation")]
    AccessDenied,
    /// An atomic operation on memory that is not 8-byte aligned.
    #[error("an atomic operation needs memory that is aligned to 8 bytes")]
    Misaligned,
    /// The transfer reaches beyond the mapping.
    #[error("the transfer reaches beyond the mapping")]
    OutOfRange,
    /// The key was honoured and its page is not there (any more): it was overwritten by a
    /// shorter mapping. Real HCAs work on whole pages and would reach the rest of the page.
    #[error("the page behind the key is not there any more")]
    NoTranslation,
    /// The HCA knows no invalidation by peers.
    #[error("the HCA knows no SEND_WITH_INV")]
    Unsupported,
    /// An earlier operation was refused.
    #[error("the connection is in error since an earlier refusal: recover it")]
    ConnectionInError,
    /// The device was removed.
    #[error("the device was removed")]
    DeviceRemoved,
}

impl RemotePeer {
    pub(crate) const fn new(device: Arc<Device>, domain: u32, number: u32) -> Self {
        Self {
            device,
            domain,
            number,
            error: AtomicBool::new(false),
        }
    }

    /// The connection's number, unique on its device.
    pub const fn number(&self) -> u32 {
        self.number
    }

    pub(crate) const fn domain(&self) -> u32 {
        self.domain
    }

    pub(crate) fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// RDMA write of `data` to `offset` of the mapping.
    ///
    /// # Errors
    ///
    /// [`Refusal`], with what had been written before.
    pub fn write(&self, key: RemoteKey, offset: u64, data: &[u8]) -> Result<Transfer, Refusal> {
        let request = self.request(Operation::Write, key, offset, data.len() as u64);
        self.transfer(&request, |run, done| {
            let data = data.get(done..).unwrap_or_default();
            let data = data.get(..run.len as usize).unwrap_or_default();
            run.span.write(run.offset, data)
        })
    }

    /// RDMA read of `into.len()` bytes from `offset` of the mapping.
    ///
    /// # Errors
    ///
    /// [`Refusal`], with what had been read before.
    pub fn read(&self, key: RemoteKey, offset: u64, into: &mut [u8]) -> Result<Transfer, Refusal> {
        let request = self.request(Operation::Read, key, offset, into.len() as u64);
        self.transfer(&request, |run, done| {
            let into = into.get_mut(done..).unwrap_or_default();
            let into = into.get_mut(..run.len as usize).unwrap_or_default();
            run.span.read(run.offset, into)
        })
    }

    /// Does everything that a [`write`](Self::write) or [`read`](Self::read) of `len` bytes does,
    /// except for moving the bytes: for simulations.
    ///
    /// One lock for the whole transfer, no allocation, some 10 ns for each MTT line.
    ///
    /// # Errors
    ///
    /// [`Refusal`], as they do.
    pub fn touch(
        &self,
        operation: Operation,
        key: RemoteKey,
        offset: u64,
        len: u64,
    ) -> Result<Transfer, Refusal> {
        let request = self.request(operation, key, offset, len);
        let mut transfer = Transfer::default();
        self.check_state(key)?;
        if len == 0 {
            return Ok(transfer);
        }
        let mut engine = self.device.lock();
        while transfer.bytes < len {
            engine
                .next_run(&request, &mut transfer)
                .map_err(|reason| self.refuse(key, reason, transfer))?;
        }
        Ok(transfer)
    }

    /// SEND_WITH_INV: kills `key`.
    ///
    /// Afterwards the region is clean without any local work, and
    /// [`MrBackend::invalidated_by_peer`](mr_core::MrBackend::invalidated_by_peer) says so. Older
    /// keys of the region that caches still knew are evicted with it.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the HCA cannot, or the key is not the one that the region has, or belongs to
    /// another protection domain or connection.
    pub fn invalidate(&self, key: RemoteKey) -> Result<Transfer, Refusal> {
        self.check_state(key)?;
        let mut engine = self.device.lock();
        let costs = engine.model.remote_invalidate();
        let transfer = Transfer {
            packets: 1,
            costs,
            ..Transfer::default()
        };
        let refuse = |reason| self.refuse(key, reason, Transfer::default());
        if engine.removed {
            return Err(refuse(RefusalReason::DeviceRemoved));
        }
        if !engine.knobs.remote_invalidate {
            engine.counters.packets_refused += 1;
            return Err(refuse(RefusalReason::Unsupported));
        }
        let checked = match engine.tpt.entry(key.index()) {
            None => Err(RefusalReason::UnknownKey),
            Some(entry) => match entry.honours(key) {
                None => Err(RefusalReason::Invalidated),
                Some(mapping) if mapping.domain != self.domain => Err(RefusalReason::WrongDomain),
                Some(mapping) if mapping.connection.is_some_and(|of| of != self.number) => {
                    Err(RefusalReason::WrongConnection)
                }
                Some(_) => Ok(()),
            },
        };
        if let Err(reason) = checked {
            engine.counters.packets_refused += 1;
            return Err(refuse(reason));
        }
        engine.forget(key.index(), State::PeerInvalid);
        engine.counters.invalidated_by_peers += 1;
        engine.costs += costs;
        Ok(transfer)
    }

    /// Whether an operation was refused on this connection.
    pub fn is_in_error(&self) -> bool {
        self.error.load(Ordering::Acquire)
    }

    /// Brings the connection back into service.
    pub fn recover(&self) {
        self.error.store(false, Ordering::Release);
    }

    /// Runs a transfer, taking the lock for each run; `copy` gets the run and how many bytes went
    /// before it.
    pub(crate) fn transfer(
        &self,
        request: &Request,
        mut copy: impl FnMut(&crate::packet::Run, usize) -> bool,
    ) -> Result<Transfer, Refusal> {
        let mut transfer = Transfer::default();
        self.check_state(request.key)?;
        while transfer.bytes < request.len {
            let done = transfer.bytes as usize;
            // Held until the run's bytes have moved: an invalidation waits for them.
            let mut engine = self.device.lock();
            let passed = engine.next_run(request, &mut transfer).and_then(|run| {
                copy(&run, done)
                    .then_some(())
                    .ok_or(RefusalReason::NoTranslation)
            });
            drop(engine);
            passed.map_err(|reason| self.refuse(request.key, reason, transfer))?;
        }
        Ok(transfer)
    }

    pub(crate) fn request(
        &self,
        operation: Operation,
        key: RemoteKey,
        offset: u64,
        len: u64,
    ) -> Request {
        Request {
            operation,
            key,
            offset,
            len,
            domain: self.domain,
            connection: self.number,
            atomic: false,
        }
    }

    fn check_state(&self, key: RemoteKey) -> Result<(), Refusal> {
        if self.is_in_error() {
            return Err(Refusal {
                key,
                reason: RefusalReason::ConnectionInError,
                transfer: Transfer::default(),
            });
        }
        Ok(())
    }

    pub(crate) fn refuse(
        &self,
        key: RemoteKey,
        reason: RefusalReason,
        transfer: Transfer,
    ) -> Refusal {
        self.error.store(true, Ordering::Release);
        Refusal {
            key,
            reason,
            transfer,
        }
    }
}
