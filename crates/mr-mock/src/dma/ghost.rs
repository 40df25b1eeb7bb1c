//! Buffers for simulations: real memory that nobody has to pay for.

use memmap2::{MmapMut, MmapOptions};
use mr_core::DmaBuffer;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{fmt, io};

/// Buffers start on boundaries of this many bytes: a page of the shipped presets.
const ALIGNMENT: usize = 4096;
/// Address space that is reserved at a time, unless one buffer is longer.
const CHUNK: usize = 256 << 20;

/// Hands out [`GhostBuffer`]s: any number of buffers that can be leased, none of which takes
/// memory of the machine until somebody touches its bytes.
///
/// A simulation of a pool whose stale keys pin hundreds of gigabytes needs the addresses and
/// lengths of the buffers and never a byte of them. Address space is reserved 256 MiB at a time,
/// and given back with the last buffer out of each such part.
#[derive(Debug)]
pub struct GhostMemory {
    largest: usize,
    chunk: Option<(Arc<MmapMut>, NonNull<u8>)>,
    used: usize,
}

// SAFETY: the pointer is to the mapping beside it, and is only ever used to compute addresses.
unsafe impl Send for GhostMemory {}

impl GhostMemory {
    /// For buffers of up to `largest` bytes (rounded up to a page, at least one).
    pub fn new(largest: usize) -> Self {
        Self {
            largest: largest.max(1).next_multiple_of(ALIGNMENT),
            chunk: None,
            used: 0,
        }
    }

    /// A buffer that can be made up to the largest length, and is that long. It starts on a page.
    ///
    /// # Errors
    ///
    /// The operating system has no address space left.
    pub fn buffer(&mut self) -> io::Result<GhostBuffer> {
        let length = CHUNK.max(self.largest);
        let (memory, base) = match self.chunk.take() {
            Some(chunk) if self.used + self.largest <= length => chunk,
            _ => {
                self.used = 0;
                let mut memory = MmapOptions::new()
                    .len(length)
                    .no_reserve_swap()
                    .map_anon()?;
                let base = NonNull::from(&mut memory[..]).cast();
                (Arc::new(memory), base)
            }
        };
        // SAFETY: `used + largest` is at most the length of the mapping.
        let start = unsafe { base.add(self.used) };
        self.used += self.largest;
        self.chunk = Some((Arc::clone(&memory), base));
        Ok(GhostBuffer {
            start,
            len: self.largest,
            capacity: self.largest,
            _memory: memory,
        })
    }
}

/// A buffer out of a [`GhostMemory`]: zeroes, until a peer writes there.
pub struct GhostBuffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    /// Keeps the memory mapped.
    _memory: Arc<MmapMut>,
}

// SAFETY: the buffer is the only way to its bytes, wherever it is.
unsafe impl Send for GhostBuffer {}

// SAFETY: the bytes lie in an anonymous mapping that is readable, writable, zeroed by the
// operating system and kept by the `Arc`; `GhostMemory` gives each part of it out once, and nobody
// touches the mapping otherwise. The length changes only by `cut`, which consumes the value.
unsafe impl DmaBuffer for GhostBuffer {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl GhostBuffer {
    /// The same memory as a buffer of `len` bytes, at most the largest length of its
    /// [`GhostMemory`]; more than that is cut to it.
    #[must_use]
    pub fn cut(self, len: usize) -> Self {
        Self {
            len: len.min(self.capacity),
            ..self
        }
    }
}

impl fmt::Debug for GhostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GhostBuffer({:p}+{})", self.start, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn buffers_are_aligned_and_do_not_overlap() {
        let mut memory = GhostMemory::new(100 << 20);
        let mut buffers: Vec<_> = (0..5).map(|_| memory.buffer().unwrap()).collect();
        drop(memory);
        let starts: BTreeSet<_> = buffers
            .iter_mut()
            .map(|buffer| buffer.as_mut_ptr().addr())
            .collect();
        assert_eq!(starts.len(), 5);
        assert!(starts.iter().all(|start| start % ALIGNMENT == 0));
        let starts: Vec<_> = starts.into_iter().collect();
        assert!(starts.windows(2).all(|two| two[1] - two[0] >= 100 << 20));
    }

    #[test]
    fn a_cut_buffer_stays_where_it_is_and_never_grows_beyond_its_memory() {
        let mut memory = GhostMemory::new(5000);
        let mut buffer = memory.buffer().unwrap();
        assert_eq!(buffer.len(), 8192);
        let start = buffer.as_mut_ptr();
        let mut buffer = buffer.cut(17);
        assert_eq!((buffer.len(), buffer.as_mut_ptr()), (17, start));
        assert_eq!(buffer.cut(usize::MAX).len(), 8192);
    }

    #[test]
    fn thousands_of_large_buffers_cost_nothing() {
        let mut memory = GhostMemory::new(64 << 20);
        let buffers: Vec<_> = (0..10_000).map(|_| memory.buffer()).collect();
        // 640 GB of addresses: no machine that runs this test has so much memory.
        assert!(buffers.iter().all(Result::is_ok));
    }
}
