//! `adaptive=5key-s/1s`: a flush when waiting has cost as much as flushing.

use crate::MaxExposure;
use crate::quantity::{self, KEY_TIME, TIME};
use crate::range::{UNTIL_STALE, nanos, out_of_range};
use mr_core::{FlushDecision, InvalidationPolicy, Marks, PolicyError, Scope, StaleView, Time};
use std::fmt;
use std::time::Duration;

/// Flushes all stale regions when their keys have gathered `Q` key-seconds of exposure, or the
/// oldest has reached an age.
///
/// Text: `adaptive=5key-s`, and with an age `adaptive=5key-s/1s`. A key-second is one key that is
/// stale for a second, or a thousand that are stale for a millisecond.
///
/// `Q` is the price of a flush over the price of a key-second: if a flush is worth 5 key-seconds
/// to you, `Q` is 5. On a steady load of `r` releases a second that is the best fixed threshold,
/// `M = sqrt(2 Q r)`, without knowing `r`; on any other load it follows the load.
///
/// # Bound
///
/// The age if there is one, and never more than `Q` seconds: a key alone gathers a key-second per
/// second.
///
/// # Good and bad at
///
/// Good: one number that needs no rate, and stays right when the load changes by orders of
/// magnitude; a bound even when traffic stops. Bad: the price of a key-second is a judgement, and
/// all keys weigh the same, whatever they reach.
///
/// # Questions and precision
///
/// It is asked again whenever the batch has grown by a quarter, and at the earliest time at which
/// a batch that has not could be full. So it is asked a number of times per batch that grows with
/// the logarithm of the batch and of `Q`, and it is never late by more than the rounding to a
/// nanosecond: asked in time, it overshoots `Q` by less than 1.25 key-nanoseconds per key.
///
/// # Example
///
/// In the running example, `adaptive=5key-s` gives `M = sqrt(2 * 5 * 1000) = 100`: 10 flushes a
/// second, exposure 50 ms in the mean and 0.1 s at most. At 10 I/Os a second the same text gives
/// batches of 10 keys, one a second.
///
/// ```
/// use mr_core::{FlushDecision, InvalidationPolicy, Scope, StaleView, Time};
/// use mr_policies::Adaptive;
/// use std::time::Duration;
///
/// fn mean_batch(policy: &Adaptive, every: Duration) -> u64 {
///     let (mut view, mut flushes) = (StaleView::default(), 0);
///     for _release in 0..10_000 {
///         view.key_nanos += u128::from(view.keys) * every.as_nanos();
///         view.now = view.now + every;
///         view.keys += 1;
///         if policy.flush(&view) == FlushDecision::Now(Scope::Stale) {
///             (view.key_nanos, view.keys) = (0, 0);
///             flushes += 1;
///         }
///     }
///     10_000 / flushes
/// }
///
/// let policy = Adaptive::new(Duration::from_secs(5))?;
/// assert_eq!(mean_batch(&policy, Duration::from_millis(1)), 101);
/// assert_eq!(mean_batch(&policy, Duration::from_millis(100)), 11);
/// # Ok::<(), mr_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Adaptive {
    quota: u64,
    cap: Option<MaxExposure>,
}

impl Adaptive {
    /// The largest quota: a billion key-seconds, in key-nanoseconds.
    const LARGEST: u64 = 1_000_000_000_000_000_000;

    /// Flushes at this much exposure: as much as one key gathers in `key_time`.
    ///
    /// # Errors
    ///
    /// [`PolicyError::OutOfRange`] unless `key_time` is from 1 ns to 10⁹ s.
    pub fn new(key_time: Duration) -> Result<Self, PolicyError> {
        Self::of_key_nanos(nanos(key_time))
    }

    pub(crate) fn of_key_nanos(quota: u64) -> Result<Self, PolicyError> {
        let policy = Self { quota, cap: None };
        if (1..=Self::LARGEST).contains(&quota) {
            Ok(policy)
        } else {
            let allowed = "from 1key-ns to 1000000000key-s";
            Err(out_of_range(&policy, "key-seconds", allowed))
        }
    }

    /// The same, and lets no key be stale for longer than `age`.
    ///
    /// # Errors
    ///
    /// [`PolicyError::OutOfRange`] unless `age` is from 1 ns to 365 days.
    pub fn with_max_age(self, age: Duration) -> Result<Self, PolicyError> {
        Ok(Self {
            cap: Some(MaxExposure::new(age)?),
            ..self
        })
    }
}

