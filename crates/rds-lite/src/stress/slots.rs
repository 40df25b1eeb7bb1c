//! The requests of one task to one peer that wait for an answer.

use super::header::Rdma;
use mr_core::Time;
use std::net::SocketAddr;

/// A request under way.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) seq: u32,
    pub(super) sent: Time,
    /// The cookie of the memory that the answerer was given.
    pub(super) lent: Option<u64>,
    pub(super) rdma: Rdma,
    pub(super) busy: bool,
}

/// Another task, as this one sees it.
pub(super) struct Peer {
    pub(super) addr: SocketAddr,
    pub(super) slots: Vec<Slot>,
    pub(super) next_seq: u32,
    /// The number of its next request.
    pub(super) expected: u32,
    /// Its requests that have no answer yet.
    pub(super) unanswered: u16,
    /// It has said that it is congested, and not yet that it is not.
    pub(super) congested: bool,
}

impl Peer {
    pub(super) fn new(addr: SocketAddr, depth: u16) -> Self {
        let slot = Slot {
            seq: 0,
            sent: Time::ZERO,
            lent: None,
            rdma: Rdma::None,
            busy: false,
        };
        Self {
            addr,
            slots: vec![slot; usize::from(depth)],
            next_seq: 1,
            expected: 1,
            unanswered: 0,
            congested: false,
        }
    }

    pub(super) fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| !slot.busy)
    }
}
