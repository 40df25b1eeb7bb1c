//! What may be released before the policy must be asked again.

use crate::sync::ShortLock;

/// Releases that need not ask: so many keys, and so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

impl Credit {
    /// Pays for the release of one key of `bytes`, if it can.
    #[inline]
    pub(crate) const fn pay(&mut self, bytes: u64) -> bool {
        let Some(keys_left) = self.keys.checked_sub(1) else {
            return false;
        };
        let Some(bytes_left) = self.bytes.checked_sub(bytes) else {
            return false;
        };
        self.keys = keys_left;
        self.bytes = bytes_left;
        true
    }
}

/// The credit of the whole pool, of which each shard fetches half of what is there whenever its own
/// is used up. So a batch comes here a number of times that grows with the logarithm of its size,
/// and to the policy when the credit is used up: twice, or once more for a shard that holds what
/// another needs.
///
/// A *look* at all shards takes their credit away and may be followed by a new one; of looks that
/// overlap, only what follows the latest counts. Its lock is taken under a shard's.
pub(crate) struct Budget(ShortLock<State>);

#[derive(Default)]
struct State {
    left: Credit,
    looks: u64,
    /// A flush is taking its regions: whoever looks at the shards sees some before, some after.
    taking: bool,
}

/// The number of a look.
#[must_use]
pub(crate) struct Look(u64);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(ShortLock::new(State::default()))
    }

    /// Begins a look at all shards, of which each loses its credit.
    pub(crate) fn look(&self) -> Look {
        let mut state = self.0.lock();
        state.left = Credit::default();
        state.looks += 1;
        Look(state.looks)
    }

    /// Gives out the credit that follows from a look, unless it is out of date.
    pub(crate) fn grant(&self, look: &Look, credit: Credit) {
        let mut state = self.0.lock();
        if state.looks == look.0 && !state.taking {
            state.left = credit;
        }
    }

    /// Gives what is left of a shard's credit for half of what is here.
    #[inline(never)]
    pub(crate) fn refill(&self, credit: &mut Credit) {
        let left = &mut self.0.lock().left;
        let half = |mine: &mut u64, left: &mut u64| {
            let all = mine.saturating_add(*left);
            *left = all / 2;
            *mine = all - *left;
        };
        half(&mut credit.keys, &mut left.keys);
        half(&mut credit.bytes, &mut left.bytes);
    }

    /// A flush begins to take its regions, and all credit.
    pub(crate) fn begin_taking(&self) {
        let mut state = self.0.lock();
        state.left = Credit::default();
        state.taking = true;
    }

    pub(crate) fn end_taking(&self) {
        self.0.lock().taking = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(keys: u64) -> Credit {
        Credit { keys, bytes: 100 }
    }

    #[test]
    fn shards_never_have_more_than_was_granted() {
        let budget = Budget::new();
        budget.grant(&budget.look(), credit(10));
        let (mut a, mut b) = (Credit::default(), Credit::default());
        let mut paid = 0;
        for turn in 0..40 {
            let mine = if turn % 3 == 0 { &mut a } else { &mut b };
            if !mine.pay(1) {
                budget.refill(mine);
                paid += u64::from(mine.pay(1));
            } else {
                paid += 1;
            }
        }
        assert_eq!((paid, a.keys, b.keys), (10, 0, 0));
    }

    #[test]
    fn a_credit_of_bytes_is_one_too() {
        let mut mine = credit(10);
        assert!(mine.pay(60) && !mine.pay(60) && mine.pay(40));
        assert_eq!(mine, Credit { keys: 8, bytes: 0 });
    }

    #[test]
    fn only_the_latest_look_counts_and_none_while_regions_are_taken() {
        let budget = Budget::new();
        let (early, late) = (budget.look(), budget.look());
        let mut mine = Credit::default();
        budget.grant(&early, credit(4));
        budget.refill(&mut mine);
        assert_eq!(mine, Credit::default());
        budget.begin_taking();
        budget.grant(&late, credit(4));
        let within = budget.look();
        budget.grant(&within, credit(4));
        budget.refill(&mut mine);
        assert_eq!(mine, Credit::default());
        budget.end_taking();
        budget.grant(&budget.look(), credit(4));
        budget.refill(&mut mine);
        assert_eq!(mine.keys, 2);
    }
}
