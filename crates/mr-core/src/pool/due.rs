//! When is the next flush due: the policy, the pool's own bounds, and the quarantine.

use crate::pool::core::{Core, earlier};
use crate::pool::credit::Credit;
use crate::pool::flush::Flush;
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

/// The fewest and the most releases from one question to the next while a flush is due anyway.
const WHILE_DUE: std::ops::Range<u64> = 64..1024;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Looks what is due, and begins it. Before its time nothing is: whatever brings that forward says so, and a
    /// look at all shards is in the way of who works there.
    pub(crate) fn due(&self) -> Due<'_, B, M> {
        let now = self.now();
        let next = self.next_due();
        if next.is_none_or(|at| at > now) {
            return Due { flush: None, next };
        }
        // First forget, then look: what is released from here on speaks up for itself.
        self.due_at.store(u64::MAX, Ordering::SeqCst);
        if self.check_poison().is_err() {
            // A flush would put everything back, to be due again.
            return Due {
                flush: None,
                next: None,
            };
        }
        let wards = self.quarantine.lock().wards();
        let (view, look) = self.view(now);
        let scope = match self.decide(&view) {
            FlushDecision::Now(scope) => Some(scope),
            FlushDecision::Hold(marks) => {
                self.budget.grant(&look, credit(&view, &marks));
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
        let flush = flush.map(Flush::then_look_again);
        Due { flush, next: None }
    }

    /// Asks the policy after a release, because the pool's credit is used up.
    pub(crate) fn ask(&self, now: Time) {
        let (view, look) = self.view(now);
        match self.decide(&view) {
            FlushDecision::Now(scope) => {
                let over = view.regions() >= self.config.max_stale()
                    || view.bytes >= self.config.max_stale_bytes;
                self.objections.set_over_bound(over);
                // Only now: a flush that began meanwhile may have taken all of it, and then it is the
                // one demanded here that finds the flag and clears it.
                self.gate.demand(scope);
                self.budget.grant(&look, self.while_due(&view));
                self.call_at(Time::ZERO);
            }
            FlushDecision::Hold(marks) => {
                self.budget.grant(&look, credit(&view, &marks));
                if let Some(at) = marks.at {
                    self.call_at(at);
                }
            }
        }
    }

    /// What may be released while a flush is due anyway: not much more than the pool's own bounds
    /// allow.
    fn while_due(&self, view: &StaleView) -> Credit {
        let keys = self.config.max_stale().saturating_sub(view.regions());
        let bytes = self.config.max_stale_bytes.saturating_sub(view.bytes);
        let over = keys == 0 || bytes == 0;
        Credit {
            keys: u64::from(keys).clamp(WHILE_DUE.start, WHILE_DUE.end),
            bytes: if over { u64::MAX } else { bytes },
        }
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

/// What may be released after `view` before a mark is reached: the release that reaches one asks.
fn credit(view: &StaleView, marks: &Marks) -> Credit {
    let before = |mark: u64, seen: u64| mark.saturating_sub(seen).saturating_sub(1);
    let worn = marks.worn.map(|mark| before(mark.into(), view.worn.into()));
    let keys = marks.keys.map(|mark| before(mark, view.keys));
    let bytes = marks.bytes.map(|mark| before(mark, view.bytes));
    Credit {
        keys: worn.into_iter().chain(keys).min().unwrap_or(u64::MAX),
        bytes: bytes.unwrap_or(u64::MAX),
    }
}
