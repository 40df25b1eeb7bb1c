//! Memory that is registered once, and handed out in pages.

use crate::mr::Registration;
use crate::wait::lock;
use crate::{Domain, Errno, Error, sys};
use mr_core::{DmaBuffer, LocalKey};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a page: what buffers start and end on.
pub const PAGE: usize = 4096;

/// A stretch of memory that is registered once, for windows to be bound over.
///
/// No peer reaches it through the registration itself, whose remote key allows nothing; only
/// through windows. Cloning gives another handle. The memory stays registered until the last
/// handle, buffer and bound window are gone.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

/// What handles, buffers and bound windows share.
pub(crate) struct Inner {
    /// Taken out at the end, before the memory is freed.
    registration: Option<Registration>,
    start: NonNull<u8>,
    layout: Layout,
    free: Mutex<FreeList>,
    bound: AtomicU32,
}

// SAFETY: the memory is reached only through buffers, each of which owns a part of its own.
unsafe impl Send for Inner {}
// SAFETY: as above; all else in here is synchronised.
unsafe impl Sync for Inner {}

/// A buffer out of an arena: whole pages, zeroed when the arena was made and never after. It goes
/// back when it is dropped.
pub struct ArenaBuffer {
    start: NonNull<u8>,
    len: usize,
    arena: Arc<Inner>,
}

// SAFETY: it alone owns the memory that it points to.
unsafe impl Send for ArenaBuffer {}
// SAFETY: shared, it only lets read.
unsafe impl Sync for ArenaBuffer {}

impl Arena {
    /// Registers `bytes` of new memory, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] says which limit forbids it.
    pub fn new(domain: &Arc<Domain>, bytes: usize) -> Result<Self, Error> {
        let out_of_memory = || Error::Limit {
            what: format!("allocating {bytes} bytes"),
            errno: Errno::ENOMEM,
            advice: "the machine or the control group has no such memory".to_owned(),
        };
        let size = bytes
            .max(1)
            .checked_next_multiple_of(PAGE)
            .ok_or_else(out_of_memory)?;
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| out_of_memory())?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        // Made first, so that the memory is freed whatever happens.
        let mut inner = Inner {
            registration: None,
            start,
            layout,
            free: Mutex::new(FreeList::new(size)),
            bound: AtomicU32::new(0),
        };
        let flags = sys::access::LOCAL_WRITE | sys::access::WINDOW_BIND;
        // SAFETY: `inner` frees the memory only after the registration has ended. Nobody but the
        // device through windows and local work requests touches it behind the back of buffers,
        // and both are answered for by who binds and posts.
        let registration = unsafe { Registration::new(domain, start, size, flags) }?;
        inner.registration = Some(registration);
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Bytes of the arena.
    pub fn size(&self) -> usize {
        self.inner.layout.size()
    }

    /// Takes a buffer of `len` bytes (at least 1; it occupies whole pages).
    ///
    /// # Errors
    ///
    /// [`Error::ArenaFull`] if no gap is large enough.
    pub fn take(&self, len: usize) -> Result<ArenaBuffer, Error> {
        let pages = len.max(1).next_multiple_of(PAGE);
        let offset = lock(&self.inner.free).take(pages).ok_or(Error::ArenaFull {
            len,
            size: self.size(),
        })?;
        // SAFETY: the offset lies in the arena.
        let start = unsafe { self.inner.start.add(offset) };
        Ok(ArenaBuffer {
            start,
            len: len.max(1),
            arena: Arc::clone(&self.inner),
        })
    }

    /// Windows that are bound over the arena.
    pub fn bound(&self) -> u32 {
        self.inner.bound.load(Ordering::Relaxed)
    }

    /// Ends the registration and frees the memory.
    ///
    /// # Errors
    ///
    /// Gives itself back with [`Error::Busy`] while buffers are out or windows bound, and with a
    /// system error if the registration does not end.
    pub fn close(self) -> Result<(), (Self, Error)> {
        let what = "the arena";
        let mut inner = Arc::try_unwrap(self.inner).map_err(|inner| {
            let bound = inner.bound.load(Ordering::Relaxed);
            let others = Arc::strong_count(&inner) - 1;
            let bound = format!(
                "{bound} windows are bound over it and {others} buffers, windows and handles use it"
            );
            (Self { inner }, Error::Busy { what, bound })
        })?;
        match inner.registration.take().map(Registration::free) {
            None | Some(Ok(())) => Ok(()),
            Some(Err((registration, errno))) => {
                inner.registration = Some(registration);
                let inner = Arc::new(inner);
                let error = Error::System {
                    what: "ending the registration of an arena",
                    errno,
                };
                Err((Self { inner }, error))
            }
        }
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("start", &self.inner.start)
            .field("size", &self.size())
            .field("bound", &self.bound())
            .finish()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}+{}", self.start, self.layout.size())
    }
}

