//! Memory that lives long enough to be lent to a mock HCA without a pool.

#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use mr_core::{Access, KeyTag, Keys, MemoryRange, MrBackend};
use mr_mock::{MockHca, MockRegion, Preset};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// Page-aligned memory of bytes that anyone may change at any time. It is leaked, so whatever a
/// test forgets to invalidate reaches memory that is still there.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    bytes: &'static [AtomicU8],
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        Self::at(0, len)
    }

    /// Starts `offset` bytes into a page.
    pub(crate) fn at(offset: usize, len: usize) -> Self {
        let all: &'static [AtomicU8] = Vec::leak(
            std::iter::repeat_with(|| AtomicU8::new(0))
                .take(4096 + offset + len)
                .collect(),
        );
        let to_page = all.as_ptr().align_offset(4096);
        Self {
            bytes: &all[to_page + offset..][..len],
        }
    }

    pub(crate) fn part(&self, start: usize, len: usize) -> Self {
        Self {
            bytes: &self.bytes[start..][..len],
        }
    }

    pub(crate) fn range(&self) -> MemoryRange<'static> {
        let start = NonNull::from(self.bytes).cast::<u8>();
        // SAFETY: the bytes are leaked and atomic: valid for ever, and nobody minds a change.
        // The pointer comes from a shared reference to `UnsafeCell`s, through which writing is
        // allowed.
        unsafe { MemoryRange::new(start, self.bytes.len()) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect()
    }

    pub(crate) fn fill(&self, value: u8) {
        for byte in self.bytes {
            byte.store(value, Ordering::Relaxed);
        }
    }
}

pub(crate) const ALL: Access = Access::all();

/// A device of a shipped preset with some figures changed.
pub(crate) fn hca(preset: &str, changes: &[(&str, &str)]) -> MockHca {
    MockHca::new(&Preset::named(preset).unwrap().with(changes).unwrap())
}

pub(crate) fn map(hca: &MockHca, region: &mut MockRegion, memory: &Memory, tag: u8) -> Keys {
    hca.map(region, memory.range(), ALL, KeyTag::new(tag))
        .unwrap()
}
