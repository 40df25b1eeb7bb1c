//! The type for those who have their policy as text.

use crate::strictest::{shorter, stricter};
use crate::{Adaptive, Immediate, MaxExposure, Named, Periodic, Threshold, UseN, UseOnce};
use mr_core::{
    AtRelease, FlushDecision, InvalidationPolicy, PolicyError, PoolLimits, ReleasedRegion,
    StaleView,
};
use std::fmt;
use std::time::Duration;

/// Any combination of the policies of this crate, read from text by [`str::parse`].
///
/// The text is a list of policies with commas between them, and [`Display`](fmt::Display) writes
/// it back, in the order given and without repetitions: `parse(display(p)) == p`. The grammar of
/// each is in [`syntax`](crate::syntax) and in that policy's docs. With the feature `serde` it
/// goes into configuration files, as its text.
///
/// The default is `immediate`.
///
/// ```
/// use mr_policies::Policy;
///
/// let error = "use-n=0,threshold=25%".parse::<Policy>().unwrap_err();
/// assert_eq!(error.offset(), 6);
/// assert_eq!(error.to_string(), "\
/// column 7: the value is out of range
///   use-n=0,threshold=25%
///         ^
/// allowed: from 1 to 255");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// At least one, all different, without contradictions.
    parts: Vec<Part>,
}

impl Policy {
    pub(crate) const fn of(parts: Vec<Part>) -> Self {
        Self { parts }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::of(vec![Part::Immediate(Immediate)])
    }
}

impl InvalidationPolicy for Policy {
    fn at_release(&self, region: &ReleasedRegion) -> Option<AtRelease> {
        let opinions = self.parts.iter().map(|part| part.get().at_release(region));
        opinions.fold(None, stricter)
    }

    fn speaks_at_release(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| part.get().speaks_at_release())
    }

    fn flush(&self, stale: &StaleView) -> FlushDecision {
        let decisions = self.parts.iter().map(|part| part.get().flush(stale));
        decisions.fold(FlushDecision::SILENT, FlushDecision::earliest)
    }

    fn exposure_bound(&self) -> Option<Duration> {
        let bounds = self.parts.iter().map(|part| part.get().exposure_bound());
        bounds.fold(None, shorter)
    }

    fn check(&self, pool: &PoolLimits) -> Result<(), PolicyError> {
        self.parts
            .iter()
            .try_for_each(|part| part.get().check(pool))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.parts.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}", part.get())?;
        }
        Ok(())
    }
}

/// One policy in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Immediate(Immediate),
    UseOnce(UseOnce),
    UseN(UseN),
    Threshold(Threshold),
    Periodic(Periodic),
    MaxExposure(MaxExposure),
    Adaptive(Adaptive),
    Named(Named),
}

impl Part {
    pub(crate) fn get(&self) -> &dyn InvalidationPolicy {
        match self {
            Self::Immediate(policy) => policy,
            Self::UseOnce(policy) => policy,
            Self::UseN(policy) => policy,
            Self::Threshold(policy) => policy,
            Self::Periodic(policy) => policy,
            Self::MaxExposure(policy) => policy,
            Self::Adaptive(policy) => policy,
            Self::Named(policy) => policy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_core::{Access, Capabilities};

    #[test]
    fn decides_as_its_parts_combined() {
        let policy: Policy = "use-n=32,threshold=4000,max-exposure=1s".parse().unwrap();
        let region = ReleasedRegion::new(31, 0, Access::REMOTE_READ);
        assert_eq!(policy.at_release(&region), Some(AtRelease::Reuse));
        assert_eq!(policy.exposure_bound(), Some(Duration::from_secs(1)));

        let mut view = StaleView::default();
        (view.worn, view.keys, view.oldest) = (1, 1, Some(view.now));
        let FlushDecision::Hold(marks) = policy.flush(&view) else {
            panic!("nothing is due");
        };
        assert_eq!(marks.worn, Some(4000));
        assert_eq!(marks.at, Some(view.now + Duration::from_secs(1)));
        assert_eq!((marks.keys, marks.bytes), (None, None));
    }

    #[test]
    fn silent_axes_stay_silent() {
        let region = ReleasedRegion::new(1, 0, Access::REMOTE_READ);
        let threshold: Policy = "threshold=25%".parse().unwrap();
        assert_eq!(threshold.at_release(&region), None);
        let view = StaleView::default();
        assert_eq!(Policy::default().flush(&view), FlushDecision::SILENT);
    }

    #[test]
    fn every_part_is_checked() {
        let pool = PoolLimits::new(100, &Capabilities::new(100, 1 << 20));
        for (text, holds) in [
            ("use-once,threshold=100", true),
            ("use-once,threshold=101", false),
            ("use-n=2,threshold=100", false),
            ("srp", false),
            ("rds,max-exposure=1s", true),
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(policy.check(&pool).is_ok(), holds, "{text}");
        }
    }
}
