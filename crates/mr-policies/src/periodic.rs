//! `periodic=4s`: a flush every 4 s.

use crate::range::{TIMES, UNTIL_STALE, is_time, out_of_range, write_time};
use mr_core::{FlushDecision, InvalidationPolicy, PolicyError, Scope, StaleView};
use std::fmt;
use std::time::Duration;

/// Flushes all stale regions once per period, counted from the start of the latest flush.
///
/// Text: `periodic=4s`.
///
/// With nothing stale it waits: a period without traffic costs no flush, and however many periods
/// pass, the next stale key causes one flush, at once, and not a burst. A flush for another reason
/// starts the period anew, unless it left a stale key behind (one of worn regions alone does):
/// the period then runs from that key's release.
///
/// # Bound
///
/// The period.
///
/// # Good and bad at
///
/// Good: a fixed rate of flushes, whatever the load; a bound. Bad: the batch grows with the load,
/// so regions can run out, and on a slow load it pays for flushes of a few regions.
///
/// # Example
///
/// In the running example, `periodic=4s` does what `threshold=4000` does on a steady load: 0.25
/// flushes a second of 4000 regions, exposure 2 s in the mean and 4 s at most. It keeps the 4 s
/// when traffic stops; the threshold does not.
///
/// ```
/// use mr_core::{FlushDecision, InvalidationPolicy, Scope, StaleView, Time};
/// use mr_policies::Periodic;
/// use std::time::Duration;
///
/// let policy = Periodic::new(Duration::from_secs(4))?;
/// let mut view = StaleView::default();
/// let mut batches = Vec::new();
/// for ms in 1..=100_000 {
///     view.now = Time::from_nanos(ms * 1_000_000);
///     view.oldest.get_or_insert(view.now);
///     view.keys += 1;
///     if policy.flush(&view) == FlushDecision::Now(Scope::Stale) {
///         batches.push(view.keys);
///         (view.last_flush, view.keys, view.oldest) = (view.now, 0, None);
///     }
/// }
/// assert_eq!(batches, [4000; 25]);
/// # Ok::<(), mr_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Periodic {
    period: Duration,
}

impl Periodic {
    /// Flushes every `period`.
    ///
    /// # Errors
    ///
    /// [`PolicyError::OutOfRange`] unless `period` is from 1 ns to 365 days.
    pub fn new(period: Duration) -> Result<Self, PolicyError> {
        let policy = Self { period };
        if is_time(period) {
            Ok(policy)
        } else {
            Err(out_of_range(&policy, "period", TIMES))
        }
    }
}

impl InvalidationPolicy for Periodic {
    fn speaks_at_release(&self) -> bool {
        false
    }

    fn flush(&self, stale: &StaleView) -> FlushDecision {
        let start = match stale.oldest {
            Some(oldest) if stale.keys > 0 => oldest.min(stale.last_flush),
            _ => stale.last_flush,
        };
        let due = start + self.period;
        if stale.now < due {
            FlushDecision::at(due)
        } else if stale.keys > 0 {
            FlushDecision::Now(Scope::Stale)
        } else {
            UNTIL_STALE
        }
    }

    fn exposure_bound(&self) -> Option<Duration> {
        Some(self.period)
    }
}

impl fmt::Display for Periodic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_time(f, "periodic", self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_core::Time;

    #[test]
    fn decides() {
        let policy = Periodic::new(Duration::from_nanos(100)).unwrap();
        let at = |nanos| FlushDecision::at(Time::from_nanos(nanos));
        let now = FlushDecision::Now(Scope::Stale);
        for (time, last_flush, keys, oldest, expected) in [
            (0, 0, 0, None, at(100)),
            (99, 0, 1, Some(7), at(100)),
            (100, 0, 1, Some(7), now),
            (100, 0, 0, None, UNTIL_STALE),
            // Missed periods: one flush, and the next a whole period later.
            (1000, 0, 1, Some(1000), now),
            (1000, 1000, 0, None, at(1100)),
            // A flush of worn regions at 90 left a key of 30 behind.
            (90, 90, 1, Some(30), at(130)),
            (130, 90, 1, Some(30), now),
        ] {
            let mut view = StaleView::default();
            view.now = Time::from_nanos(time);
            view.last_flush = Time::from_nanos(last_flush);
            view.keys = keys;
            view.oldest = oldest.map(Time::from_nanos);
            assert_eq!(policy.flush(&view), expected, "{view:?}");
        }
    }

    #[test]
    fn the_period_is_neither_zero_nor_for_ever() {
        assert_eq!(
            Periodic::new(Duration::ZERO).unwrap_err().to_string(),
            "periodic=0ns: period must be a time from 1ns to 365d"
        );
        assert!(Periodic::new(Duration::MAX).is_err());
    }
}
