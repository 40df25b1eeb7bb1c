//! `max-exposure=100ms`: no key is stale for longer than 100 ms.

use crate::range::{TIMES, UNTIL_STALE, is_time, out_of_range, write_time};
use mr_core::{FlushDecision, InvalidationPolicy, PolicyError, Scope, StaleView};
use std::fmt;
use std::time::Duration;

/// Flushes all stale regions when the oldest stale key reaches an age.
///
/// Text: `max-exposure=100ms`.
///
/// # Bound
///
/// The age. As every declared bound it does not count the flush itself; where that matters, take
/// the time of a flush off the age.
///
/// # Good and bad at
///
/// Good: says what is wanted, a bound, and pays for no flush more than it takes; costs nothing on
/// an idle pool. Bad: on a slow load nearly every release has a flush of its own.
///
/// # Example
///
/// In the running example, `max-exposure=100ms` starts a batch with its first key and flushes
/// 100 ms later: 101 keys, one batch every 101 ms, 9.9 flushes a second, 0.15 % of the command
/// interface.
///
/// ```
/// use mr_core::{FlushDecision, InvalidationPolicy, Scope, StaleView, Time};
/// use mr_policies::MaxExposure;
/// use std::time::Duration;
///
/// let policy = MaxExposure::new(Duration::from_millis(100))?;
/// let mut view = StaleView::default();
/// let mut batches = Vec::new();
/// for ms in 1..=101_000 {
///     view.now = Time::from_nanos(ms * 1_000_000);
///     view.oldest.get_or_insert(view.now);
///     view.keys += 1;
///     if policy.flush(&view) == FlushDecision::Now(Scope::Stale) {
///         batches.push(view.keys);
///         (view.last_flush, view.keys, view.oldest) = (view.now, 0, None);
///     }
/// }
/// assert_eq!(batches, [101; 1000]);
/// # Ok::<(), mr_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxExposure {
    age: Duration,
}

impl MaxExposure {
    /// Lets no key be stale for longer than `age` plus one flush.
    ///
    /// # Errors
    ///
    /// [`PolicyError::OutOfRange`] unless `age` is from 1 ns to 365 days. For none at all use
    /// [`Immediate`](crate::Immediate).
    pub fn new(age: Duration) -> Result<Self, PolicyError> {
        let policy = Self { age };
        if is_time(age) {
            Ok(policy)
        } else {
            Err(out_of_range(&policy, "age", TIMES))
        }
    }

    pub(crate) const fn age(self) -> Duration {
        self.age
    }
}

impl InvalidationPolicy for MaxExposure {
    fn speaks_at_release(&self) -> bool {
        false
    }

    fn flush(&self, stale: &StaleView) -> FlushDecision {
        if stale.keys == 0 {
            return UNTIL_STALE;
        }
        // A stale key whose release is not known is at least taken to be stale from now on.
        let due = stale.oldest.unwrap_or(stale.now) + self.age;
        if stale.now >= due {
            FlushDecision::Now(Scope::Stale)
        } else {
            FlushDecision::at(due)
        }
    }

    fn exposure_bound(&self) -> Option<Duration> {
        Some(self.age)
    }
}

impl fmt::Display for MaxExposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_time(f, "max-exposure", self.age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_core::Time;

    #[test]
    fn decides() {
        let policy = MaxExposure::new(Duration::from_nanos(100)).unwrap();
        let at = |nanos| FlushDecision::at(Time::from_nanos(nanos));
        for (now, keys, oldest, expected) in [
            (0, 0, None, UNTIL_STALE),
            (10_000, 0, None, UNTIL_STALE),
            (50, 1, Some(50), at(150)),
            (149, 9, Some(50), at(150)),
            (150, 9, Some(50), FlushDecision::Now(Scope::Stale)),
            (1000, 9, Some(50), FlushDecision::Now(Scope::Stale)),
            (7, 1, None, at(107)),
        ] {
            let mut view = StaleView::default();
            view.now = Time::from_nanos(now);
            view.keys = keys;
            view.oldest = oldest.map(Time::from_nanos);
            assert_eq!(policy.flush(&view), expected, "{view:?}");
        }
    }

    #[test]
    fn the_age_is_neither_zero_nor_for_ever() {
        assert_eq!(
            MaxExposure::new(Duration::ZERO).unwrap_err().to_string(),
            "max-exposure=0ns: age must be a time from 1ns to 365d"
        );
        assert!(MaxExposure::new(Duration::MAX).is_err());
    }
}
