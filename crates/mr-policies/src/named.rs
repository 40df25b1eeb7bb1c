//! What real systems did, by name: `rds`, `srp`, `iser`, …

use crate::{Threshold, UseN};
use mr_core::{
    AtRelease, FlushDecision, InvalidationPolicy, PolicyError, PoolLimits, ReleasedRegion,
    StaleView,
};
use std::fmt;

/// The policy of a real system.
///
/// Text: its name. Each stands for a pair of others, but keeps its name in reports.
///
/// | text | is | from |
/// | --- | --- | --- |
/// | `rds` | `use-once,threshold=10%` | Linux 2.6.32 to 3.13, `net/rds/ib_rdma.c`: a flush at `max_items / 10` dirty FMRs |
/// | `rds-frmr` | `use-once,threshold=20%` | the same file in 6.1, for fast-registered regions: at `max_items / 5` |
/// | `fmr-pool` | `use-n=32` | `drivers/infiniband/core/fmr_pool.c`: `IB_FMR_MAX_REMAPS`; the watermark was its user's choice |
/// | `srp` | `use-n=32,threshold=25%` | `ib_srp`: fmr_pool with `dirty_watermark = pool_size / 4` |
/// | `iser` | `use-n=32,threshold=50%` | `ib_iser`: fmr_pool with a watermark of half its size |
/// | `ko2iblnd` | `use-n=32,threshold=75%` | Lustre: fmr_pool with `fmr_flush_trigger` 384 of `fmr_pool_size` 512 |
/// | `origin` | `use-once,threshold=80%` | the proposal of 2008 that this workspace examines: unmap 4000 of 5000 at once |
///
/// # What is not in them
///
/// - RDS starts its flush 10 jiffies after the threshold (10 ms to 100 ms, by the kernel's tick;
///   2.6.32 at once), so its exposure is longer by that. A policy here decides at once.
/// - RDS also flushes when dirty regions pin a quarter of the pages that all regions together could
///   pin. The count comes first: 10 % (or 20 %) of the regions pin no more than that share.
/// - `fmr_pool` takes 32 only where the HCA names no number of its own; mlx4 named 8191.
/// - `fmr_pool` and its users could keep a cache of mappings; `rds-frmr` has two pools, by size.
///
/// # Bound
///
/// None of them has one. `srp,max-exposure=1s` adds it.
///
/// # Good and bad at
///
/// Good for comparing with what was, or is, in use. For a choice of your own, say it with the
/// policies that they are made of.
///
/// # Example
///
/// In the running example: `rds` flushes at 500 regions, twice a second, exposure 0.5 s at most.
/// `srp` flushes at 1250 regions that were each mapped 32 times, once in 40 s; its exposure is in
/// minutes.
///
/// ```
/// use mr_core::{FlushDecision, InvalidationPolicy, Scope, StaleView};
/// use mr_policies::Named;
///
/// fn watermark(policy: Named) -> Option<u32> {
///     let mut view = StaleView::default();
///     view.capacity = 5000;
///     match policy.flush(&view) {
///         FlushDecision::Hold(marks) => marks.worn,
///         FlushDecision::Now(_) => Some(0),
///     }
/// }
///
/// let worn = Named::ALL.map(|policy| (policy.name(), watermark(policy)));
/// assert_eq!(worn, [
///     ("rds", Some(500)),
///     ("rds-frmr", Some(1000)),
///     ("fmr-pool", None),
///     ("srp", Some(1250)),
///     ("iser", Some(2500)),
///     ("ko2iblnd", Some(3750)),
///     ("origin", Some(4000)),
/// ]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Named {
    /// RDS over FMRs.
    Rds,
    /// RDS over fast-registered regions.
    RdsFrmr,
    /// The kernel's FMR pool, without a watermark.
    FmrPool,
    /// The SCSI RDMA protocol's initiator.
    Srp,
    /// The initiator of iSCSI extensions for RDMA.
    Iser,
    /// Lustre's network driver for InfiniBand.
    Ko2iblnd,
    /// The proposal of the origin mail.
    Origin,
}

