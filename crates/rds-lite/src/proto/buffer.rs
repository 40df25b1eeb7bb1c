//! Buffers of received messages: recycled, and bounded by a budget.

use crate::wire::{Flags, HEADER_LEN, Header, MAP_LEN, MAX_MESSAGE, PROBE_PORT};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Sizes of buffers, and how many of each are kept for reuse.
///
/// Empty messages have a class of their own: they take up room in queues, too.
const CLASSES: [(usize, usize); 4] = [(64, 1024), (4096, 1024), (64 << 10, 64), (1 << 20, 16)];

/// Where buffers of received messages come from and go back to.
///
/// In steady state a message is received without an allocation. At most 24 MiB are kept.
#[derive(Debug)]
pub struct BufPool {
    free: [Mutex<Vec<Box<[u8]>>>; CLASSES.len()],
    out: AtomicUsize,
    budget: usize,
}

/// How much of the budget a message may draw on.
///
/// The second half is for sockets that keep up: one that does not, because its peers ignore that it is
/// congested, must not stop all others of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Whole,
    Half,
}

/// The payload of a received message. Dropping it gives the buffer back.
pub struct Buf {
    bytes: Box<[u8]>,
    len: usize,
    home: Option<(Arc<BufPool>, usize)>,
}

impl BufPool {
    /// A pool that gives out at most `budget` bytes at a time.
    pub fn new(budget: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Default::default(),
            out: AtomicUsize::new(0),
            budget,
        })
    }

    /// A buffer of `len` bytes of any content; `None` if the budget does not allow it, or it would
    /// be longer than 1 MiB.
    pub fn get(self: &Arc<Self>, len: usize) -> Option<Buf> {
        self.get_within(len, self.budget)
    }

    /// A buffer for what frees others: congestion maps. It counts, and is given whatever the budget
    /// says; each connection has at most one.
    pub fn get_reserved(self: &Arc<Self>, len: usize) -> Option<Buf> {
        self.get_within(len, usize::MAX)
    }

    /// The buffer for the message behind `header`, as far as that can be told from it. Maps and pings
    /// find one whatever the budget says: pings have no bytes, and no socket keeps them.
    pub(crate) fn get_for(
        self: &Arc<Self>,
        header: &[u8; HEADER_LEN],
        share: Share,
    ) -> Option<Buf> {
        let len = Header::len_in(header);
        let dport = u16::from_be_bytes([header[22], header[23]]);
        if header[24] == Flags::CONG_BITMAP.bits() && len == MAP_LEN {
            self.get_reserved(len)
        } else if len == 0 && matches!(dport, 0 | PROBE_PORT) {
            Some(Buf::empty())
        } else {
            self.get_within(len, self.share(share))
        }
    }

    /// The buffer for a message that will not come again, and that nothing can hold back: within twice
    /// the budget.
    pub(crate) fn get_beyond(self: &Arc<Self>, header: &[u8; HEADER_LEN]) -> Option<Buf> {
        self.get_within(Header::len_in(header), self.budget.saturating_mul(2))
    }

    fn get_within(self: &Arc<Self>, len: usize, budget: usize) -> Option<Buf> {
        let class = CLASSES.iter().position(|&(size, _)| len <= size)?;
        let size = CLASSES[class].0;
        if self.out.fetch_add(size, Ordering::Relaxed) + size > budget {
            self.out.fetch_sub(size, Ordering::Relaxed);
            return None;
        }
        let free = self.list(class).pop();
        Some(Buf {
            bytes: free.unwrap_or_else(|| vec![0; size].into_boxed_slice()),
            len,
            home: Some((Arc::clone(self), class)),
        })
    }

    /// Bytes given out right now.
    pub fn in_use(&self) -> usize {
        self.out.load(Ordering::Relaxed)
    }

    /// Whether so much of a share is free that what was shed has room: a quarter of the budget, and a
    /// message of any length.
    pub(crate) fn has_room(&self, share: Share) -> bool {
        let wanted = (self.budget / 4).max(MAX_MESSAGE);
        self.in_use().saturating_add(wanted) <= self.share(share)
    }

    const fn share(&self, share: Share) -> usize {
        match share {
            Share::Whole => self.budget,
            Share::Half => self.budget / 2,
        }
    }

    fn list(&self, class: usize) -> std::sync::MutexGuard<'_, Vec<Box<[u8]>>> {
        self.free[class]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buf {
    /// No bytes.
    pub fn empty() -> Self {
        Self {
            bytes: Box::default(),
            len: 0,
            home: None,
        }
    }

    /// Bytes of the budget that it takes up.
    pub(crate) fn room(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let Some((pool, class)) = self.home.take() else {
            return;
        };
        let (size, keep) = CLASSES[class];
        pool.out.fetch_sub(size, Ordering::Relaxed);
        let mut free = pool.list(class);
        if free.len() < keep {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_buffers_come_back() {
        let pool = BufPool::new(2 << 20);
        let first = pool.get(1 << 20).unwrap();
        let second = pool.get(4097).unwrap();
        assert_eq!(pool.in_use(), (1 << 20) + (64 << 10));
        assert!(pool.get(1 << 20).is_none() && pool.get((1 << 20) + 1).is_none());
        assert!(pool.get(0).unwrap().is_empty());
        let at = first.as_ptr();
        drop((first, second));
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.get(100_000).unwrap().as_ptr(), at, "recycled");
    }

    #[test]
    fn pings_and_maps_find_a_buffer_when_all_is_given_out() {
        let pool = BufPool::new(4096);
        let _all = pool.get(4096).unwrap();
        let header = |len, dport, flags| {
            let header = Header {
                len,
                dport,
                flags,
                ..Header::default()
            };
            header.encode()
        };
        let none = Flags::empty();
        assert!(pool.get_for(&header(0, 0, none), Share::Whole).is_some());
        assert!(
            pool.get_for(&header(0, PROBE_PORT, none), Share::Whole)
                .is_some()
        );
        let map = header(MAP_LEN as u32, 0, Flags::CONG_BITMAP);
        assert!(pool.get_for(&map, Share::Whole).is_some());
        assert!(
            pool.get_for(&header(0, 5, none), Share::Whole).is_none(),
            "a queue keeps it"
        );
        assert!(
            pool.get_for(&header(1, 0, none), Share::Whole).is_none(),
            "it has bytes"
        );
    }

    #[test]
    fn what_will_not_come_again_finds_as_much_again_and_no_more() {
        let pool = BufPool::new(4096);
        let message = Header {
            len: 4096,
            dport: 5,
            ..Header::default()
        };
        let message = message.encode();
        let _first = pool.get_for(&message, Share::Whole).unwrap();
        assert!(pool.get_for(&message, Share::Whole).is_none());
        let _second = pool.get_beyond(&message).unwrap();
        assert!(pool.get_beyond(&message).is_none());
    }
}