impl Inner {
    pub(crate) fn contains(&self, addr: u64, len: u64) -> bool {
        let start = self.addr();
        let Some(offset) = addr.checked_sub(start) else {
            return false;
        };
        let size = self.layout.size() as u64;
        offset <= size && len <= size - offset
    }

    pub(crate) fn addr(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// The registration. There is one from the making of the arena to its end.
    pub(crate) const fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }

    pub(crate) fn local_key(&self) -> LocalKey {
        self.registration()
            .map_or(LocalKey::from_bits(0), |registration| {
                registration.keys().local
            })
    }

    pub(crate) fn count_bound(&self) {
        self.bound.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_unbound(&self) {
        self.bound.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take()
            && let Err((registration, errno)) = registration.free()
        {
            crate::device::report_leak("registration of an arena, with its memory,", errno);
            std::mem::forget(registration);
            return;
        }
        // SAFETY: allocated with this layout, registered with nobody any more, and all buffers,
        // which hold on to this, are gone.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl ArenaBuffer {
    /// The key of the arena, for this host's own work requests.
    pub fn local_key(&self) -> LocalKey {
        self.arena.local_key()
    }

    pub(crate) fn local(&self, len: u32) -> crate::post::Local {
        crate::post::Local {
            addr: self.start.as_ptr().expose_provenance() as u64,
            len,
            key: self.local_key().bits(),
        }
    }
}

// SAFETY: address and length never change, the bytes were zeroed when the arena was made, they
// stay while the buffer holds on to the arena, and no other buffer has them.
unsafe impl DmaBuffer for ArenaBuffer {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Deref for ArenaBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: valid, initialised, and owned by this buffer; a peer or the device writes to it
        // only while the pool or a work request owns the buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for ArenaBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for ArenaBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for ArenaBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for ArenaBuffer {
    fn drop(&mut self) {
        let offset = self.start.as_ptr().addr() - self.arena.start.as_ptr().addr();
        lock(&self.arena.free).give(offset, self.len.next_multiple_of(PAGE));
    }
}

impl fmt::Debug for ArenaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArenaBuffer({:p}+{})", self.start, self.len)
    }
}

/// Gaps of an arena, by offset; no two of them touch.
struct FreeList {
    gaps: BTreeMap<usize, usize>,
}

impl FreeList {
    fn new(size: usize) -> Self {
        Self {
            gaps: BTreeMap::from([(0, size)]),
        }
    }

    /// First fit.
    fn take(&mut self, len: usize) -> Option<usize> {
        let (&offset, &gap) = self.gaps.iter().find(|(_, gap)| **gap >= len)?;
        self.gaps.remove(&offset);
        if gap > len {
            self.gaps.insert(offset + len, gap - len);
        }
        Some(offset)
    }

    fn give(&mut self, mut offset: usize, mut len: usize) {
        if let Some(after) = self.gaps.remove(&(offset + len)) {
            len += after;
        }
        if let Some((&before, &gap)) = self.gaps.range(..offset).next_back()
            && before + gap == offset
        {
            self.gaps.remove(&before);
            offset = before;
            len += gap;
        }
        self.gaps.insert(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_in_any_order_is_whole_again() {
        const LENS: [usize; 4] = [1, 2, 3, 2];
        let mut orders = vec![vec![]];
        for place in 0..LENS.len() {
            orders = orders
                .into_iter()
                .flat_map(|order: Vec<usize>| {
                    (0..=order.len()).map(move |at| {
                        let mut order = order.clone();
                        order.insert(at, place);
                        order
                    })
                })
                .collect();
        }
        assert_eq!(orders.len(), 24);
        for order in orders {
            let mut list = FreeList::new(8);
            let offsets = LENS.map(|len| list.take(len).unwrap());
            assert_eq!(list.take(1), None);
            for place in order {
                list.give(offsets[place], LENS[place]);
            }
            assert_eq!(list.gaps, BTreeMap::from([(0, 8)]));
        }
    }
}
