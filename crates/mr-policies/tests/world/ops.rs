//! What the operations do, to the pool and to the model.

use super::state::{Backend, Given, OWNED, PEER, Way, World};
use super::steps::{MAX_LEN, Step};
use crate::support::Buffer;
use mr_core::{
    Access, BackendError, Clock, InvalidateError, Lease, LeaseError, LeaseRefusal, MrBackend,
    OwnedLease, Pending, Pool,
};
use mr_mock::{Call, Fault, FaultPlan, RefusalReason, When};
use proptest::sample::Index;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

pub(super) type Refused = LeaseError<<Backend as MrBackend>::Error, Buffer>;

impl World {
    pub(crate) fn apply(&mut self, step: &Step) {
        match *step {
            Step::Lease { len, access, waits } => self.lease(len, access, waits),
            Step::LeaseChained { len, access } => self.lease_chained(len, access),
            Step::LeaseBatch {
                ref wanted,
                waits,
                chained,
            } => self.lease_batch(wanted, waits, chained),
            Step::Release(index) => self.release(index),
            Step::Drop(index) => self.drop_lease(index),
            Step::ReleasePending(index) => self.release_pending(index),
            Step::Invalidate(index) => self.invalidate(index),
            Step::PeerInvalidates(index) => self.peer_invalidates(index),
            Step::Poll(index) => self.wait_for(index, Pending::try_take),
            Step::WaitForNoTime(index) => {
                self.wait_for(index, |pending| {
                    pending.wait_timeout(Duration::ZERO).map_err(|e| e.pending)
                });
            }
            Step::DropPending(index) => self.drop_pending(index),
            Step::LeaveToPool(index) => self.leave_to_pool(index),
            Step::Reclaim(most) => self.reclaim(most),
            Step::Flush => self.flush(),
            Step::Pass(ms) => self.pass(Duration::from_millis(ms.into())),
            Step::DoWhatIsDue => drop(self.pool.step()),
            Step::GiveUpFlush => drop(self.pool.due().flush),
            Step::SlowFlush(ms) => self.slow_flush(Duration::from_millis(ms.into())),
            Step::Access { key, writes } => self.access(key, writes),
            Step::Fault(call, fault) => self.inject(call, fault),
        }
        self.note_dropped();
    }

    fn lease(&mut self, len: usize, access: Access, waits: bool) {
        self.names += 1;
        let name = self.names;
        let buffer = Buffer::new(name, len, &self.morgue);
        if !waits {
            return self.try_lease(name, buffer);
        }
        let pool = Arc::clone(&self.pool);
        match pool.lease_owned(buffer, access, Duration::ZERO) {
            Ok(lease) => {
                self.note_lease(name, &lease);
                self.leases.push((name, lease));
            }
            Err(error) => self.note_refusal(name, len, error),
        }
    }

    /// A lease that neither waits nor flushes, and is released at once.
    fn try_lease(&mut self, name: u64, buffer: Buffer) {
        let len = buffer.bytes.len();
        let pool = Arc::clone(&self.pool);
        match pool.try_lease(buffer, Access::all()) {
            Ok(lease) => {
                self.note_lease(name, &lease);
                let now = self.clock.now();
                let given = self.given(name);
                (given.released, given.way) = (Some(now), Way::ToCollect);
                lease.release();
            }
            Err(error) => self.note_refusal(name, len, error),
        }
    }

    pub(super) fn note_refusal(&mut self, name: u64, len: usize, error: Refused) {
        match &error.reason {
            LeaseRefusal::ZeroLength | LeaseRefusal::TooLong { .. } => {
                assert!(len == 0 || len > MAX_LEN);
            }
            LeaseRefusal::Exhausted { .. } => self.counts.depleted += 1,
            LeaseRefusal::Backend(failure) => {
                assert!(self.faulted, "{failure}");
                self.counts.refused += 1;
                let known = failure.kind().leaves_region_known();
                assert_eq!(error.buffer.is_some(), known, "{failure}");
                if !known {
                    self.limbo.push(name);
                }
            }
            other => panic!("{other}"),
        }
        if let Some(buffer) = error.buffer {
            assert_eq!(buffer.name, name);
            self.own(buffer);
        }
    }

