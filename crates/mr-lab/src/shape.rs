//! A policy, taken apart: what a closed form must know of it.

use crate::units::nanos;
use mr_core::{
    Access, AtRelease, FlushDecision, InvalidationPolicy, Marks, ReleasedRegion, StaleView,
};
use mr_policies::Policy;
use mr_policies::quantity::{self, KEY_TIME, TIME};
use std::time::Duration;

/// The most mappings between two invalidations that the pool allows: one less than there are tags.
const MOST_MAPS: u32 = 255;

/// What decides when a policy flushes. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Mappings between two invalidations.
    pub(crate) maps: u32,
    pub(crate) immediate: bool,
    /// Worn regions at which it flushes.
    pub(crate) worn: Option<u32>,
    /// Bytes behind stale keys at which it flushes.
    pub(crate) bytes: Option<u64>,
    pub(crate) period: Option<u64>,
    /// Age of a stale key at which it flushes.
    pub(crate) age: Option<u64>,
    /// Key-nanoseconds at which it flushes.
    pub(crate) quota: Option<u64>,
}

impl Shape {
    /// The shape of `policy` in a pool of `capacity` regions.
    ///
    /// Counts are asked of the policy itself (a share becomes a number, a name what it stands
    /// for); times are read off its text, in which they are plain.
    pub(crate) fn of(policy: &Policy, capacity: u32) -> Self {
        let mut shape = Self {
            maps: maps(policy),
            immediate: verdict(policy, 1) == AtRelease::Invalidate,
            ..Self::default()
        };
        let marks = marks(policy, capacity);
        (shape.worn, shape.bytes) = (marks.worn, marks.bytes);
        for clause in policy.to_string().split(',') {
            shape.read(clause);
        }
        shape
    }

    fn read(&mut self, clause: &str) {
        let time = |text| quantity::parse(text, TIME).ok();
        match clause.split_once('=') {
            Some(("periodic", text)) => self.period = time(text),
            Some(("max-exposure", text)) => self.limit_age(time(text)),
            Some(("adaptive", text)) => {
                let (quota, age) = text.split_once('/').unwrap_or((text, ""));
                self.quota = quantity::parse(quota, KEY_TIME).ok();
                self.limit_age(time(age));
            }
            _ => {}
        }
    }

    fn limit_age(&mut self, age: Option<u64>) {
        self.age = [self.age, age].into_iter().flatten().min();
    }

    /// The same in a pool with these bounds of its own.
    pub(crate) fn within(mut self, max_age: Duration, max_stale_bytes: u64) -> Self {
        self.limit_age(Some(nanos(max_age)));
        let bytes = self.bytes.unwrap_or(u64::MAX).min(max_stale_bytes);
        self.bytes = Some(bytes).filter(|&bytes| bytes < u64::MAX);
        self
    }
}

fn maps(policy: &Policy) -> u32 {
    let reuses = |&maps: &u32| verdict(policy, maps) == AtRelease::Reuse;
    (1..MOST_MAPS).take_while(reuses).count() as u32 + 1
}

fn verdict(policy: &Policy, maps: u32) -> AtRelease {
    let region = ReleasedRegion::new(maps, 1, Access::REMOTE_READ);
    policy.at_release(&region).unwrap_or(AtRelease::Retire)
}

/// What the policy waits for when one region has just been released.
fn marks(policy: &Policy, capacity: u32) -> Marks {
    let mut view = StaleView::default();
    (view.worn, view.keys, view.bytes) = (1, 1, 1);
    (view.oldest, view.capacity) = (Some(view.now), capacity);
    match policy.flush(&view) {
        FlushDecision::Hold(marks) => marks,
        FlushDecision::Now(_) => Marks {
            worn: Some(1),
            ..Marks::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Shape {
        Shape::of(&text.parse().unwrap(), 5000)
    }

    #[test]
    fn takes_policies_apart() {
        let once = Shape {
            maps: 1,
            ..Shape::default()
        };
        let worn = |worn| Shape {
            worn: Some(worn),
            ..once
        };
        assert_eq!(shape("use-once"), once);
        assert_eq!(shape("threshold=4000"), worn(4000));
        assert_eq!(shape("threshold=1"), worn(1));
        assert_eq!(shape("origin"), worn(4000));
        assert_eq!(shape("rds"), worn(500));
        assert_eq!(
            shape("srp"),
            Shape {
                maps: 32,
                ..worn(1250)
            }
        );
        assert_eq!(shape("use-n=255").maps, 255);
        assert_eq!(shape("threshold=1GiB").bytes, Some(1 << 30));
        assert!(shape("immediate").immediate);
        assert_eq!(shape("periodic=4s").period, Some(4_000_000_000));
        let adaptive = shape("adaptive=5key-s/1s,max-exposure=2s");
        assert_eq!(adaptive.quota, Some(5_000_000_000));
        assert_eq!(adaptive.age, Some(1_000_000_000));
        assert_eq!(
            adaptive.within(Duration::from_millis(3), u64::MAX).age,
            Some(3_000_000)
        );
    }
}
