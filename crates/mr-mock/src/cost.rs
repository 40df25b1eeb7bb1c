//! What operations cost, by the figures of the preset.

use crate::Preset;
use crate::chained::Posted;
use std::ops::{AddAssign, Sub};

/// Time and misses, summed over everything that a device did.
///
/// A simulation takes a snapshot before and after a call and puts the difference on its timeline:
///
/// ```
/// # use mr_mock::{MockHca, Preset};
/// # use mr_core::MrBackend;
/// # let hca = MockHca::new(&Preset::named("connectx-2008")?);
/// let before = hca.costs();
/// let region = hca.alloc()?;
/// assert_eq!((hca.costs() - before).elapsed_ns, 100_000);
/// # drop(region);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// How long callers of the backend were inside of its calls: their own work and waiting.
    pub elapsed_ns: u64,
    /// The part of `elapsed_ns` in which the caller's CPU was busy.
    pub cpu_ns: u64,
    /// Time of the HCA's engine, which also moves the data: packets, misses, work requests, and
    /// the stall of a global fence.
    pub hca_ns: u64,
    /// Time of the HCA's command interface: SYNC_TPT, and making and freeing regions.
    pub command_ns: u64,
    /// Time of the link for the payload that peers moved.
    pub link_ns: u64,
    /// Look-ups that the MPT cache could not answer.
    pub mpt_misses: u64,
    /// Look-ups that the MTT cache could not answer.
    pub mtt_misses: u64,
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.elapsed_ns += other.elapsed_ns;
        self.cpu_ns += other.cpu_ns;
        self.hca_ns += other.hca_ns;
        self.command_ns += other.command_ns;
        self.link_ns += other.link_ns;
        self.mpt_misses += other.mpt_misses;
        self.mtt_misses += other.mtt_misses;
    }
}

impl Sub for Costs {
    type Output = Self;

    /// What was spent since `earlier`, a snapshot of the same device; wrapping if it is not one.
    fn sub(self, earlier: Self) -> Self {
        Self {
            elapsed_ns: self.elapsed_ns.wrapping_sub(earlier.elapsed_ns),
            cpu_ns: self.cpu_ns.wrapping_sub(earlier.cpu_ns),
            hca_ns: self.hca_ns.wrapping_sub(earlier.hca_ns),
            command_ns: self.command_ns.wrapping_sub(earlier.command_ns),
            link_ns: self.link_ns.wrapping_sub(earlier.link_ns),
            mpt_misses: self.mpt_misses.wrapping_sub(earlier.mpt_misses),
            mtt_misses: self.mtt_misses.wrapping_sub(earlier.mtt_misses),
        }
    }
}

/// The figures of a preset as the engine uses them.
#[derive(Clone, Debug)]
pub(crate) struct CostModel {
    alloc_ns: u64,
    dealloc_ns: u64,
    map_ns: u64,
    map_page_ns: u64,
    map_hca_ns: u64,
    map_list_hca_ns: u64,
    map_inline_pages: u64,
    soft_invalidate_ns: u64,
    unmap_ns: u64,
    unmap_page_ns: u64,
    sync_ns: u64,
    stall_ns: u64,
    doorbell_ns: u64,
    invalidate_hca_ns: u64,
    completion_ns: u64,
    remote_invalidate_hca_ns: u64,
    packet_ns: u64,
    miss_ns: u64,
    link_bytes_per_s: u64,
}

impl CostModel {
    pub(crate) fn new(preset: &Preset) -> Self {
        Self {
            alloc_ns: preset.alloc_ns.value,
            dealloc_ns: preset.dealloc_ns.value,
            map_ns: preset.map_ns.value,
            map_page_ns: preset.map_page_ns.value,
            map_hca_ns: preset.map_hca_ns.value,
            map_list_hca_ns: preset.map_list_hca_ns.value,
            map_inline_pages: preset.map_inline_pages.value,
            soft_invalidate_ns: preset.soft_invalidate_ns.value,
            unmap_ns: preset.unmap_ns.value,
            unmap_page_ns: preset.unmap_page_ns.value,
            sync_ns: preset.sync_ns.value,
            stall_ns: preset.stall_ns.value,
            doorbell_ns: preset.doorbell_ns.value,
            invalidate_hca_ns: preset.invalidate_hca_ns.value,
            completion_ns: preset.completion_ns.value,
            remote_invalidate_hca_ns: preset.remote_invalidate_hca_ns.value,
            packet_ns: preset.packet_ns.value,
            miss_ns: preset.miss_ns.value / preset.miss_overlap.value.max(1),
            link_bytes_per_s: preset.link_bytes_per_s.value.max(1),
        }
    }

