//! A connection, from the making of its queue pair to its end.

use crate::cm::batch::Batch;
use crate::cm::config::ConnectionConfig;
use crate::cm::id::CmId;
use crate::cm::ledger::Ledger;
use crate::cm::local::{Local, Staging};
use crate::cm::pair::Pair;
use crate::cm::poller::{Ended, Over};
use crate::cm::slots::Slots;
use crate::cm::waker::Waker;
use crate::sys::cm::{Parameters, RawEvent, Tuning};
use crate::sys::rc::{Piece, Request, Room, Size};
use crate::wait::lock;
use crate::{Domain, Errno, Error, Status};
use std::fmt;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The sending end of a connection, for any number of threads. Clones are the same one.
///
/// It stays connected while one of these or its [`Poller`](crate::cm::Poller) is there and nobody
/// disconnects. All calls return at once.
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Arc<Inner>,
}

/// What a connection and its poller share.
pub(crate) struct Inner {
    pub(crate) domain: Arc<Domain>,
    pub(crate) config: ConnectionConfig,
    pub(crate) sends: Mutex<SendSide>,
    receives: Mutex<ReceiveSide>,
    /// Why and since when it is over.
    over: Mutex<Option<(Over, Instant)>>,
    /// The same, to be seen at a glance.
    broken: AtomicBool,
    pub(crate) waker: Waker,
    pub(crate) pair: Pair,
    // What the HCA may touch goes after the queue pair: see `drop`.
    pub(crate) memory: Arc<Memory>,
    pub(crate) id: CmId,
}

/// The memory that frames and short RDMA operations go through.
pub(crate) struct Memory {
    /// One per work request that may be under way.
    pub(crate) outgoing: Slots,
    pub(crate) incoming: Slots,
    pub(crate) staging: Staging,
}

/// The work requests.
pub(crate) struct SendSide {
    pub(crate) ledger: Ledger<Pending>,
    /// What is being put together.
    pub(crate) requests: Vec<Request>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) room: Room,
    /// What has ended without the HCA, and was not told yet. Bounded as the ledger is: what is in here
    /// still takes its room.
    pub(crate) dead: Vec<Ended>,
}

/// A work request that is under way.
pub(crate) enum Pending {
    Send { id: u64 },
    Rdma { id: u64, local: Local },
    Atomic { id: u64, slot: u32 },
}

struct ReceiveSide {
    /// Slots that are not posted.
    free: Vec<u32>,
    room: Room,
}

impl Inner {
    /// Makes a queue pair for `id` with all its receives posted, connected to nothing yet.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        config: &ConnectionConfig,
        id: CmId,
    ) -> Result<Self, Error> {
        id.check_device(domain.device())?;
        let config = config.clamped(domain.device());
        let size = Size {
            sends: config.sends,
            receives: config.receives,
            elements: elements(domain),
        };
        let stride = config.slot_bytes();
        let memory = Memory {
            outgoing: Slots::new(domain, config.sends, stride)?,
            incoming: Slots::new(domain, config.receives, stride)?,
            staging: Staging::new(domain, &config)?,
        };
        let inner = Self {
            domain: Arc::clone(domain),
            sends: Mutex::new(SendSide {
                ledger: Ledger::new(config.sends),
                requests: Vec::new(),
                pieces: Vec::new(),
                room: Room::default(),
                dead: Vec::new(),
            }),
            receives: Mutex::new(ReceiveSide {
                free: (0..config.receives).rev().collect(),
                room: Room::default(),
            }),
            over: Mutex::new(None),
            broken: AtomicBool::new(false),
            waker: Waker::new()?,
            pair: Pair::new(domain, size)?,
            memory: Arc::new(memory),
            config,
            id,
        };
        if let Some(initialised) = inner.pair.with(|qp| inner.id.initialise(qp)) {
            initialised?;
        }
        match inner.try_repost(config.receives)? {
            all if all == config.receives => Ok(inner),
            _ => Err(Error::System {
                what: "posting receives",
                errno: Errno::ENOMEM,
            }),
        }
    }

    /// Pieces of memory that one work request can have.
    pub(crate) fn elements(&self) -> usize {
        elements(&self.domain) as usize
    }

    /// What this end asks for or answers with; `heard` is what the peer has asked for.
    pub(crate) fn parameters<'d>(
        &self,
        heard: Option<&RawEvent>,
        private_data: &'d [u8],
    ) -> Parameters<'d> {
        let tuning = self.tuning(heard);
        Parameters {
            qp_number: self.pair.number(),
            responder_resources: tuning.responder_resources,
            initiator_depth: tuning.initiator_depth,
            retries: tuning.retries,
            private_data,
        }
    }

    fn tuning(&self, heard: Option<&RawEvent>) -> Tuning {
        let ours = self.config.rd_atomic;
        let agreed =
            |theirs: fn(&RawEvent) -> u8| heard.map_or(ours, |event| ours.min(theirs(event)));
        Tuning {
            ack_timeout: self.config.ack_timeout,
            retries: self.config.retries,
            rnr_timer: self.config.rnr_timer,
            responder_resources: agreed(|event| event.responder_resources),
            initiator_depth: agreed(|event| event.initiator_depth),
        }
    }

    /// Takes the queue pair to where it receives and sends.
    pub(crate) fn make_ready(&self, heard: &RawEvent) -> Result<(), Error> {
        let tuning = self.tuning(Some(heard));
        let ready = self.pair.with(|qp| self.id.make_ready(qp, &tuning));
        ready.unwrap_or(Ok(()))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Why and since when the connection is over.
    pub(crate) fn over(&self) -> Option<(Over, Instant)> {
        *lock(&self.over)
    }

    /// Ends the connection: nothing is accepted from the peer any more, what is posted is flushed,
    /// and the peer is told. The first reason counts; says whether this was it.
    pub(crate) fn end(&self, reason: Over) -> bool {
        {
            let mut over = lock(&self.over);
            if over.is_some() {
                return false;
            }
            *over = Some((reason, Instant::now()));
        }
        self.broken.store(true, Ordering::Release);
        self.pair.break_off();
        self.id.disconnect();
        self.waker.wake();
        true
    }

    /// A slot whose frame has been looked at.
    pub(crate) fn give_slot_back(&self, slot: u32) {
        lock(&self.receives).free.push(slot);
    }

    /// Posts up to `count` of the free slots; says how many.
    fn try_repost(&self, count: u32) -> Result<u32, Error> {
        let mut side = lock(&self.receives);
        let ReceiveSide { free, room } = &mut *side;
        let keep = free.len().saturating_sub(count as usize);
        let frame = self.config.frame_bytes();
        let slots = free[keep..].iter().rev().map(|&slot| {
            let id = RECEIVE | u64::from(slot);
            (id, self.memory.incoming.piece(slot, frame))
        });
        // SAFETY: the slots are free, and their memory stays until the queue pair is gone.
        let posted = match unsafe { self.pair.post_receives(room, slots) } {
            None => return Ok(0),
            Some(Ok(posted)) => (posted, Ok(())),
            Some(Err(error)) => (
                error.posted,
                Err(Error::system("posting receives", error.errno)),
            ),
        };
        let (posted, outcome) = posted;
        free.truncate(free.len() - posted);
        outcome.map(|()| posted as u32)
    }

    /// Has the HCA let go of everything, and ends it.
    pub(crate) fn destroy_pair(&self) -> Result<(), Error> {
        self.pair
            .destroy()
            .map_err(|errno| Error::system("destroying a queue pair", errno))
    }
}

