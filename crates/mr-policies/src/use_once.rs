//! `use-once`: a region is mapped once, and waits for a flush before it is mapped again.

use mr_core::{AtRelease, InvalidationPolicy, ReleasedRegion};
use std::fmt;

/// Retires a region after one mapping. Silent about flushes.
///
/// Text: `use-once`.
///
/// # Bound
///
/// None of its own: it does not say when to flush. Alone, it leaves that to the pool, which flushes
/// when its free list runs out, when it is idle, and at its `max_age`.
///
/// # Good and bad at
///
/// Good: any backend can do it; at most one stale key per region, so both the number and the age of
/// stale keys follow from the flush policy it is combined with. Bad: for the same number of
/// regions, `n` times the flushes of [`UseN`](crate::UseN).
///
/// # Example
///
/// In the running example, alone: all 5000 regions are used up before a flush, so there are
/// 1000 / 5000 = 0.2 flushes a second, and a key can be stale for about 5 s.
///
/// ```
/// use mr_core::{Access, AtRelease, InvalidationPolicy, ReleasedRegion};
/// use mr_policies::UseOnce;
///
/// let after_one = ReleasedRegion::new(1, 1_000_000, Access::REMOTE_READ);
/// assert_eq!(UseOnce.at_release(&after_one), Some(AtRelease::Retire));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UseOnce;

impl InvalidationPolicy for UseOnce {
    fn at_release(&self, _region: &ReleasedRegion) -> Option<AtRelease> {
        Some(AtRelease::Retire)
    }
}

impl fmt::Display for UseOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("use-once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_core::{Access, FlushDecision, StaleView};

    #[test]
    fn retires_and_says_nothing_else() {
        for maps in [1, 2, 255, u32::MAX] {
            let region = ReleasedRegion::new(maps, 0, Access::REMOTE_WRITE);
            assert_eq!(UseOnce.at_release(&region), Some(AtRelease::Retire));
        }
        let mut view = StaleView::default();
        view.worn = u32::MAX;
        view.keys = u64::from(u32::MAX);
        assert_eq!(UseOnce.flush(&view), FlushDecision::SILENT);
        assert_eq!(UseOnce.exposure_bound(), None);
    }
}
