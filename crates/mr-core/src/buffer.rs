//! Memory that an HCA may touch, and what who lends it promises.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Memory that can be lent to an HCA for as long as a key of it may be honoured.
///
/// The pool owns the value from the lease until the key is dead (promise 2), so in safe code
/// nobody reads, writes, frees or reuses the memory in between.
///
/// # Safety
///
/// For as long as the value exists and however it is moved:
/// - [`as_mut_ptr`](Self::as_mut_ptr) returns the same address and [`len`](Self::len) the same
///   length, and the `len` bytes there are initialised, readable and writable;
/// - moving the value neither moves, frees nor touches those bytes, and does not end the
///   validity of a pointer that `as_mut_ptr` returned;
/// - nothing but this value gives access to them.
pub unsafe trait DmaBuffer: Send + 'static {
    /// The address of the first byte.
    fn as_mut_ptr(&mut self) -> *mut u8;

    /// The number of bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes. An empty buffer cannot be leased.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// SAFETY: the bytes up to `len` live on the heap, are initialised, stay where they are while the
// vector is only moved, and are reached only through it.
unsafe impl DmaBuffer for Vec<u8> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

// SAFETY: `T` keeps the contract; the outer box only adds one more owner of the value.
unsafe impl<T: DmaBuffer + ?Sized> DmaBuffer for Box<T> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        T::as_mut_ptr(self)
    }

    fn len(&self) -> usize {
        T::len(self)
    }
}

/// An address and a length that the caller manages: the raw variant of a lease.
///
/// The pool keeps its word about the *key*, but it cannot keep anyone from the memory: that is
/// the caller's promise, made in [`RawMemory::new`].
#[derive(Debug, PartialEq, Eq)]
pub struct RawMemory {
    start: NonNull<u8>,
    len: usize,
}

impl RawMemory {
    /// Names the `len` bytes at `start`.
    ///
    /// # Safety
    ///
    /// From the lease of this value until the pool gives it back (not: until its release), an
    /// HCA may read and, if the access allows it, write the bytes at any moment. For all that
    /// time they must be valid, initialised memory, and every other access to them must be one
    /// that tolerates concurrent change (atomic or volatile).
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    /// The address of the first byte.
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }
}

// SAFETY: the value is an address; who may touch the bytes from which thread was promised to
// `RawMemory::new`.
unsafe impl Send for RawMemory {}

// SAFETY: address and length never change; the rest was promised to `RawMemory::new`.
unsafe impl DmaBuffer for RawMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// The memory of one mapping, lent to a backend for the length of one `map` call.
///
/// A backend may hand address and length to its HCA. What the HCA then does with them is covered
/// by the pool, which owns the memory until the backend has said that the key is dead. The type
/// cannot be made from an address in safe code, nor outlive the call.
pub struct MemoryRange<'a> {
    start: NonNull<u8>,
    len: usize,
    buffer: PhantomData<&'a mut [u8]>,
}

impl<'a> MemoryRange<'a> {
    /// The memory of `buffer`; `None` if it is empty or has no address.
    pub(crate) fn of<M: DmaBuffer>(buffer: &'a mut M) -> Option<Self> {
        let len = buffer.len();
        let start = NonNull::new(buffer.as_mut_ptr())?;
        (len > 0).then_some(Self {
            start,
            len,
            buffer: PhantomData,
        })
    }

    /// The `len` bytes at `start`, for driving a backend without a pool.
    ///
    /// # Safety
    ///
    /// As [`RawMemory::new`], from the `map` call until the backend has said that every key of
    /// the mapping is dead.
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self {
            start,
            len,
            buffer: PhantomData,
        }
    }

    /// The same memory, for less long.
    pub(crate) const fn reborrow(&mut self) -> MemoryRange<'_> {
        MemoryRange {
            start: self.start,
            len: self.len,
            buffer: PhantomData,
        }
    }

    /// The address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address of the first byte as a number, as it goes into a work request.
    pub fn addr(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// The number of bytes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> u64 {
        self.len as u64
    }
}

impl fmt::Debug for MemoryRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}+{}", self.start, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_buffer_has_no_range() {
        assert!(MemoryRange::of(&mut Vec::new()).is_none());
        assert!(MemoryRange::of(&mut Box::new(vec![0; 3])).is_some_and(|range| range.len() == 3));
    }

    #[test]
    fn a_moved_buffer_keeps_its_address() {
        let mut boxed: Box<Vec<u8>> = Box::new(vec![7; 64]);
        let before = MemoryRange::of(&mut boxed).map(|range| range.start());
        let mut moved = Some(boxed);
        let after = moved
            .as_mut()
            .and_then(MemoryRange::of)
            .map(|range| range.start());
        assert_eq!(before, after);
    }
}
