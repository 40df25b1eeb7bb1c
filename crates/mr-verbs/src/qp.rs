//! Completion queues and RC queue pairs.

use crate::device::report_leak;
use crate::sys::{self, Path, QpSize};
use crate::{Device, Domain, Errno, Error};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    raw: sys::Cq,
    _device: Arc<Device>,
}

impl CompletionQueue {
    pub(crate) fn new(device: &Arc<Device>, entries: u32) -> Result<Self, Error> {
        // SAFETY: the device is open as long as the queue lives, which holds on to it.
        let raw = unsafe { sys::create_cq(device.context(), entries) }
            .map_err(|errno| Error::system("creating a completion queue", errno))?;
        Ok(Self {
            raw,
            _device: Arc::clone(device),
        })
    }

    /// Takes what has completed, up to a batch; says how many.
    pub(crate) fn poll(&self, take: impl FnMut(sys::RawCompletion)) -> Result<usize, Errno> {
        // SAFETY: the queue exists while `self` does.
        unsafe { sys::poll_cq(self.raw, take) }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs own their completion queues and free them after themselves.
        if let Err(errno) = unsafe { sys::destroy_cq(self.raw) } {
            report_leak("completion queue", errno);
        }
    }
}

/// Where a queue pair can be reached: what the two ends of a connection tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAddress {
    /// Number of the queue pair.
    pub number: u32,
    /// Number of the first packet that it sends (24 bits).
    pub psn: u32,
    /// Address of its port.
    pub gid: [u8; 16],
    /// Local identifier of its port; 0 on Ethernet.
    pub lid: u16,
}

/// How a connection waits for the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    /// 4.096 µs × 2 to this power until a packet is sent again.
    pub(crate) ack_timeout: u8,
    /// How often, at most 7.
    pub(crate) count: u8,
}

/// An RC queue pair with its two completion queues.
#[derive(Debug)]
pub(crate) struct QueuePair {
    raw: sys::Qp,
    address: QpAddress,
    gid_index: u8,
    size: QpSize,
    // Below the queue pair, which must go first: see `drop`.
    send: CompletionQueue,
    receive: CompletionQueue,
    domain: Arc<Domain>,
}

impl QueuePair {
    /// Makes a queue pair that takes receives, and is connected to nothing.
    pub(crate) fn new(domain: &Arc<Domain>, size: QpSize) -> Result<Self, Error> {
        let device = domain.device();
        let gid = device.gid()?;
        let lid = device.query_port()?.lid;
        let size = QpSize {
            sends: size.sends.min(device.attr().max_qp_wr),
            receives: size.receives.min(device.attr().max_qp_wr),
            ..size
        };
        // In error, each request completes, signalled or not.
        let entries = |requests: u32| (requests + 1).min(device.attr().max_cqe);
        let send = CompletionQueue::new(device, entries(size.sends))?;
        let receive = CompletionQueue::new(device, entries(size.receives))?;
        // SAFETY: domain and completion queues live as long as the queue pair, which owns them.
        let made = unsafe { sys::create_qp(domain.raw(), send.raw, receive.raw, size) };
        let (raw, number, given) =
            made.map_err(|errno| Error::system("creating a queue pair", errno))?;
        domain
            .population()
            .queue_pairs
            .fetch_add(1, Ordering::Relaxed);
        let pair = Self {
            raw,
            address: QpAddress {
                number,
                psn: random_psn(number),
                gid: gid.bytes,
                lid,
            },
            gid_index: gid.index,
            size: QpSize {
                // Not what the device rounds up to: the completion queue is for these.
                sends: size.sends,
                receives: size.receives,
                inline_bytes: given.inline_bytes,
            },
            send,
            receive,
            domain: Arc::clone(domain),
        };
        // SAFETY: the queue pair exists while `pair` does.
        unsafe { sys::qp_to_init(raw, device.port()) }
            .map_err(|errno| Error::system("initialising a queue pair", errno))?;
        Ok(pair)
    }

    /// Connects to the queue pair at `peer`, which may be this one.
    pub(crate) fn connect(&self, peer: &QpAddress, retries: Retries) -> Result<(), Error> {
        let device = self.domain.device();
        let port = device.query_port()?;
        let path = Path {
            peer_number: peer.number,
            peer_psn: peer.psn,
            peer_gid: peer.gid,
            peer_lid: peer.lid,
            gid_index: self.gid_index,
            global: port.ethernet || peer.lid == 0,
            port: device.port(),
            mtu: port.mtu,
            rd_atomic: device.attr().max_rd_atomic,
            psn: self.address.psn,
            ack_timeout: retries.ack_timeout,
            retries: retries.count,
        };
        // SAFETY: the queue pair exists while `self` does.
        unsafe { sys::qp_to_rtr(self.raw, &path) }
            .map_err(|errno| Error::system("connecting a queue pair (to receive)", errno))?;
        // SAFETY: as above.
        unsafe { sys::qp_to_rts(self.raw, &path) }
            .map_err(|errno| Error::system("connecting a queue pair (to send)", errno))
    }

    /// Puts the queue pair into error: it accepts nothing more from the peer, and whatever is
    /// posted is flushed.
    pub(crate) fn break_off(&self) -> Result<(), Errno> {
        // SAFETY: the queue pair exists while `self` does.
        unsafe { sys::qp_to_error(self.raw) }
    }

    pub(crate) const fn raw(&self) -> sys::Qp {
        self.raw
    }

    pub(crate) const fn address(&self) -> QpAddress {
        self.address
    }

    pub(crate) const fn size(&self) -> QpSize {
        self.size
    }

    pub(crate) const fn sends(&self) -> &CompletionQueue {
        &self.send
    }

    pub(crate) const fn receives(&self) -> &CompletionQueue {
        &self.receive
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the queue pair exists, and is not used again; its completion queues go after
        // it, as fields do.
        match unsafe { sys::destroy_qp(self.raw) } {
            Ok(()) => {
                self.domain
                    .population()
                    .queue_pairs
                    .fetch_sub(1, Ordering::Relaxed);
            }
            Err(errno) => report_leak("queue pair", errno),
        }
    }
}

/// Random, so that a late packet of an earlier connection does not fit in.
fn random_psn(number: u32) -> u32 {
    RandomState::new().hash_one(number) as u32 & 0xff_ffff
}
