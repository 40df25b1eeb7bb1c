//! Which policies cannot both be meant.
//!
//! Combining makes sense of any two policies (the strictest wins, the earliest wins), but whoever
//! wrote `use-once,use-n=32` or `periodic=1s,periodic=4s` did not mean one of them. So a policy
//! claims what it decides, and no two claims on the same thing may differ. Policies with different
//! claims, such as `threshold=4000,threshold=1GiB,periodic=4s`, complement each other.

use crate::policy::Part;
use crate::{Adaptive, MaxExposure, Periodic, Threshold};
use mr_core::PolicyError;
use std::mem::discriminant;

/// What a policy decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// When a region is no longer reused.
    Release(Release),
    /// At how many worn regions to flush.
    Worn(Threshold),
    /// At how many bytes to flush.
    Bytes(Threshold),
    Period(Periodic),
    Age(MaxExposure),
    Quota(Adaptive),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    Invalidate,
    RetireAfter(u32),
}

/// The first two of `parts` that contradict each other.
pub(crate) fn find(parts: &[Part]) -> Option<PolicyError> {
    parts.iter().enumerate().find_map(|(place, second)| {
        let earlier = parts.iter().take(place);
        earlier.into_iter().find_map(|first| {
            between(first, second).map(|reason| PolicyError::Contradiction {
                first: first.get().to_string(),
                second: second.get().to_string(),
                reason,
            })
        })
    })
}

/// Why `first` and `second` contradict each other, if they do.
pub(crate) fn between(first: &Part, second: &Part) -> Option<&'static str> {
    claims(first).find_map(|one| {
        claims(second)
            .find(|other| discriminant(&one) == discriminant(other) && one != *other)
            .map(reason)
    })
}

fn claims(part: &Part) -> impl Iterator<Item = Claim> {
    let release = |n| Some(Claim::Release(Release::RetireAfter(n)));
    let claims = match *part {
        Part::Immediate(_) => [Some(Claim::Release(Release::Invalidate)), None],
        Part::UseOnce(_) => [release(1), None],
        Part::UseN(policy) => [release(policy.n()), None],
        Part::Threshold(policy) => [Some(threshold(policy)), None],
        Part::Periodic(policy) => [Some(Claim::Period(policy)), None],
        Part::MaxExposure(policy) => [Some(Claim::Age(policy)), None],
        Part::Adaptive(policy) => [Some(Claim::Quota(policy)), None],
        Part::Named(policy) => [
            release(policy.use_n().n()),
            policy.threshold().map(threshold),
        ],
    };
    claims.into_iter().flatten()
}

fn threshold(policy: Threshold) -> Claim {
    if policy.is_of_bytes() {
        Claim::Bytes(policy)
    } else {
        Claim::Worn(policy)
    }
}

fn reason(claim: Claim) -> &'static str {
    match claim {
        Claim::Release(_) => "only one of them can say what becomes of a region at release",
        Claim::Worn(_) => "both count worn regions; keep one",
        Claim::Bytes(_) => "both count bytes; keep one",
        Claim::Period(_) => "there is one period; keep one",
        Claim::Age(_) => "the shorter one makes the other void; keep one",
        Claim::Quota(_) => "both count key-seconds; keep one",
    }
}
