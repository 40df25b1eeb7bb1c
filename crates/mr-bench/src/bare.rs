//! The backend's `map` without a pool: the one file of this crate with `unsafe`.

use std::ptr::NonNull;

use mr_core::{Access, KeyTag, Keys, MemoryRange, MrBackend};

use crate::backends::{Never, StubBackend};

/// What the peer may do, in every line of the table.
pub(crate) const ACCESS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// Maps `buffer` as whoever has no pool does.
#[inline]
pub(crate) fn map(
    backend: &StubBackend,
    region: &mut u32,
    buffer: &mut Vec<u8>,
    tag: KeyTag,
) -> Result<Keys, Never> {
    let len = buffer.len();
    let start = NonNull::from(buffer.as_mut_slice()).cast();
    // SAFETY: this backend makes up keys; neither it nor anyone behind it touches the memory.
    let memory = unsafe { MemoryRange::new(start, len) };
    backend.map(region, memory, ACCESS, tag)
}