/// `IB_FMR_MAX_REMAPS`.
const FMR_POOL_REMAPS: u8 = 32;

impl Named {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Rds,
        Self::RdsFrmr,
        Self::FmrPool,
        Self::Srp,
        Self::Iser,
        Self::Ko2iblnd,
        Self::Origin,
    ];

    /// Its text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rds => "rds",
            Self::RdsFrmr => "rds-frmr",
            Self::FmrPool => "fmr-pool",
            Self::Srp => "srp",
            Self::Iser => "iser",
            Self::Ko2iblnd => "ko2iblnd",
            Self::Origin => "origin",
        }
    }

    /// What it does at release.
    pub(crate) const fn use_n(self) -> UseN {
        match self {
            Self::Rds | Self::RdsFrmr | Self::Origin => UseN::known(1),
            Self::FmrPool | Self::Srp | Self::Iser | Self::Ko2iblnd => UseN::known(FMR_POOL_REMAPS),
        }
    }

    /// What it does about flushes.
    pub(crate) const fn threshold(self) -> Option<Threshold> {
        let percent = match self {
            Self::Rds => 10,
            Self::RdsFrmr => 20,
            Self::FmrPool => return None,
            Self::Srp => 25,
            Self::Iser => 50,
            Self::Ko2iblnd => 75,
            Self::Origin => 80,
        };
        Some(Threshold::known_percent(percent))
    }
}

impl InvalidationPolicy for Named {
    fn at_release(&self, region: &ReleasedRegion) -> Option<AtRelease> {
        self.use_n().at_release(region)
    }

    fn flush(&self, stale: &StaleView) -> FlushDecision {
        self.threshold()
            .map_or(FlushDecision::SILENT, |threshold| threshold.flush(stale))
    }

    fn check(&self, pool: &PoolLimits) -> Result<(), PolicyError> {
        self.use_n().check(pool).map_err(|error| match error {
            PolicyError::Unsupported { reason, .. } => PolicyError::Unsupported {
                policy: self.to_string(),
                reason,
            },
            other => other,
        })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use mr_core::{Access, Capabilities, Remap, Time};
    use std::time::Duration;

    /// The table in the docs.
    const SPELLED_OUT: [(Named, &str); 7] = [
        (Named::Rds, "use-once,threshold=10%"),
        (Named::RdsFrmr, "use-once,threshold=20%"),
        (Named::FmrPool, "use-n=32"),
        (Named::Srp, "use-n=32,threshold=25%"),
        (Named::Iser, "use-n=32,threshold=50%"),
        (Named::Ko2iblnd, "use-n=32,threshold=75%"),
        (Named::Origin, "use-once,threshold=80%"),
    ];

    #[test]
    fn each_decides_as_what_it_stands_for() {
        for (named, text) in SPELLED_OUT {
            let policy: Policy = text.parse().unwrap();
            for maps in [1, 2, 31, 32, 33] {
                let region = ReleasedRegion::new(maps, 4096, Access::REMOTE_READ);
                assert_eq!(named.at_release(&region), policy.at_release(&region));
            }
            for worn in 0..=512 {
                let mut view = StaleView::default();
                (view.capacity, view.worn, view.keys) = (512, worn, u64::from(worn));
                view.now = Time::ZERO + Duration::from_secs(3600);
                assert_eq!(named.flush(&view), policy.flush(&view), "{named}, {worn}");
            }
            assert_eq!(named.exposure_bound(), policy.exposure_bound());
        }
    }

    #[test]
    fn those_that_remap_need_a_backend_that_can() {
        for (named, text) in SPELLED_OUT {
            let mut capabilities = Capabilities::new(512, 1 << 20);
            let checked = named.check(&PoolLimits::new(512, &capabilities));
            assert_eq!(checked.is_err(), text.starts_with("use-n"), "{named}");
            if let Err(error) = checked {
                assert!(error.to_string().starts_with(named.name()), "{error}");
            }
            capabilities.remap = Remap::KillsPrevious;
            let checked = named.check(&PoolLimits::new(512, &capabilities));
            assert_eq!(checked, Ok(()));
        }
    }
}
