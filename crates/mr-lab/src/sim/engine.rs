//! The HCA's data path: transfers, a chunk at a time.

use super::spending::Spending;
use super::{LabLease, NEVER};
use crate::demand::Demand;
use mr_mock::{Operation, Refusal, RemotePeer};
use std::collections::VecDeque;

/// Bytes of one transfer before it is the next one's turn: two lines of an MTT cache.
const CHUNK: u64 = 64 * 1024;

/// One I/O with its lease, on its way.
#[derive(Debug)]
pub(super) struct Transfer<'p> {
    lease: LabLease<'p>,
    operation: Operation,
    bytes: u64,
    done: u64,
    arrived: u64,
}

impl<'p> Transfer<'p> {
    pub(super) const fn new(lease: LabLease<'p>, operation: Operation, demand: Demand) -> Self {
        Self {
            lease,
            operation,
            bytes: demand.bytes,
            done: 0,
            arrived: demand.at,
        }
    }

    pub(super) const fn arrived(&self) -> u64 {
        self.arrived
    }

    pub(super) fn into_lease(self) -> LabLease<'p> {
        self.lease
    }
}

/// Works on up to `width` transfers at once, a chunk of each in turn, and on what else the HCA is
/// given to do in between.
#[derive(Debug)]
pub(super) struct Engine<'p> {
    peer: RemotePeer,
    width: usize,
    /// The one whose chunk is on its way, and when that has gone through.
    current: Option<Transfer<'p>>,
    current_end: u64,
    /// Those whose turn comes next.
    active: VecDeque<Transfer<'p>>,
    waiting: VecDeque<Transfer<'p>>,
    /// Work to be done before the next chunk.
    owed: u64,
    /// When work given to an idle engine is done.
    busy_until: u64,
}

impl<'p> Engine<'p> {
    pub(super) const fn new(peer: RemotePeer, width: usize) -> Self {
        Self {
            peer,
            width,
            current: None,
            current_end: NEVER,
            active: VecDeque::new(),
            waiting: VecDeque::new(),
            owed: 0,
            busy_until: 0,
        }
    }

    pub(super) const fn peer(&self) -> &RemotePeer {
        &self.peer
    }

    /// When the present chunk has gone through.
    pub(super) const fn next(&self) -> u64 {
        self.current_end
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Gives the engine `nanos` of other work.
    pub(super) fn work(&mut self, now: u64, nanos: u64) {
        if self.is_idle() {
            self.busy_until = self.busy_until.max(now) + nanos;
        } else {
            self.owed += nanos;
        }
    }

    /// A transfer is ready to go.
    pub(super) fn push(
        &mut self,
        transfer: Transfer<'p>,
        now: u64,
        spending: &mut Spending,
    ) -> Result<(), Refusal> {
        if self.is_idle() {
            let start = self.busy_until.max(now);
            return self.begin(transfer, start, spending);
        }
        if self.active.len() + 1 < self.width {
            self.active.push_back(transfer);
        } else {
            self.waiting.push_back(transfer);
        }
        Ok(())
    }

    /// Ends the present chunk and begins the next. Returns the transfer that is complete, if one is.
    pub(super) fn finish(
        &mut self,
        now: u64,
        spending: &mut Spending,
    ) -> Result<Option<Transfer<'p>>, Refusal> {
        let Some(current) = self.current.take() else {
            return Ok(None);
        };
        let complete = if current.done < current.bytes {
            self.active.push_back(current);
            None
        } else {
            self.active.extend(self.waiting.pop_front());
            Some(current)
        };
        let start = now + std::mem::take(&mut self.owed);
        match self.active.pop_front() {
            Some(next) => self.begin(next, start, spending)?,
            None => {
                self.current_end = NEVER;
                self.busy_until = start;
            }
        }
        Ok(complete)
    }

    fn begin(
        &mut self,
        mut transfer: Transfer<'p>,
        start: u64,
        spending: &mut Spending,
    ) -> Result<(), Refusal> {
        let length = CHUNK.min(transfer.bytes - transfer.done);
        let key = transfer.lease.remote_key();
        let moved = self
            .peer
            .touch(transfer.operation, key, transfer.done, length)?;
        spending.add(moved.costs);
        transfer.done += length;
        self.current_end = start + moved.costs.hca_ns.max(moved.costs.link_ns);
        self.current = Some(transfer);
        Ok(())
    }
}
