//! `a,b`: two policies at once.

use crate::strictest::{shorter, stricter};
use crate::{contradiction, text};
use mr_core::{
    AtRelease, FlushDecision, InvalidationPolicy, PolicyError, PoolLimits, ReleasedRegion,
    StaleView,
};
use std::fmt;
use std::time::Duration;

/// Combines policies.
pub trait PolicyExt: InvalidationPolicy + Sized {
    /// Both policies at once: at release the stricter opinion wins, at flush the earlier.
    ///
    /// Two that cannot both be meant, such as `use-once` and `use-n=32`, are refused when the pool
    /// is built.
    fn and<P: InvalidationPolicy>(self, other: P) -> And<Self, P> {
        And {
            first: self,
            second: other,
        }
    }
}

impl<P: InvalidationPolicy> PolicyExt for P {}

/// Two policies at once. Made by [`PolicyExt::and`].
///
/// Text: both texts, with a comma between them.
///
/// # Bound
///
/// The smaller of the two.
///
/// # Example
///
/// The running example with a bound: `threshold=4000` alone leaves up to 3999 keys stale when
/// traffic stops; with `max-exposure=5s` it flushes as before (every 4 s) while there is traffic,
/// and 5 s after the oldest release when there is none.
///
/// ```
/// use mr_core::{FlushDecision, InvalidationPolicy, Scope, StaleView, Time};
/// use mr_policies::{MaxExposure, PolicyExt, Threshold};
/// use std::time::Duration;
///
/// let five = Duration::from_secs(5);
/// let policy = Threshold::regions(4000)?.and(MaxExposure::new(five)?);
/// assert_eq!(policy.exposure_bound(), Some(five));
///
/// let mut view = StaleView::default();
/// (view.worn, view.keys, view.oldest) = (3999, 3999, Some(Time::ZERO));
/// view.now = Time::ZERO + Duration::from_secs(4);
/// let FlushDecision::Hold(marks) = policy.flush(&view) else { unreachable!() };
/// assert_eq!((marks.worn, marks.at), (Some(4000), Some(Time::ZERO + five)));
///
/// view.now = Time::ZERO + five; // no traffic for a second
/// assert_eq!(policy.flush(&view), FlushDecision::Now(Scope::Stale));
/// # Ok::<(), mr_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct And<A, B> {
    first: A,
    second: B,
}

impl<A: InvalidationPolicy, B: InvalidationPolicy> InvalidationPolicy for And<A, B> {
    fn at_release(&self, region: &ReleasedRegion) -> Option<AtRelease> {
        stricter(
            self.first.at_release(region),
            self.second.at_release(region),
        )
    }

    fn speaks_at_release(&self) -> bool {
        self.first.speaks_at_release() || self.second.speaks_at_release()
    }

    fn flush(&self, stale: &StaleView) -> FlushDecision {
        self.first.flush(stale).earliest(self.second.flush(stale))
    }

    fn exposure_bound(&self) -> Option<Duration> {
        shorter(self.first.exposure_bound(), self.second.exposure_bound())
    }

    /// Both must hold, and must not contradict each other. Contradictions are looked for in the
    /// text, which is all that is known of a policy from elsewhere; what the text calls by a name
    /// of this crate is taken to be that policy, and other names are taken to be compatible.
    fn check(&self, pool: &PoolLimits) -> Result<(), PolicyError> {
        self.first.check(pool)?;
        self.second.check(pool)?;
        contradiction::find(&text::known_parts(&self.to_string())).map_or(Ok(()), Err)
    }
}

