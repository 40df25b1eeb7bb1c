//! Registered memory in pieces of one size, a frame each.

use crate::arena::{Arena, ArenaBuffer};
use crate::sys::rc::Piece;
use crate::{Domain, Error};
use mr_core::DmaBuffer;
use std::ptr::NonNull;
use std::sync::Arc;

/// Slots of one size. Who may touch which at what time is up to its user.
#[derive(Debug)]
pub(crate) struct Slots {
    start: NonNull<u8>,
    stride: u32,
    count: u32,
    buffer: ArenaBuffer,
}

// SAFETY: the memory is touched only through unsafe calls, whose callers see to it that nobody else
// touches the same slot.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// Registers `count` slots of `stride` bytes.
    pub(crate) fn new(domain: &Arc<Domain>, count: u32, stride: u32) -> Result<Self, Error> {
        let arena = Arena::new(domain, count as usize * stride as usize)?;
        let mut buffer = arena.take(arena.size())?;
        let start = DmaBuffer::as_mut_ptr(&mut buffer);
        Ok(Self {
            start: NonNull::new(start).ok_or(Error::ArenaFull { len: 1, size: 0 })?,
            stride,
            count,
            buffer,
        })
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// The first `len` bytes of a slot, for a work request.
    pub(crate) fn piece(&self, slot: u32, len: u32) -> Piece {
        let local = self.buffer.local(len.min(self.stride));
        Piece {
            addr: local.addr + self.place(slot) as u64,
            len: local.len,
            key: local.key,
        }
    }

    /// The first `len` bytes of a slot.
    ///
    /// # Safety
    ///
    /// For as long as they are borrowed, neither the HCA nor anybody else writes to the slot.
    pub(crate) unsafe fn bytes(&self, slot: u32, len: u32) -> &[u8] {
        // SAFETY: the place lies in the buffer.
        let from = unsafe { self.start.add(self.place(slot)) };
        // SAFETY: so do all bytes of the slot, which are initialised; the rest is the caller's
        // promise.
        unsafe { std::slice::from_raw_parts(from.as_ptr(), len.min(self.stride) as usize) }
    }

    /// Writes `parts` into a slot, one after the other. The caller has checked that they fit; what
    /// does not is left out.
    ///
    /// # Safety
    ///
    /// Neither the HCA nor anybody else touches the slot during the call.
    pub(crate) unsafe fn fill(&self, slot: u32, parts: [&[u8]; 2]) {
        let mut offset = 0;
        for part in parts {
            let len = part.len().min(self.stride as usize - offset);
            // SAFETY: the place lies in the buffer.
            let to = unsafe { self.start.add(self.place(slot) + offset) };
            // SAFETY: so do the next `len` bytes; `part` is elsewhere, since nobody has borrowed
            // the slot.
            unsafe { to.as_ptr().copy_from_nonoverlapping(part.as_ptr(), len) };
            offset += len;
        }
    }

    /// Where a slot is. One that there is not is the last: a device that makes up numbers must not
    /// lead out of the buffer.
    const fn place(&self, slot: u32) -> usize {
        let slot = if slot < self.count {
            slot
        } else {
            self.count - 1
        };
        slot as usize * self.stride as usize
    }
}
