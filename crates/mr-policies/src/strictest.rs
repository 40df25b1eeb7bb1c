//! What several opinions come to: the strictest wins.

use mr_core::AtRelease;
use std::time::Duration;

/// The stricter opinion, if any.
pub(crate) fn stricter(a: Option<AtRelease>, b: Option<AtRelease>) -> Option<AtRelease> {
    a.max(b)
}

/// The smaller bound, if any.
pub(crate) fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_wins_at_release() {
        use AtRelease::{Invalidate, Retire, Reuse};
        let all = [None, Some(Reuse), Some(Retire), Some(Invalidate)];
        for (i, a) in all.into_iter().enumerate() {
            for (j, b) in all.into_iter().enumerate() {
                assert_eq!(stricter(a, b), all[i.max(j)]);
            }
        }
    }
}