impl InvalidationPolicy for Adaptive {
    fn speaks_at_release(&self) -> bool {
        false
    }

    fn flush(&self, stale: &StaleView) -> FlushDecision {
        let by_quota = flush_at_quota(self.quota, stale);
        match self.cap {
            Some(cap) => by_quota.earliest(cap.flush(stale)),
            None => by_quota,
        }
    }

    fn exposure_bound(&self) -> Option<Duration> {
        let alone = Duration::from_nanos(self.quota);
        Some(self.cap.map_or(alone, |cap| alone.min(cap.age())))
    }
}

fn flush_at_quota(quota: u64, stale: &StaleView) -> FlushDecision {
    if stale.keys == 0 {
        return UNTIL_STALE;
    }
    let Some(missing @ 1..) = u128::from(quota).checked_sub(stale.key_nanos) else {
        return FlushDecision::Now(Scope::Stale);
    };
    // Until it is asked again the batch has at most `most` keys, so it cannot be full before `at`.
    // Reckoning with the present keys only would name a later time, at which a growing batch is
    // already over the quota.
    let most = stale.keys.saturating_add(stale.keys / 4);
    FlushDecision::Hold(Marks {
        at: Some(later(stale.now, missing.div_ceil(most.into()))),
        keys: Some(most.saturating_add(1)),
        ..Marks::default()
    })
}

fn later(time: Time, nanos: u128) -> Time {
    time + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl fmt::Display for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "adaptive={}", quantity::show(self.quota, KEY_TIME))?;
        match self.cap {
            Some(cap) => write!(f, "/{}", quantity::show(nanos(cap.age()), TIME)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(now: u64, keys: u64, key_nanos: u128, oldest: u64) -> StaleView {
        let mut view = StaleView::default();
        view.now = Time::from_nanos(now);
        view.keys = keys;
        view.key_nanos = key_nanos;
        view.oldest = (keys > 0).then_some(Time::from_nanos(oldest));
        view
    }

    fn hold(at: u64, keys: u64) -> FlushDecision {
        FlushDecision::Hold(Marks {
            at: Some(Time::from_nanos(at)),
            keys: Some(keys),
            ..Marks::default()
        })
    }

    #[test]
    fn decides() {
        let policy = Adaptive::of_key_nanos(1000).unwrap();
        let now = FlushDecision::Now(Scope::Stale);
        for (view, expected) in [
            (view(50, 0, 0, 0), UNTIL_STALE),
            (view(50, 1, 0, 50), hold(1050, 2)),
            (view(50, 3, 100, 0), hold(350, 4)),
            (view(50, 8, 0, 50), hold(150, 11)),
            (view(50, 8, 999, 0), hold(51, 11)),
            (view(50, 8, 1000, 0), now),
            (view(50, 8, u128::MAX, 0), now),
            (view(50, u64::MAX, 0, 50), hold(51, u64::MAX)),
        ] {
            assert_eq!(policy.flush(&view), expected, "{view:?}");
        }
    }

    #[test]
    fn the_age_caps() {
        let policy = Adaptive::of_key_nanos(1000).unwrap();
        let policy = policy.with_max_age(Duration::from_nanos(60)).unwrap();
        let now = FlushDecision::Now(Scope::Stale);
        assert_eq!(policy.flush(&view(50, 1, 20, 30)), hold(90, 2));
        assert_eq!(policy.flush(&view(90, 1, 60, 30)), now);
        assert_eq!(policy.flush(&view(80, 20, 999, 30)), hold(81, 26));
        assert_eq!(policy.flush(&view(90, 0, 0, 0)), UNTIL_STALE);
    }

    #[test]
    fn bounds_and_ranges() {
        let nanos = Duration::from_nanos;
        let five = Adaptive::new(Duration::from_secs(5)).unwrap();
        assert_eq!(five.exposure_bound(), Some(Duration::from_secs(5)));
        let capped = five.with_max_age(nanos(7)).unwrap();
        assert_eq!(capped.exposure_bound(), Some(nanos(7)));
        let longer = five.with_max_age(Duration::from_secs(9)).unwrap();
        assert_eq!(longer.exposure_bound(), Some(Duration::from_secs(5)));

        assert!(five.with_max_age(Duration::ZERO).is_err());
        assert!(Adaptive::new(Duration::MAX).is_err());
        assert_eq!(
            Adaptive::new(Duration::ZERO).unwrap_err().to_string(),
            "adaptive=0key-ns: key-seconds must be from 1key-ns to 1000000000key-s"
        );
    }
}
