//! The states of a region, and every way from one to another.

use std::fmt;

/// Where a region is in its life. The list or value that owns the region always agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionState {
    /// No key of it is honoured.
    Clean,
    /// A lease owns it, and its key is live.
    Leased,
    /// Released and stale; may be mapped again before a flush.
    Reusable,
    /// Released and stale; waits for a flush.
    Worn,
    /// Its keys are being invalidated.
    InFlush,
    /// What its keys can do is unknown; kept with its memory and retried.
    Quarantined,
}

/// Every legal transition and what brings it about. Anything else is a defect of the pool, and an
/// error in release builds too.
const TRANSITIONS: [(RegionState, RegionState, &str); 13] = {
    use RegionState::{Clean, InFlush, Leased, Quarantined, Reusable, Worn};
    [
        (Clean, Leased, "lease"),
        (Reusable, Leased, "lease before the flush"),
        (Leased, Clean, "map refused"),
        (Leased, Reusable, "release for reuse, or map refused"),
        (Leased, Worn, "release"),
        (
            Leased,
            InFlush,
            "invalidate now, or invalidated by the peer",
        ),
        (Leased, Quarantined, "map failed and left the keys unknown"),
        (Reusable, InFlush, "flush of all stale regions"),
        (Reusable, Worn, "put back while a flush waits for it"),
        (Worn, InFlush, "flush"),
        (InFlush, Clean, "keys dead"),
        (InFlush, Quarantined, "invalidation failed"),
        (Quarantined, InFlush, "retry"),
    ]
};

/// The table above as one row of bits per state, so that a check is one load and one test.
const ALLOWED: [u8; 6] = {
    let mut rows = [0; 6];
    let mut i = 0;
    while i < TRANSITIONS.len() {
        let (from, to, _) = TRANSITIONS[i];
        rows[from as usize] |= 1 << to as u8;
        i += 1;
    }
    rows
};

impl RegionState {
    /// Whether a region in this state may go to `next`.
    pub(crate) const fn may_become(self, next: Self) -> bool {
        ALLOWED[self as usize] & (1 << next as u8) != 0
    }
}

impl fmt::Display for RegionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "clean",
            Self::Leased => "leased",
            Self::Reusable => "reusable",
            Self::Worn => "worn",
            Self::InFlush => "in flush",
            Self::Quarantined => "quarantined",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_say_what_the_table_says() {
        use RegionState::{Clean, InFlush, Leased, Quarantined, Reusable, Worn};
        let all = [Clean, Leased, Reusable, Worn, InFlush, Quarantined];
        for from in all {
            for to in all {
                let listed = TRANSITIONS.iter().any(|row| (row.0, row.1) == (from, to));
                assert_eq!(from.may_become(to), listed, "{from} -> {to}");
            }
            assert!(!from.may_become(from));
        }
        assert!(
            !Reusable.may_become(Clean) && !Worn.may_become(Clean),
            "a stale region becomes clean only through a flush"
        );
        assert!(!Quarantined.may_become(Clean) && !Quarantined.may_become(Leased));
    }
}
