//! `immediate`: a key dies at its release. The default of the library.

use mr_core::{AtRelease, InvalidationPolicy, ReleasedRegion};
use std::fmt;
use std::time::Duration;

/// Kills the key at release, before anything else happens to the region.
///
/// Text: `immediate`. What RDS does for a region that is freed with `RDS_RDMA_INVALIDATE`.
///
/// # Bound
///
/// Zero: no key is left stale, so exposure is the time of the invalidation itself.
///
/// # Good and bad at
///
/// Good: the memory goes back to its owner at once, and no peer can touch it late. Cheap where the
/// fence is per key. Bad where the fence is global: one fence per release, each of which empties
/// the HCA's translation cache for everyone.
///
/// # Example
///
/// In the running example: 1000 fences a second of 100.5 µs each keep the command interface busy
/// for 10 % of the time, and exposure is 0.1 ms. How well that goes is a matter of the fence alone:
/// at 10 ms, no more than 100 releases a second are possible.
///
/// ```
/// use mr_core::InvalidationPolicy;
/// use mr_policies::Immediate;
/// use std::time::Duration;
///
/// let fence = Duration::from_nanos(100_000 + 500);
/// assert_eq!(1000 * fence, Duration::from_micros(100_500)); // in each second
/// assert_eq!(Immediate.exposure_bound(), Some(Duration::ZERO));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Immediate;

impl InvalidationPolicy for Immediate {
    fn at_release(&self, _region: &ReleasedRegion) -> Option<AtRelease> {
        Some(AtRelease::Invalidate)
    }

    fn exposure_bound(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl fmt::Display for Immediate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("immediate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_core::{Access, FlushDecision, StaleView};

    #[test]
    fn invalidates_and_leaves_the_flusher_alone() {
        for maps in [1, 2, u32::MAX] {
            let region = ReleasedRegion::new(maps, 0, Access::REMOTE_READ);
            assert_eq!(Immediate.at_release(&region), Some(AtRelease::Invalidate));
        }
        let mut view = StaleView::default();
        view.keys = 5;
        view.worn = 5;
        assert_eq!(Immediate.flush(&view), FlushDecision::SILENT);
    }
}