    pub(crate) fn alloc(&self) -> Costs {
        command(self.alloc_ns)
    }

    pub(crate) fn dealloc(&self) -> Costs {
        command(self.dealloc_ns)
    }

    /// One map: the caller's stores, and the HCA's part where mapping is a work request (posted,
    /// not waited for). Behind others in a chain that needs no doorbell, and costs no less than a
    /// work request of a chain of invalidations.
    pub(crate) fn map(&self, pages: u64, posted: Posted) -> Costs {
        let post = match posted {
            Posted::Behind if self.map_hca_ns > 0 => {
                let rest = self.map_ns.saturating_sub(self.doorbell_ns);
                rest.max(self.unmap_ns).min(self.map_ns)
            }
            Posted::Behind | Posted::Alone => self.map_ns,
        };
        let list = if pages > self.map_inline_pages {
            self.map_list_hca_ns
        } else {
            0
        };
        Costs {
            hca_ns: self.map_hca_ns + list,
            ..caller(post + pages * self.map_page_ns)
        }
    }

    pub(crate) fn soft_invalidate(&self) -> Costs {
        caller(self.soft_invalidate_ns)
    }

    /// The caller's share of invalidating one region of `pages` pages.
    pub(crate) fn unmap(&self, pages: u64) -> Costs {
        caller(self.unmap_ns + pages * self.unmap_page_ns)
    }

    /// One SYNC_TPT: the caller waits for the command; the data path stands still for the stall.
    pub(crate) fn global_fence(&self) -> Costs {
        Costs {
            elapsed_ns: self.sync_ns,
            command_ns: self.sync_ns,
            hca_ns: self.stall_ns,
            ..Costs::default()
        }
    }

    /// One doorbell, `keys` chained work requests, one completion that the caller waits for.
    pub(crate) fn per_key_fence(&self, keys: u64) -> Costs {
        let chain = keys * self.invalidate_hca_ns;
        Costs {
            elapsed_ns: self.doorbell_ns + chain + self.completion_ns,
            cpu_ns: self.doorbell_ns,
            hca_ns: chain,
            ..Costs::default()
        }
    }

    pub(crate) fn remote_invalidate(&self) -> Costs {
        Costs {
            hca_ns: self.remote_invalidate_hca_ns,
            ..Costs::default()
        }
    }

    /// `packets` packets of one transfer and the fetches that they caused.
    pub(crate) fn packets(&self, packets: u64, mpt_misses: u64, mtt_misses: u64) -> Costs {
        Costs {
            hca_ns: packets * self.packet_ns + (mpt_misses + mtt_misses) * self.miss_ns,
            mpt_misses,
            mtt_misses,
            ..Costs::default()
        }
    }

    /// Nanoseconds for `bytes` of payload on the link, rounded down (beyond 18 GB at once, to
    /// seconds).
    pub(crate) fn link(&self, bytes: u64) -> u64 {
        const NANOS: u64 = 1_000_000_000;
        match bytes.checked_mul(NANOS) {
            Some(product) => product / self.link_bytes_per_s,
            None => bytes / self.link_bytes_per_s * NANOS,
        }
    }
}

fn caller(nanos: u64) -> Costs {
    Costs {
        elapsed_ns: nanos,
        cpu_ns: nanos,
        ..Costs::default()
    }
}

fn command(nanos: u64) -> Costs {
    Costs {
        elapsed_ns: nanos,
        command_ns: nanos,
        ..Costs::default()
    }
}
