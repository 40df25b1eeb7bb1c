//! `use-n=32`: a region is mapped up to 32 times before it waits for a flush.

use crate::range::out_of_range;
use mr_core::{
    AtRelease, InvalidationPolicy, KeyTag, PolicyError, PoolLimits, ReleasedRegion, Remap,
};
use std::fmt;

/// Keeps a region for reuse until its `n`-th mapping, then retires it. Silent about flushes.
///
/// Text: `use-n=32`.
///
/// # Bound
///
/// None, and none can be had from counting mappings: a region that is not drawn again never gets
/// to `n`. Combine it with [`MaxExposure`](crate::MaxExposure), or rely on the pool's `max_age`.
///
/// # Good and bad at
///
/// Good: the fewest flushes of all, by a factor of `n`. Bad: by far the longest exposure, since
/// every key of a region stays stale until its last mapping has been flushed, and the more regions,
/// the longer that takes. A backend that kills the table entry at release (soft invalidation), or
/// whose remap kills the previous key, makes it bearable.
///
/// # Example
///
/// In the running example with n = 32: of 1000 releases a second 31.25 retire a region. With a
/// free list that is a queue, the 31 mappings after the first come 4.99 s apart (one round of
/// 4990 regions), so a key is stale for 77 s in the mean and 155 s at most; with one that is a
/// stack there is no longest time at all.
///
/// ```
/// use mr_core::{Access, AtRelease, InvalidationPolicy, ReleasedRegion};
/// use mr_policies::UseN;
///
/// let policy = UseN::new(32)?;
/// let retired = (0..32_000)
///     .map(|io| ReleasedRegion::new(io % 32 + 1, 1_000_000, Access::REMOTE_READ))
///     .filter(|region| policy.at_release(region) == Some(AtRelease::Retire))
///     .count();
/// assert_eq!(retired, 1000); // in 32 s: 31.25 a second
///
/// let round_s = f64::from(5000 - 10) / 1000.0;
/// assert_eq!((31.0 * round_s).round(), 155.0);
/// # Ok::<(), mr_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UseN {
    n: u32,
}

impl UseN {
    /// The largest `n`: one less than there are tags, so that no two keys of a region that may be
    /// stale together, nor the key after them, are the same.
    pub const MAX: u32 = KeyTag::COUNT - 1;

    /// Retires a region after `n` mappings.
    ///
    /// # Errors
    ///
    /// [`PolicyError::OutOfRange`] unless `n` is from 1 to [`UseN::MAX`] (255).
    pub fn new(n: u32) -> Result<Self, PolicyError> {
        let policy = Self { n };
        if (1..=Self::MAX).contains(&n) {
            Ok(policy)
        } else {
            Err(out_of_range(&policy, "n", Self::allowed()))
        }
    }

    /// For an `n` that is known to be in range.
    pub(crate) const fn known(n: u8) -> Self {
        Self { n: n as u32 }
    }

    /// The mappings after which a region is retired.
    pub const fn n(self) -> u32 {
        self.n
    }

    pub(crate) fn allowed() -> String {
        format!("from 1 to {}", Self::MAX)
    }
}

impl InvalidationPolicy for UseN {
    fn at_release(&self, region: &ReleasedRegion) -> Option<AtRelease> {
        Some(if region.maps < self.n {
            AtRelease::Reuse
        } else {
            AtRelease::Retire
        })
    }

    /// `n` must leave a tag free, and with `n` above 1 the backend must be able to map a region
    /// again before it is invalidated.
    fn check(&self, pool: &PoolLimits) -> Result<(), PolicyError> {
        if self.n > 1 && pool.remap == Remap::Impossible {
            return Err(PolicyError::Unsupported {
                policy: self.to_string(),
                reason: "this backend must invalidate a region before it can map it again; \
                         use `use-once`",
            });
        }
        match pool.tags {
            Some(tags) if self.n >= tags => Err(out_of_range(
                self,
                "n",
                format!(
                    "from 1 to {}: this backend has {tags} tags",
                    tags.saturating_sub(1)
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for UseN {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "use-n={}", self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_core::{Access, Capabilities};

    fn limits(remap: Remap, tag_bits: u8) -> PoolLimits {
        let mut capabilities = Capabilities::new(1 << 20, 1 << 20);
        capabilities.remap = remap;
        capabilities.tag_bits = tag_bits;
        PoolLimits::new(5000, &capabilities)
    }

    #[test]
    fn reuses_before_the_nth_mapping_and_not_after() {
        for n in 1..=UseN::MAX {
            let policy = UseN::new(n).unwrap();
            for maps in 1..=300 {
                let region = ReleasedRegion::new(maps, 0, Access::REMOTE_READ);
                let expected = if maps < n {
                    AtRelease::Reuse
                } else {
                    AtRelease::Retire
                };
                assert_eq!(
                    policy.at_release(&region),
                    Some(expected),
                    "{policy}, {maps}"
                );
            }
        }
    }

    #[test]
    fn the_range_is_the_tag_space() {
        for n in [0, 256, u32::MAX] {
            let message = UseN::new(n).unwrap_err().to_string();
            assert_eq!(message, format!("use-n={n}: n must be from 1 to 255"));
        }
    }

    #[test]
    fn the_backend_must_be_able_to() {
        use Remap::{Impossible, KillsPrevious, LeavesPrevious};
        for (n, remap, tag_bits, holds) in [
            (1, Impossible, 8, true),
            (2, Impossible, 8, false),
            (2, LeavesPrevious, 8, true),
            (255, KillsPrevious, 8, true),
            (255, LeavesPrevious, 0, true), // the HCA chooses the keys
            (7, LeavesPrevious, 3, true),
            (8, LeavesPrevious, 3, false),
        ] {
            let checked = UseN::new(n).unwrap().check(&limits(remap, tag_bits));
            assert_eq!(
                checked.is_ok(),
                holds,
                "{n} {remap:?} {tag_bits}: {checked:?}"
            );
        }
        let message = UseN::new(8).unwrap().check(&limits(LeavesPrevious, 3));
        assert_eq!(
            message.unwrap_err().to_string(),
            "use-n=8: n must be from 1 to 7: this backend has 8 tags"
        );
    }
}
