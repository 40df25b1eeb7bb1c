//! Which call gets which fault.

use mr_core::ErrorKind;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A call of a backend that can be made to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `alloc`.
    Alloc,
    /// `map`.
    Map,
    /// `invalidate`, one call for the whole batch.
    Invalidate,
    /// `dealloc`.
    Dealloc,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Alloc, Self::Map, Self::Invalidate, Self::Dealloc];
}

/// Which of the calls of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// The k-th, from 1.
    Nth(u64),
    /// The k-th, from 1, and all after it.
    From(u64),
    /// Every k-th; never for 0.
    Every(u64),
    /// Each with this probability, drawn from the plan's seed.
    Rate(f64),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing is done, and the call says so with an error of this kind.
    Fail(ErrorKind),
    /// Part of it is done, and the call returns an error of this kind:
    /// - `invalidate`: the first half of the batch (rounded down) is dead, the rest is not;
    /// - `map`: the region is mapped and its new key honoured, although the caller never gets to
    ///   know it. A kind that would promise the contrary
    ///   ([`leaves_region_known`](ErrorKind::leaves_region_known)) becomes [`ErrorKind::Io`];
    /// - `alloc`: the region is made and freed again;
    /// - `dealloc`: nothing.
    HalfDone(ErrorKind),
    /// All of it is done, and its answer is lost: the call returns an error of this kind for
    /// every region of the batch. For other calls than `invalidate` the same as `HalfDone`.
    LostAnswer(ErrorKind),
    /// It is done after so long.
    Delay(Duration),
    /// The call does not return until [`FaultControl::release`](crate::FaultControl::release) is
    /// called, then it is done; at the plan's bound it fails with [`ErrorKind::TimedOut`] and
    /// nothing is done.
    Hang,
    /// The call panics before anything is done.
    Panic,
}

/// How a delay passes: sleeps, or moves a virtual clock on.
pub(super) type Sleeper = Arc<dyn Fn(Duration) + Send + Sync>;

/// What is to go wrong, and when.
///
/// Calls are counted by kind, and each kind draws from a random stream of its own: which of the
/// maps fails does not depend on what other calls came in between. With one thread per kind of
/// call, or calls in a fixed order, the same seed gives the same run on every machine.
#[derive(Clone)]
pub struct FaultPlan {
    rules: Vec<(Call, When, Fault)>,
    seed: u64,
    pub(super) hang_bound: Duration,
    pub(super) sleeper: Sleeper,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::seeded(0)
    }

    /// Nothing goes wrong so far; rates will be drawn from this seed.
    pub fn seeded(seed: u64) -> Self {
        Self {
            rules: Vec::new(),
            seed,
            hang_bound: Duration::from_secs(60),
            sleeper: Arc::new(std::thread::sleep),
        }
    }

    /// Adds a rule. Of the rules that apply to a call, the first one added wins.
    #[must_use]
    pub fn on(mut self, call: Call, when: When, fault: Fault) -> Self {
        self.rules.push((call, when, fault));
        self
    }

    /// How long a call can hang; a minute if nothing else is said.
    #[must_use]
    pub const fn hang_at_most(mut self, bound: Duration) -> Self {
        self.hang_bound = bound;
        self
    }

    /// How delays pass; `std::thread::sleep` if nothing else is said.
    #[must_use]
    pub fn delay_by(mut self, sleeper: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.sleeper = Arc::new(sleeper);
        self
    }
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultPlan")
            .field("seed", &self.seed)
            .field("rules", &self.rules)
            .field("hang_bound", &self.hang_bound)
            .finish_non_exhaustive()
    }
}

/// How far the calls have come in a plan.
#[derive(Debug)]
pub(super) struct Progress {
    counts: [u64; Call::ALL.len()],
    draws: [ChaCha8Rng; Call::ALL.len()],
}

impl Progress {
    pub(super) fn new(plan: &FaultPlan) -> Self {
        Self {
            counts: [0; Call::ALL.len()],
            draws: Call::ALL.map(|call| {
                let mut draw = ChaCha8Rng::seed_from_u64(plan.seed);
                draw.set_stream(call as u64);
                draw
            }),
        }
    }

    /// Calls of this kind so far.
    pub(super) fn count(&self, call: Call) -> u64 {
        self.counts[call as usize]
    }

    /// Counts one more call and returns its number and its fault.
    pub(super) fn next(&mut self, plan: &FaultPlan, call: Call) -> (u64, Option<Fault>) {
        let count = &mut self.counts[call as usize];
        *count += 1;
        let number = *count;
        let draw = &mut self.draws[call as usize];
        let mut chosen = None;
        for &(of, when, fault) in &plan.rules {
            // Every rate draws on every call, so that a rule does not shift the others.
            if of == call && applies(when, number, draw) && chosen.is_none() {
                chosen = Some(fault);
            }
        }
        (number, chosen)
    }

    /// Counts one more call if it has no fault. Says whether it has none.
    pub(super) fn pass(&mut self, plan: &FaultPlan, call: Call) -> bool {
        let place = call as usize;
        let before = (self.counts[place], self.draws[place].clone());
        let passes = self.next(plan, call).1.is_none();
        if !passes {
            (self.counts[place], self.draws[place]) = before;
        }
        passes
    }
}

fn applies(when: When, number: u64, draw: &mut ChaCha8Rng) -> bool {
    match when {
        When::Nth(k) => number == k,
        When::From(k) => number >= k,
        When::Every(k) => k > 0 && number.is_multiple_of(k),
        When::Rate(rate) => {
            // 53 bits: what a float between 0 and 1 can hold exactly.
            let sample = (draw.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            sample < rate
        }
    }
}
