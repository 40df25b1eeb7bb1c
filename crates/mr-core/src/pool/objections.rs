//! What speaks against giving a lease at once.

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::{Poisoned, PoisonedBy};

const OVER_BOUND: u8 = 1;
const CLOSED: u8 = 1 << 1;
/// One bit for each of these, from here on.
const POISONED: u8 = 1 << 2;
const CULPRITS: [PoisonedBy; 4] = [
    PoisonedBy::Policy,
    PoisonedBy::Backend,
    PoisonedBy::Pool,
    PoisonedBy::Clock,
];

/// Whether a pool is poisoned or closed, or more is stale in it than its bounds allow: in one byte, so
/// that a lease against which nothing speaks looks once.
pub(crate) struct Objections(AtomicU8);

impl Objections {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) & CLOSED != 0
    }

    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// More is stale than the bounds allow.
    pub(crate) fn is_over_bound(&self) -> bool {
        self.0.load(Ordering::SeqCst) & OVER_BOUND != 0
    }

    /// Every lease reads this, so it is written only to change it.
    pub(crate) fn set_over_bound(&self, over: bool) {
        if over == self.is_over_bound() {
            return;
        }
        if over {
            self.0.fetch_or(OVER_BOUND, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!OVER_BOUND, Ordering::SeqCst);
        }
    }

    pub(crate) fn poison(&self, by: PoisonedBy) {
        self.0.fetch_or(POISONED << by as u8, Ordering::SeqCst);
    }

    /// The first in the table above, if several have.
    pub(crate) fn poisoned(&self) -> Option<Poisoned> {
        let all = self.0.load(Ordering::SeqCst);
        let guilty = |by: &PoisonedBy| all & POISONED << *by as u8 != 0;
        CULPRITS.into_iter().find(guilty).map(Poisoned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_objection_does_not_touch_the_others() {
        for by in CULPRITS {
            let objections = Objections::new();
            assert!(!objections.any() && objections.poisoned().is_none());
            objections.set_over_bound(true);
            assert!(objections.any() && !objections.is_closed());
            objections.poison(by);
            assert!(objections.is_over_bound() && !objections.is_closed());
            objections.close();
            objections.set_over_bound(false);
            assert!(!objections.is_over_bound() && objections.is_closed());
            assert_eq!(objections.poisoned(), Some(Poisoned(by)));
        }
    }
}
