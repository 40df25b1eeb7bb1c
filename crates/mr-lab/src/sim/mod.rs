//! One run: a load, a preset and a policy, in virtual time.
//!
//! The pool is the production pool of `mr-core`, driven by hand over a clock that this module
//! moves; the HCA is the mock of `mr-mock`, whose costs this module puts on the clock. Nothing
//! here decides when a key dies.
//!
//! # The way of an I/O
//!
//! 1. It *arrives*. If the pool has no region (`try_lease` says `Exhausted`) it waits, and those
//!    behind it wait in order; the first to wait calls for a flush, as `Pool::lease` would.
//! 2. It is *leased* and mapped. The caller's time for that passes before the peer has the key.
//! 3. The *peer* takes the service time (10 ms by default) until it moves data.
//! 4. The *transfer* goes through the HCA (`engine`): a number of transfers at once, a chunk of
//!    each in turn, so that they share the caches as they would; each chunk takes the time of the
//!    engine (packets and misses) or of the link, whichever is longer. Work requests for maps and
//!    per-key invalidations, and the stall of a fence, take engine time in between.
//! 5. It is *released*, and the policy takes over. A flush (`flusher`) runs at its own pace
//!    beside all this: it takes the time that the mock says, and keys die at its end.
//!
//! The CPU is counted and not queued for: there are many. Per I/O, one long-lived mapping in turn
//! (`hot`) takes a packet.
//!
//! # The end
//!
//! The run ends when the load's duration is over and the last I/O is complete. Keys that are stale
//! then count with the age that they have.

mod buffers;
mod engine;
mod flusher;
mod hot;
mod meter;
pub(crate) mod outcome;
mod spending;

use crate::LabError;
use crate::demand::{Demand, Demands};
use crate::row::Row;
use crate::scenario::Scenario;
use crate::trace::Kind;
use crate::units::nanos;
use buffers::Buffers;
use engine::{Engine, Transfer};
use flusher::Flusher;
use hot::HotKeys;
use meter::Meter;
use mr_core::{
    Access, BorrowedLease, Driver, LeaseError, LeaseRefusal, ManualClock, MrBackend, Pool, Time,
};
use mr_mock::{GhostBuffer, MockHca, Operation, Preset};
use mr_policies::Policy;
use outcome::Outcome;
use spending::Spending;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

type LabPool = Pool<MockHca, GhostBuffer>;
type LabLease<'p> = BorrowedLease<'p, MockHca, GhostBuffer>;

/// Never: after every time that a run reaches.
const NEVER: u64 = u64::MAX;

/// Runs `policy` under the load of `scenario` on an HCA of `preset`.
///
/// Takes about a quarter of a microsecond for an I/O of 4 KiB and somewhat over one for one of
/// 1 MiB, and memory for what is stale at once, not for the load.
///
/// # Errors
///
/// The scenario or the policy cannot hold on this preset, or the trace cannot be read.
pub fn run(scenario: &Scenario, preset: &Preset, policy: &Policy) -> Result<Row, LabError> {
    scenario.check()?;
    scenario.check_on(preset)?;
    let hca = MockHca::new(preset);
    let peer = hca.connect();
    let hca = hca.for_connection(&peer).map_err(LabError::Hca)?;
    let clock = Arc::new(ManualClock::new());
    let hot = HotKeys::new(&hca, scenario.hot_keys)?;
    let pool: LabPool = Pool::builder(hca.clone(), policy.clone())
        .configure(|config| {
            config.capacity = scenario.regions;
            config.order = scenario.order;
            config.seed = Some(scenario.seed);
            config.max_age = scenario.max_age;
            config.max_stale = Some(u32::MAX);
            config.max_stale_bytes = scenario.max_stale_bytes;
            config.max_unclaimed = Some(u32::MAX);
            config.shards = 1;
            config.driver = Driver::Manual;
        })
        .clock(Arc::clone(&clock))
        .build()?;
    let sim = Sim {
        clock,
        now: 0,
        pool: &pool,
        soft: hca.capabilities().soft_invalidate,
        demands: Demands::of(&scenario.load, scenario.seed)?,
        pending: None,
        blocked: false,
        serving: VecDeque::new(),
        service: nanos(scenario.service_time),
        engine: Engine::new(peer, scenario.concurrency as usize),
        flusher: Flusher::new(nanos(scenario.flush_delay)),
        buffers: Buffers::new(scenario.load.largest()),
        hot,
        spending: Spending::new(hca),
        meter: Meter::new(),
    };
    let end = nanos(scenario.load.duration());
    let outcome = sim.run(end)?;
    let stats = pool.stats();
    // The clock stands still: each key that is alive goes into the books with its present age.
    let closed = pool.flush().map(|()| pool.stats().exposure);
    let closed = closed.map_err(LabError::Flush)?;
    Ok(Row::new(preset, policy, outcome, &stats, &closed))
}

/// The state of a run.
struct Sim<'p> {
    clock: Arc<ManualClock>,
    now: u64,
    pool: &'p LabPool,
    /// Whether a release costs a soft invalidation.
    soft: bool,
    demands: Demands,
    /// The next I/O to be leased. What comes after it waits in `demands`.
    pending: Option<Demand>,
    /// `pending` has arrived and there was no region for it.
    blocked: bool,
    /// I/Os that their peers are at, in the order in which they will be done.
    serving: VecDeque<(u64, Transfer<'p>)>,
    service: u64,
    engine: Engine<'p>,
    flusher: Flusher<'p>,
    buffers: Buffers,
    hot: HotKeys,
    spending: Spending,
    meter: Meter,
}