    pub(super) fn note_lease<P>(&mut self, name: u64, lease: &Lease<Backend, Buffer, P>)
    where
        P: Deref<Target = Pool<Backend, Buffer>>,
    {
        self.counts.leases += 1;
        let place = lease.region().unwrap().place;
        let entry = self.book.latest(place);
        let key = lease.remote_key();
        assert_eq!(Some(key), entry.key);
        // I6: among all that may be honoured, once.
        let same = self
            .book
            .all()
            .into_iter()
            .filter(|(_, other)| other.key == Some(key));
        assert_eq!(
            same.count(),
            1,
            "{key} was given out again while it may be honoured"
        );
        self.given.push(Given {
            name,
            key,
            place,
            serial: entry.serial,
            bytes: lease.len(),
            access: lease.access(),
            released: None,
            way: Way::Leased,
        });
    }

    fn take_lease(&mut self, index: Index, way: Way) -> Option<(u64, OwnedLease<Backend, Buffer>)> {
        if self.leases.is_empty() {
            return None;
        }
        let (name, lease) = self.leases.swap_remove(index.index(self.leases.len()));
        let now = self.clock.now();
        let given = self.given(name);
        given.released = Some(now);
        given.way = way;
        Some((name, lease))
    }

    fn release(&mut self, index: Index) {
        if let Some((_, lease)) = self.take_lease(index, Way::ToCollect) {
            lease.release();
        }
    }

    fn drop_lease(&mut self, index: Index) {
        drop(self.take_lease(index, Way::ToDrop));
    }

    fn release_pending(&mut self, index: Index) {
        if let Some((name, lease)) = self.take_lease(index, Way::ToHand) {
            self.pendings.push((name, lease.release_pending()));
        }
    }