fn elements(domain: &Domain) -> u32 {
    /// As many as RDS has: each makes every slot of the queue longer.
    const WANTED: u32 = 8;
    WANTED.clamp(1, domain.device().attr().max_elements.max(1))
}

/// Marks the ids of receives.
pub(crate) const RECEIVE: u64 = 1 << 63;

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(errno) = self.pair.destroy() {
            // The HCA may go on: its memory must stay. The pair says so when it is dropped.
            tracing::error!(%errno, "the memory of a connection is leaked with its queue pair");
            std::mem::forget(Arc::clone(&self.memory));
            lock(&self.sends)
                .ledger
                .end_all(|pending, _| std::mem::forget(pending));
        }
    }
}

impl Connection {
    /// The address of this end.
    pub fn local_addr(&self) -> SocketAddrV4 {
        self.inner.id.addresses().0
    }

    /// The address of the peer.
    pub fn peer_addr(&self) -> SocketAddrV4 {
        self.inner.id.addresses().1
    }

    /// The settings, within their bounds and those of the device.
    pub fn config(&self) -> &ConnectionConfig {
        &self.inner.config
    }

    /// Begins to put work requests together, which go out together. Others wait for it meanwhile.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.inner)
    }

    /// Work requests that fit at this moment.
    pub fn room(&self) -> u32 {
        let side = lock(&self.inner.sends);
        side.free_room() as u32
    }

    /// Posts up to `count` receives into slots whose frames have been polled. Says how many; none
    /// when the connection is over.
    pub fn repost(&self, count: u32) -> u32 {
        if self.inner.is_broken() {
            return 0;
        }
        self.inner.try_repost(count).unwrap_or_else(|error| {
            tracing::warn!(%error, "receives");
            self.inner.end(Over::Failed(Status::Flushed));
            0
        })
    }

    /// Ends the connection: what is posted is flushed, and the peer is told. The poller then hears
    /// [`Over::Closed`], and how everything has ended.
    pub fn disconnect(&self) {
        self.inner.end(Over::Closed);
    }

    /// Whether it is over, for whatever reason.
    pub fn is_over(&self) -> bool {
        self.inner.is_broken()
    }

    /// Wakes the poller.
    pub fn waker(&self) -> &Waker {
        &self.inner.waker
    }
}

impl SendSide {
    pub(crate) fn free_room(&self) -> u64 {
        self.ledger.room().saturating_sub(self.dead.len() as u64)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, peer) = self.id.addresses();
        f.debug_struct("Connection")
            .field("local", &local)
            .field("peer", &peer)
            .field("over", &self.over().map(|(over, _)| over))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