impl<A: fmt::Display, B: fmt::Display> fmt::Display for And<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.first, self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Immediate, MaxExposure, Named, Threshold, UseN, UseOnce};
    use mr_core::{Access, Capabilities, Remap, Scope, Time};

    /// A policy of a user, with a name that this crate does not know.
    struct NoPeerWrites;

    impl InvalidationPolicy for NoPeerWrites {
        fn at_release(&self, region: &ReleasedRegion) -> Option<AtRelease> {
            region
                .access
                .lets_peer_write()
                .then_some(AtRelease::Invalidate)
        }
    }

    impl fmt::Display for NoPeerWrites {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("no-peer-writes")
        }
    }

    fn pool() -> PoolLimits {
        let mut capabilities = Capabilities::new(5000, 1 << 20);
        capabilities.remap = Remap::LeavesPrevious;
        capabilities.tag_bits = 8;
        PoolLimits::new(5000, &capabilities)
    }

    #[test]
    fn it_speaks_at_release_if_either_does() {
        let silent = Threshold::regions(7).unwrap();
        assert!(!silent.and(silent).speaks_at_release());
        assert!(silent.and(NoPeerWrites).speaks_at_release());
        assert!(NoPeerWrites.and(silent).speaks_at_release());
    }

    #[test]
    fn a_user_policy_makes_some_releases_stricter() {
        let policy = UseN::new(32).unwrap().and(NoPeerWrites);
        let release = |access| policy.at_release(&ReleasedRegion::new(1, 0, access));
        assert_eq!(release(Access::REMOTE_READ), Some(AtRelease::Reuse));
        assert_eq!(release(Access::REMOTE_WRITE), Some(AtRelease::Invalidate));
        assert_eq!(policy.check(&pool()), Ok(()));
    }

    #[test]
    fn the_earliest_wins_at_flush() {
        let age = Duration::from_nanos(10);
        let policy = Threshold::regions(3)
            .unwrap()
            .and(MaxExposure::new(age).unwrap());
        let mut view = StaleView::default();
        (view.worn, view.keys, view.oldest) = (3, 3, Some(Time::ZERO));
        assert_eq!(policy.flush(&view), FlushDecision::Now(Scope::Worn));
        view.now = Time::ZERO + age;
        assert_eq!(policy.flush(&view), FlushDecision::Now(Scope::Stale));
        view.worn = 1;
        assert_eq!(policy.flush(&view), FlushDecision::Now(Scope::Stale));
    }

    #[test]
    fn the_smaller_bound_holds() {
        let second = MaxExposure::new(Duration::from_secs(1)).unwrap();
        assert_eq!(UseOnce.and(UseOnce).exposure_bound(), None);
        assert_eq!(
            UseOnce.and(second).exposure_bound(),
            second.exposure_bound()
        );
        assert_eq!(Immediate.and(second).exposure_bound(), Some(Duration::ZERO));
    }

    #[test]
    fn contradictions_are_refused_however_deep() {
        let n = |n| UseN::new(n).unwrap();
        let m = |m| Threshold::regions(m).unwrap();
        let pool = &pool();
        for (checked, contradicts) in [
            (n(32).and(m(4000)).check(pool), false),
            (n(32).and(n(32)).check(pool), false),
            (UseOnce.and(n(1)).check(pool), false),
            (n(32).and(n(16)).check(pool), true),
            (n(32).and(UseOnce).check(pool), true),
            (n(32).and(Immediate).check(pool), true),
            (UseOnce.and(m(1)).and(m(2)).check(pool), true),
            (
                m(1).and(UseOnce.and(NoPeerWrites.and(m(2)))).check(pool),
                true,
            ),
            (Named::Srp.and(n(32)).check(pool), false),
            (Named::Srp.and(UseOnce).check(pool), true),
            (Named::Srp.and(m(7)).check(pool), true),
        ] {
            let found = matches!(checked, Err(PolicyError::Contradiction { .. }));
            assert_eq!(found, contradicts, "{checked:?}");
        }
    }

    #[test]
    fn each_is_checked() {
        let too_many = Threshold::regions(5001).unwrap();
        assert!(UseOnce.and(too_many).check(&pool()).is_err());
        assert!(too_many.and(UseOnce).check(&pool()).is_err());
    }
}