    fn invalidate(&mut self, index: Index) {
        let Some((name, lease)) = self.take_lease(index, Way::ToCollect) else {
            return;
        };
        match lease.invalidate() {
            Ok(buffer) => {
                self.come_back(name, buffer);
                self.assert_refused(name);
            }
            Err(InvalidateError::Backend(_) | InvalidateError::Flush(_)) => {
                assert!(self.faulted, "invalidation failed without a fault");
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn peer_invalidates(&mut self, index: Index) {
        if self.leases.is_empty() {
            return;
        }
        let at = index.index(self.leases.len());
        self.peer.recover();
        self.peer
            .invalidate(self.leases[at].1.remote_key())
            .unwrap();
        let (name, lease) = self.take_lease(index, Way::ToCollect).unwrap();
        let buffer = lease.take_if_peer_invalidated().unwrap();
        self.come_back(name, buffer);
    }

    fn wait_for(
        &mut self,
        index: Index,
        wait: impl FnOnce(Pending<Buffer>) -> Result<Buffer, Pending<Buffer>>,
    ) {
        if self.pendings.is_empty() {
            return;
        }
        let (name, pending) = self.pendings.swap_remove(index.index(self.pendings.len()));
        match wait(pending) {
            Ok(buffer) => self.come_back(name, buffer),
            Err(pending) => {
                assert!(
                    self.may_be_kept(name),
                    "the key is dead and the buffer not here"
                );
                self.pendings.push((name, pending));
            }
        }
    }

    fn drop_pending(&mut self, index: Index) {
        if self.pendings.is_empty() {
            return;
        }
        let (name, pending) = self.pendings.swap_remove(index.index(self.pendings.len()));
        self.given(name).way = Way::ToDrop;
        drop(pending);
    }

    fn leave_to_pool(&mut self, index: Index) {
        if self.pendings.is_empty() {
            return;
        }
        let (name, pending) = self.pendings.swap_remove(index.index(self.pendings.len()));
        self.given(name).way = Way::ToCollect;
        if let Some(buffer) = pending.leave_to_pool() {
            self.come_back(name, buffer);
        }
    }

    pub(crate) fn reclaim(&mut self, most: usize) {
        let mut buffers = Vec::new();
        let count = self.pool.reclaim(&mut buffers, most);
        assert_eq!(count, buffers.len());
        assert!(count <= most);
        for buffer in buffers {
            let name = buffer.name;
            if let Some(place) = self.limbo.iter().position(|other| *other == name) {
                self.limbo.swap_remove(place);
                self.own(buffer);
            } else {
                assert_eq!(self.given(name).way, Way::ToCollect);
                self.come_back(name, buffer);
            }
        }
    }

    fn flush(&mut self) {
        match self.pool.flush() {
            Ok(()) => {
                let names = self.given.iter().filter(|given| given.released.is_some());
                for name in names.map(|given| given.name).collect::<Vec<_>>() {
                    self.assert_refused(name);
                }
            }
            Err(error) => assert!(self.faulted, "{error}"),
        }
    }

    /// Lets time pass, stepping the pool exactly when it asked for it.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        let mut steps = 0;
        while let Some(at) = self.pool.next_due().filter(|at| *at <= end) {
            self.clock.advance_to(at);
            self.pool.step();
            self.check_exposure();
            steps += 1;
            assert!(steps < 10_000, "the pool is never content");
        }
        self.clock.advance_to(end);
        self.check_exposure();
    }

    fn slow_flush(&mut self, time: Duration) {
        let Some(mut flush) = self.pool.due().flush else {
            return;
        };
        let mut took = Duration::ZERO;
        while flush.invalidate_next() {
            self.clock.advance(time);
            took += time;
            assert_eq!(self.pool.stats().regions.total(), self.capacity);
            flush.settle();
        }
        drop(flush);
        self.slowest_flush = self.slowest_flush.max(took);
    }

    /// A peer uses a key: one that lives must work, one that is dead must not (promise 2).
    fn access(&mut self, index: Index, writes: bool) {
        if self.given.is_empty() {
            return;
        }
        let given = &self.given[index.index(self.given.len())];
        let allowed = given.access.contains(if writes {
            Access::REMOTE_WRITE
        } else {
            Access::REMOTE_READ
        });
        let leased = given.way == Way::Leased;
        let (key, bytes) = (given.key, given.bytes as usize);
        let held = self
            .book
            .all()
            .into_iter()
            .any(|(_, entry)| entry.key == Some(key));
        self.peer.recover();
        let outcome = if writes {
            self.peer.write(key, 0, &vec![PEER; bytes])
        } else {
            self.peer.read(key, 0, &mut vec![0; bytes])
        };
        match outcome {
            Ok(_) => assert!(held || self.limbo_holds(), "a dead key was honoured: {key}"),
            Err(refusal) if leased && allowed => panic!("a live key was refused: {refusal}"),
            Err(refusal) if leased => assert_eq!(refusal.reason, RefusalReason::AccessDenied),
            Err(_) => {}
        }
    }

    /// A peer's access through a key that is said to be dead.
    fn assert_refused(&mut self, name: u64) {
        let (key, serial) = (self.given(name).key, self.given(name).serial);
        // The same value may lawfully be alive again, 256 maps later.
        let alive = self.book.all();
        assert!(
            alive.iter().all(|(_, entry)| entry.serial != serial),
            "{key} is not dead"
        );
        if alive.iter().any(|(_, entry)| entry.key == Some(key)) || self.limbo_holds() {
            return;
        }
        self.peer.recover();
        let read = self.peer.read(key, 0, &mut [0]);
        self.peer.recover();
        let write = self.peer.write(key, 0, &[PEER]);
        assert!(read.is_err() && write.is_err(), "{key} is still honoured");
    }

    fn inject(&mut self, call: Call, fault: Fault) {
        self.faulted = true;
        self.plan.retain(|(other, _)| *other != call);
        self.plan.push((call, fault));
        let mut plan = FaultPlan::none();
        for &(call, fault) in &self.plan {
            plan = plan.on(call, When::Nth(1), fault);
        }
        self.faults.set_plan(plan);
    }

    /// A buffer is with its owner again: from now on nobody else may change it (I4).
    fn come_back(&mut self, name: u64, buffer: Buffer) {
        assert_eq!(buffer.name, name);
        let (place, serial) = (self.given(name).place, self.given(name).serial);
        assert!(
            !self.book.is_alive(place, serial),
            "came back while its key is alive"
        );
        self.given(name).way = Way::Over;
        self.own(buffer);
    }

    pub(super) fn own(&mut self, mut buffer: Buffer) {
        buffer.bytes.fill(OWNED);
        self.owned.push(buffer);
    }

    /// What the pool has dropped since the last step: only what nobody wanted, with its key dead.
    fn note_dropped(&mut self) {
        for name in self.morgue.take() {
            let (place, serial) = (self.given(name).place, self.given(name).serial);
            assert_eq!(
                self.given(name).way,
                Way::ToDrop,
                "buffer {name} was dropped"
            );
            assert!(
                !self.book.is_alive(place, serial),
                "dropped while its key is alive"
            );
            self.given(name).way = Way::Over;
        }
    }

    pub(super) fn given(&mut self, name: u64) -> &mut Given {
        let given = self.given.iter_mut().find(|given| given.name == name);
        given.unwrap()
    }
}