impl<'p> Sim<'p> {
    fn run(mut self, end: u64) -> Result<Outcome, LabError> {
        self.pending = self.demands.next()?;
        loop {
            let arrival = match &self.pending {
                Some(demand) if !self.blocked => demand.at.max(self.now),
                _ => NEVER,
            };
            let served = self.serving.front().map_or(NEVER, |(at, _)| *at);
            let (transferred, flusher) = (self.engine.next(), self.flusher.next());
            let next = arrival.min(served).min(transferred).min(flusher);
            if self.is_over() && next > end.max(self.now) {
                break;
            }
            if next == NEVER {
                return Err(self.stuck("I/Os wait, and nothing is due"));
            }
            self.advance(next);
            // At one time: first what frees regions, last what takes them.
            if next == flusher {
                self.flush()?;
            } else if next == transferred {
                self.transfer()?;
            } else if next == served {
                self.serve()?;
            } else {
                self.arrive()?;
            }
            self.flusher.notice(self.pool, self.now);
        }
        self.advance(end);
        Ok(Outcome {
            elapsed: self.now,
            costs: self.spending.total(),
            flushing: self.flusher.busy(),
            meter: self.meter,
        })
    }

    /// Whether every I/O is complete, and every flush that has begun.
    fn is_over(&self) -> bool {
        self.pending.is_none()
            && self.serving.is_empty()
            && self.engine.is_idle()
            && !self.flusher.is_flushing()
    }

    fn advance(&mut self, to: u64) {
        self.now = self.now.max(to);
        self.clock.advance_to(Time::from_nanos(self.now));
    }

    /// Leases a region for the pending I/O.
    fn arrive(&mut self) -> Result<(), LabError> {
        let Some(demand) = self.pending else {
            return Ok(());
        };
        let buffer = self
            .buffers
            .take(self.pool, &mut self.meter, demand.bytes)?;
        let access = match demand.kind {
            Kind::Read => Access::REMOTE_WRITE | Access::LOCAL_WRITE,
            Kind::Write => Access::REMOTE_READ,
        };
        match self.pool.try_lease(buffer, access) {
            Ok(lease) => {
                self.leased(demand, lease)?;
                self.pending = self.demands.next()?;
            }
            Err(LeaseError {
                reason: LeaseRefusal::Exhausted { .. },
                buffer,
            }) => {
                self.buffers.put(buffer);
                self.blocked = true;
                self.flusher.call_for_help(self.now);
            }
            Err(LeaseError { reason, .. }) => return Err(self.stuck(reason)),
        }
        Ok(())
    }

    fn leased(&mut self, demand: Demand, lease: LabLease<'p>) -> Result<(), LabError> {
        self.meter.leased(demand.at, self.now, demand.bytes);
        let map = self.spending.since_last();
        let request = self.hot.touch(self.engine.peer(), &mut self.spending);
        let request = request.map_err(|refusal| self.stuck(refusal))?;
        self.engine.work(self.now, map.hca_ns + request.hca_ns);
        let operation = match demand.kind {
            Kind::Read => Operation::Write,
            Kind::Write => Operation::Read,
        };
        let transfer = Transfer::new(lease, operation, demand);
        let at = self.now + map.elapsed_ns + self.service;
        self.serving.push_back((at, transfer));
        // Nearly always in order: only the time to map differs.
        let mut place = self.serving.len() - 1;
        while place > 0 && self.serving[place - 1].0 > at {
            self.serving.swap(place - 1, place);
            place -= 1;
        }
        Ok(())
    }

    /// The peer of the first I/O is ready to move its data.
    fn serve(&mut self) -> Result<(), LabError> {
        let Some((_, transfer)) = self.serving.pop_front() else {
            return Ok(());
        };
        let pushed = self.engine.push(transfer, self.now, &mut self.spending);
        pushed.map_err(|refusal| self.stuck(refusal))
    }

    /// A chunk has gone through the HCA.
    fn transfer(&mut self) -> Result<(), LabError> {
        let done = self.engine.finish(self.now, &mut self.spending);
        let done = done.map_err(|refusal| self.stuck(refusal))?;
        if let Some(transfer) = done {
            self.meter.released(transfer.arrived(), self.now);
            transfer.into_lease().release();
            if self.soft {
                self.spending.since_last();
            }
            // A policy may have left the region for reuse.
            self.blocked = false;
        }
        Ok(())
    }

    /// The flusher has something to do.
    fn flush(&mut self) -> Result<(), LabError> {
        let step = self.flusher.act(self.pool, self.now, &mut self.spending);
        self.engine.work(self.now, step.hca_ns);
        if step.settled {
            self.buffers.reclaim(self.pool, &mut self.meter);
            self.blocked = false;
        }
        if step.fruitless {
            return Err(self.stuck("the pool calls for flushes that take nothing"));
        }
        Ok(())
    }

    fn stuck(&self, what: impl fmt::Display) -> LabError {
        LabError::Stuck {
            at_s: self.now as f64 / 1e9,
            what: what.to_string(),
        }
    }
}
