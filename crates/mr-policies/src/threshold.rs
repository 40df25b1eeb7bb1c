//! `threshold=4000`, `threshold=25%`, `threshold=1GiB`: a flush when enough has gathered.

use crate::quantity::{self, BYTES};
use crate::range::out_of_range;
use mr_core::{
    FlushDecision, InvalidationPolicy, Marks, PolicyError, PoolLimits, Scope, StaleView,
};
use std::fmt;

/// Flushes when the dirty list has reached a length, or the stale keys reach so many bytes.
///
/// Text: `threshold=4000` (worn regions), `threshold=25%` (worn regions, as a share of the pool,
/// rounded down, but at least 1), `threshold=1GiB` (bytes).
///
/// A count is of *worn* regions, and its flush takes those: under [`UseN`](crate::UseN) the
/// regions that can be mapped again are left alone, as the kernel's `fmr_pool` did. Bytes are
/// those behind *all* stale keys, so their flush takes all stale regions; one of worn regions alone
/// might not bring them down.
///
/// # Bound
///
/// None. When traffic stops one region short of the threshold, all the keys before it live on.
/// The pool's `max_age`, or [`MaxExposure`](crate::MaxExposure), ends that.
///
/// # Good and bad at
///
/// Good: a fixed batch, so the price of a flush per release is known; self-tuning in rate. Bad: no
/// bound, and on a slow load the exposure grows as the rate falls.
///
/// # Example
///
/// The running example is `threshold=4000`: 1000 / 4000 = 0.25 flushes a second, each of
/// 100 µs + 4000 · 0.5 µs = 2.1 ms, exposure 2 s in the mean and 4 s at most. With `threshold=99`
/// it is 10 flushes a second, 0.15 % of the command interface instead of 0.05 %, and 0.1 s at most.
///
/// ```
/// use mr_core::{FlushDecision, InvalidationPolicy, Scope, StaleView};
/// use mr_policies::Threshold;
///
/// let policy = Threshold::regions(4000)?;
/// let mut view = StaleView::default();
/// let mut flushes = 0;
/// for _release in 0..100_000 { // 100 s
///     view.worn += 1;
///     if policy.flush(&view) == FlushDecision::Now(Scope::Worn) {
///         view.worn = 0;
///         flushes += 1;
///     }
/// }
/// assert_eq!(flushes, 25);
/// # Ok::<(), mr_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threshold {
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Limit {
    Regions(u32),
    Percent(u8),
    Bytes(u64),
}

impl Threshold {
    /// Flushes at this many worn regions. That they are no more than the pool has is checked when
    /// the pool is built.
    ///
    /// # Errors
    ///
    /// [`PolicyError::OutOfRange`] if `regions` is 0.
    pub fn regions(regions: u32) -> Result<Self, PolicyError> {
        Self::new(Limit::Regions(regions), regions > 0, "at least 1 region")
    }

    /// Flushes when this share of the pool's regions is worn, in percent.
    ///
    /// # Errors
    ///
    /// [`PolicyError::OutOfRange`] unless `percent` is from 1 to 100.
    pub fn percent(percent: u8) -> Result<Self, PolicyError> {
        let holds = (1..=100).contains(&percent);
        Self::new(Limit::Percent(percent), holds, "from 1% to 100%")
    }

    /// Flushes when stale keys reach this many bytes. Counts a byte twice that two keys reach.
    /// Whether a pool can ever hold that many is not checked: it depends on what is mapped.
    ///
    /// # Errors
    ///
    /// [`PolicyError::OutOfRange`] if `bytes` is 0.
    pub fn bytes(bytes: u64) -> Result<Self, PolicyError> {
        Self::new(Limit::Bytes(bytes), bytes > 0, "at least 1B")
    }

    fn new(limit: Limit, holds: bool, allowed: &str) -> Result<Self, PolicyError> {
        let policy = Self { limit };
        if holds {
            Ok(policy)
        } else {
            Err(out_of_range(&policy, "threshold", allowed))
        }
    }

    /// For a share that is known to be in range.
    pub(crate) const fn known_percent(percent: u8) -> Self {
        Self {
            limit: Limit::Percent(percent),
        }
    }

    /// Whether this is a threshold of bytes.
    pub(crate) const fn is_of_bytes(self) -> bool {
        matches!(self.limit, Limit::Bytes(_))
    }
}

impl InvalidationPolicy for Threshold {
    fn speaks_at_release(&self) -> bool {
        false
    }

