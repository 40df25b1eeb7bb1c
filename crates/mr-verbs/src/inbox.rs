//! The receive side of a connection.

use crate::arena::{Arena, ArenaBuffer};
use crate::completion::{Arrival, Status};
use crate::peer_keys::PeerKeys;
use crate::qp::QueuePair;
use crate::wait::lock;
use crate::{Domain, Error, ProtocolError, sys};
use mr_core::{DmaBuffer, RemoteKey};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// A message of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// What it says.
    pub bytes: Vec<u8>,
    /// The key that the peer had this host's HCA invalidate with it. It was a live key of this
    /// connection, and its lease can be ended by [`take_if_peer_invalidated`].
    ///
    /// [`take_if_peer_invalidated`]: mr_core::Lease::take_if_peer_invalidated
    pub invalidated: Option<RemoteKey>,
}

/// Receive buffers, and what has arrived in them and was not fetched.
///
/// A buffer is posted again only when its message has been fetched, so a peer cannot make this
/// grow: it waits (receiver not ready) when all are full.
pub(crate) struct Inbox {
    arrived: Mutex<VecDeque<Delivery>>,
    slots: NonNull<u8>,
    slot_bytes: u32,
    /// See [`Arrival::from_raw`].
    kernel_flags: bool,
    buffer: ArenaBuffer,
}

// SAFETY: the buffer's memory is read only for slots that have completed and are not posted again,
// under the lock of `arrived`.
unsafe impl Send for Inbox {}
// SAFETY: as above.
unsafe impl Sync for Inbox {}

struct Delivery {
    slot: u64,
    bytes: u32,
    status: Status,
    invalidated: Result<Option<RemoteKey>, ProtocolError>,
}

/// What a look into the inbox found.
pub(crate) enum Found {
    Nothing,
    Message(Message),
    /// The peer did what it must not do; the connection still works.
    Breach(ProtocolError),
    /// The connection is in error.
    Failed(Status),
}

impl Inbox {
    pub(crate) fn new(domain: &Arc<Domain>, slots: u32, slot_bytes: u32) -> Result<Self, Error> {
        let arena = Arena::new(domain, slots as usize * slot_bytes as usize)?;
        let mut buffer = arena.take(arena.size())?;
        let start = DmaBuffer::as_mut_ptr(&mut buffer);
        Ok(Self {
            arrived: Mutex::new(VecDeque::with_capacity(slots as usize)),
            slots: NonNull::new(start).ok_or(Error::ArenaFull { len: 1, size: 0 })?,
            slot_bytes,
            kernel_flags: domain.device().is_software(),
            buffer,
        })
    }

    /// Posts all buffers. To be called once, before the queue pair is connected.
    pub(crate) fn post_all(&self, pair: &QueuePair) -> Result<(), Error> {
        (0..u64::from(pair.size().receives)).try_for_each(|slot| self.post(pair, slot))
    }

    fn post(&self, pair: &QueuePair, slot: u64) -> Result<(), Error> {
        let local = self.buffer.local(self.slot_bytes);
        let addr = local.addr + slot * u64::from(self.slot_bytes);
        // SAFETY: the slot lies in the buffer, which outlives the queue pair: see `Link`.
        unsafe { sys::post_receive(pair.raw(), slot, addr, local.len, local.key) }
            .map_err(|errno| Error::system("posting a receive", errno))
    }

    /// Takes note of what has arrived, and of the keys that the peer has had invalidated.
    pub(crate) fn look(&self, pair: &QueuePair, keys: &PeerKeys) {
        self.look_locked(pair, keys, &mut lock(&self.arrived));
    }

    fn look_locked(&self, pair: &QueuePair, keys: &PeerKeys, arrived: &mut VecDeque<Delivery>) {
        loop {
            let polled = pair.receives().poll(|raw| {
                let Arrival {
                    slot,
                    status,
                    bytes,
                    invalidated,
                } = Arrival::from_raw(&raw, self.kernel_flags);
                let invalidated = match invalidated.map(RemoteKey::from_bits) {
                    None => Ok(None),
                    Some(key) => keys.invalidated(key).map(|()| Some(key)),
                };
                if let Err(breach) = &invalidated {
                    tracing::warn!(%breach, "protocol error of the peer");
                }
                arrived.push_back(Delivery {
                    slot,
                    bytes,
                    status,
                    invalidated,
                });
            });
            if !matches!(polled, Ok(sys::POLL_BATCH)) {
                return;
            }
        }
    }

    /// Takes the oldest message out.
    pub(crate) fn fetch(&self, pair: &QueuePair, keys: &PeerKeys) -> Found {
        let mut arrived = lock(&self.arrived);
        if arrived.is_empty() {
            self.look_locked(pair, keys, &mut arrived);
        }
        let Some(delivery) = arrived.pop_front() else {
            return Found::Nothing;
        };
        if delivery.status != Status::Success {
            return Found::Failed(delivery.status);
        }
        let bytes = self.copy_out(delivery.slot, delivery.bytes);
        if let Err(error) = self.post(pair, delivery.slot) {
            tracing::warn!(%error, "a receive buffer is lost to its connection");
        }
        match delivery.invalidated {
            Ok(invalidated) => Found::Message(Message { bytes, invalidated }),
            Err(breach) => Found::Breach(breach),
        }
    }

    /// Copies a message that has arrived and whose slot is not posted.
    fn copy_out(&self, slot: u64, bytes: u32) -> Vec<u8> {
        let mut message = vec![0; bytes.min(self.slot_bytes) as usize];
        let offset = slot as usize * self.slot_bytes as usize;
        // SAFETY: slots lie in the buffer.
        let from = unsafe { self.slots.add(offset) };
        // SAFETY: the HCA has filled the slot and has no business there until it is posted again;
        // the vector is as long as what is copied.
        unsafe {
            from.copy_to_nonoverlapping(NonNull::from(&mut message[..]).cast(), message.len())
        };
        message
    }
}
