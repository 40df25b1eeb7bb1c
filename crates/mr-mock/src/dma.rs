//! Moving bytes to and from mapped memory: the one file of this crate with `unsafe`.
//!
//! # Why this is sound
//!
//! A [`Span`] is made only from a [`MemoryRange`], whose maker promises that the bytes stay valid,
//! and are touched by others only in ways that tolerate concurrent change, until the backend has
//! said that every key of the mapping is dead (in safe code the pool makes that promise: it owns
//! the buffer for so long). So a span may be used exactly as long as nothing has said so. Spans
//! live in the tables and caches of the [engine](crate::engine) and nowhere else, all of it behind
//! one lock, and
//!
//! - `invalidate`, the peer's invalidation, and a remap that kills the previous key take the
//!   spans of the region out of table and caches *before* they say that the key is dead;
//! - bytes are moved with the lock held, so that no copy is still going on when they say so.
//!
//! Every byte is read and written as a relaxed atomic. A CPU that looks at memory lent to an HCA
//! (with byte-sized atomics; that is what [`mr_core::RawMemory`] asks for) therefore sees old or
//! new bytes, as with real DMA, and no data race.

mod ghost;

pub use ghost::{GhostBuffer, GhostMemory};

use mr_core::MemoryRange;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// The memory of one mapping, as the HCA knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: NonNull<u8>,
    len: u64,
}

// SAFETY: the value is an address; the module documentation says why the bytes behind it may be
// touched by whichever thread holds the lock of the engine.
unsafe impl Send for Span {}

impl Span {
    /// The memory of `range`.
    pub(crate) fn of(range: &MemoryRange<'_>) -> Self {
        Self {
            start: range.start(),
            len: range.len(),
        }
    }

    /// The number of bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// How far into its first page the memory starts. `page` is a power of two.
    pub(crate) fn page_offset(&self, page: u64) -> u64 {
        self.start.as_ptr().addr() as u64 & (page - 1)
    }

    /// Whether the byte at `offset` has an address that is a multiple of `to`.
    pub(crate) fn is_aligned(&self, offset: u64, to: u64) -> bool {
        (self.start.as_ptr().addr() as u64 + offset).is_multiple_of(to)
    }

    /// Copies `data` to `offset`. The caller holds the lock of the engine, and found the span
    /// there under that lock.
    ///
    /// Returns whether the bytes are inside of the memory; if not, none was written.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> bool {
        let Some(first) = self.locate(offset, data.len()) else {
            return false;
        };
        for (place, &byte) in data.iter().enumerate() {
            // SAFETY: `locate` has checked that `data.len()` bytes from `first` lie in the span.
            let target = unsafe { first.add(place) };
            byte_at(target).store(byte, Ordering::Relaxed);
        }
        true
    }

    /// Copies from `offset` into `into`. As [`write`](Self::write).
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(first) = self.locate(offset, into.len()) else {
            return false;
        };
        for (place, byte) in into.iter_mut().enumerate() {
            // SAFETY: `locate` has checked that `into.len()` bytes from `first` lie in the span.
            let source = unsafe { first.add(place) };
            *byte = byte_at(source).load(Ordering::Relaxed);
        }
        true
    }

    fn locate(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len as u64)?;
        if end > self.len {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: `offset <= self.len`, and the whole span is one allocation.
        Some(unsafe { self.start.add(offset) })
    }
}

/// The byte at `place`, which lies in a span.
fn byte_at<'a>(place: NonNull<u8>) -> &'a AtomicU8 {
    // SAFETY: the byte is valid while the lock is held (module documentation), the reference does
    // not outlive the call of `write` or `read`, a byte is always aligned, and all concurrent
    // access to it tolerates change, as the maker of the range promised.
    unsafe { AtomicU8::from_ptr(place.as_ptr()) }
}
