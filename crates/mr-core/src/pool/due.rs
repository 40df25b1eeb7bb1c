//! When is the next flush due: the policy, the pool's own bounds, and the quarantine.

use crate::pool::core::{Core, earlier};
use crate::pool::flush::Flush;
use crate::pool::shard::Credit;
use crate::sync::atomic::Ordering;
use crate::{DmaBuffer, FlushDecision, Marks, MrBackend, Scope, StaleView, Time};

/// What is to be done at this moment, and when to ask again.
#[must_use]
pub struct Due<'p, B: MrBackend, M: DmaBuffer> {
    /// A flush that has begun: run it, then ask again.
    pub flush: Option<Flush<'p, B, M>>,
    /// When to ask again at the latest; `None` if nothing is stale. A release may bring this
    /// forward: see [`Pool::next_due`](crate::Pool::next_due).
    pub next: Option<Time>,
}

/// Releases that a shard may take while a flush is due anyway.
const WHILE_DUE: u64 = 64;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Looks what is due, and begins it.
    pub(crate) fn due(&self) -> Due<'_, B, M> {
        // First forget, then look: what is released from here on speaks up for itself.
        self.due_at.store(u64::MAX, Ordering::SeqCst);
        if self.check_poison().is_err() {
            // A flush would put everything back, to be due again.
            return Due {
                flush: None,
                next: None,
            };
        }
        // The answer may have nearer marks than the one that the shards have their credit from.
        for shard in &self.shards {
            shard.lock().grant(Credit::default());
        }
        let now = self.now();
        let wards = self.quarantine.lock().wards();
        let scope = match self.decide(&self.view(now).0) {
            FlushDecision::Now(scope) => Some(scope),
            FlushDecision::Hold(marks) => {
                let retry_at = earlier(wards.retry_at, self.abroad.retry_at(now));
                let next = earlier(marks.at, retry_at);
                let scope = self.gate.demanded();
                let retry = wards.retry_at.is_some_and(|at| at <= now);
                if scope.is_none() && !retry {
                    if let Some(next) = next {
                        self.due_at.fetch_min(next.as_nanos(), Ordering::SeqCst);
                    }
                    return Due { flush: None, next };
                }
                scope.or(Some(Scope::Worn))
            }
        };
        // If another flush is under way, its end asks for a new look.
        let flush = scope.and_then(|scope| self.begin(scope, false));
        Due { flush, next: None }
    }

    /// Asks the policy after a release, because the releasing shard's credit is used up.
    pub(crate) fn ask(&self, now: Time) {
        let (view, outstanding) = self.view(now);
        match self.decide(&view) {
            FlushDecision::Now(scope) => {
                let over = view.regions() >= self.config.max_stale()
                    || view.bytes >= self.config.max_stale_bytes;
                self.over_bound.store(over, Ordering::Relaxed);
                // Only now: a flush that began meanwhile may have taken all of it, and then it is the
                // one demanded here that finds the flag and clears it.
                self.gate.demand(scope);
                self.grant(Credit {
                    keys: WHILE_DUE,
                    bytes: u64::MAX,
                });
                self.call_at(Time::ZERO);
            }
            FlushDecision::Hold(marks) => {
                self.grant(share(&view, &marks, outstanding));
                if let Some(at) = marks.at {
                    self.call_at(at);
                }
            }
        }
    }

    fn grant(&self, credit: Credit) {
        self.shards[self.my_shard()].lock().grant(credit);
    }

    /// What the policy and the pool's own bounds want.
    fn decide(&self, view: &StaleView) -> FlushDecision {
        let Some(oldest) = view.oldest else {
            return FlushDecision::SILENT;
        };
        let asked = match self.ask_policy(|policy| policy.flush(view)) {
            // A flush that would take nothing is no progress: it must not be asked for again.
            Some(FlushDecision::Now(Scope::Worn)) if view.worn == 0 => FlushDecision::SILENT,
            Some(decision) => decision,
            None => FlushDecision::SILENT,
        };
        asked.earliest(self.bound(view, oldest))
    }

    fn bound(&self, view: &StaleView, oldest: Time) -> FlushDecision {
        let max_stale = self.config.max_stale();
        let latest = oldest + self.config.max_age;
        if view.regions() >= max_stale
            || view.bytes >= self.config.max_stale_bytes
            || view.now >= latest
        {
            return FlushDecision::Now(Scope::Stale);
        }
        FlushDecision::Hold(Marks {
            at: Some(latest),
            worn: None,
            keys: Some(view.keys + u64::from(max_stale - view.regions())),
            bytes: Some(self.config.max_stale_bytes),
        })
    }

    /// Sees to it that `due` is called at `at` or before.
    pub(crate) fn call_at(&self, at: Time) {
        let nanos = at.as_nanos();
        if nanos < self.due_at.fetch_min(nanos, Ordering::SeqCst) {
            self.gate.notify();
        }
    }

    /// When `due` is to be called next.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let nanos = self.due_at.load(Ordering::SeqCst);
        (nanos != u64::MAX).then(|| Time::from_nanos(nanos))
    }
}

/// What the calling shard may release before a mark can be reached: half of what is left after
/// what the other shards have been granted. So a batch is asked about a number of times that grows
/// with the logarithm of its size, and the release that reaches a mark is always one that asks.
fn share(view: &StaleView, marks: &Marks, outstanding: Credit) -> Credit {
    let worn = marks
        .worn
        .map(|mark| u64::from(mark.saturating_sub(view.worn)));
    let keys = marks.keys.map(|mark| mark.saturating_sub(view.keys));
    let keys = worn.into_iter().chain(keys).min();
    let bytes = marks.bytes.map(|mark| mark.saturating_sub(view.bytes));
    let half = |left: Option<u64>, granted: u64| {
        // The release that uses up the credit is one more.
        left.map_or(u64::MAX, |left| {
            left.saturating_sub(granted).saturating_sub(1).div_ceil(2)
        })
    };
    Credit {
        keys: half(keys, outstanding.keys),
        bytes: half(bytes, outstanding.bytes),
    }
}