    fn flush(&self, stale: &StaleView) -> FlushDecision {
        match self.limit {
            Limit::Regions(regions) => flush_worn(stale, regions),
            Limit::Percent(percent) => flush_worn(stale, share(stale.capacity, percent)),
            Limit::Bytes(bytes) if stale.bytes >= bytes => FlushDecision::Now(Scope::Stale),
            Limit::Bytes(bytes) => FlushDecision::Hold(Marks {
                bytes: Some(bytes),
                ..Marks::default()
            }),
        }
    }

    fn check(&self, pool: &PoolLimits) -> Result<(), PolicyError> {
        match self.limit {
            Limit::Regions(regions) if regions > pool.capacity => Err(out_of_range(
                self,
                "threshold",
                format!("from 1 to {}, the regions of this pool", pool.capacity),
            )),
            _ => Ok(()),
        }
    }
}

fn flush_worn(stale: &StaleView, regions: u32) -> FlushDecision {
    if stale.worn >= regions {
        FlushDecision::Now(Scope::Worn)
    } else {
        FlushDecision::Hold(Marks {
            worn: Some(regions),
            ..Marks::default()
        })
    }
}

/// Rounded down, as the kernel's pools do it, but at least 1: at 0 every release would flush, and
/// so would a pool with nothing to flush.
fn share(capacity: u32, percent: u8) -> u32 {
    let share = u64::from(capacity) * u64::from(percent) / 100;
    u32::try_from(share).unwrap_or(u32::MAX).max(1)
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("threshold=")?;
        match self.limit {
            Limit::Regions(regions) => write!(f, "{regions}"),
            Limit::Percent(percent) => write!(f, "{percent}%"),
            Limit::Bytes(bytes) => quantity::show(bytes, BYTES).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_core::Capabilities;

    fn view(capacity: u32, worn: u32, bytes: u64) -> StaleView {
        let mut view = StaleView::default();
        view.capacity = capacity;
        view.worn = worn;
        view.bytes = bytes;
        view
    }

    fn at_worn(worn: u32) -> FlushDecision {
        FlushDecision::Hold(Marks {
            worn: Some(worn),
            ..Marks::default()
        })
    }

    #[test]
    fn decides() {
        let at_bytes = FlushDecision::Hold(Marks {
            bytes: Some(100),
            ..Marks::default()
        });
        let worn = FlushDecision::Now(Scope::Worn);
        let regions = Threshold::regions(4000).unwrap();
        let percent = Threshold::percent(25).unwrap();
        let bytes = Threshold::bytes(100).unwrap();
        for (policy, view, expected) in [
            (regions, view(5000, 0, 0), at_worn(4000)),
            (regions, view(5000, 3999, u64::MAX), at_worn(4000)),
            (regions, view(5000, 4000, 0), worn),
            (regions, view(5000, 5000, 0), worn),
            (percent, view(5000, 1249, 0), at_worn(1250)),
            (percent, view(5000, 1250, 0), worn),
            (percent, view(7, 0, 0), at_worn(1)),
            (percent, view(3, 0, 0), at_worn(1)),
            (percent, view(3, 1, 0), worn),
            (percent, view(u32::MAX, 0, 0), at_worn(u32::MAX / 4)),
            (bytes, view(5000, 5000, 99), at_bytes),
            (bytes, view(5000, 0, 100), FlushDecision::Now(Scope::Stale)),
        ] {
            assert_eq!(policy.flush(&view), expected, "{policy} {view:?}");
        }
    }

    #[test]
    fn reusable_regions_do_not_count() {
        let mut view = view(5000, 10, 0);
        view.reusable = 4990;
        view.keys = 50_000;
        assert_eq!(Threshold::regions(11).unwrap().flush(&view), at_worn(11));
    }

    #[test]
    fn ranges() {
        for (policy, message) in [
            (
                Threshold::regions(0),
                "threshold=0: threshold must be at least 1 region",
            ),
            (
                Threshold::percent(0),
                "threshold=0%: threshold must be from 1% to 100%",
            ),
            (
                Threshold::percent(101),
                "threshold=101%: threshold must be from 1% to 100%",
            ),
            (
                Threshold::bytes(0),
                "threshold=0B: threshold must be at least 1B",
            ),
        ] {
            assert_eq!(policy.unwrap_err().to_string(), message);
        }
        let pool = PoolLimits::new(5000, &Capabilities::new(5000, 1 << 20));
        assert_eq!(Threshold::regions(5000).unwrap().check(&pool), Ok(()));
        assert_eq!(Threshold::percent(100).unwrap().check(&pool), Ok(()));
        assert_eq!(
            Threshold::regions(5001)
                .unwrap()
                .check(&pool)
                .unwrap_err()
                .to_string(),
            "threshold=5001: threshold must be from 1 to 5000, the regions of this pool"
        );
    }
}
