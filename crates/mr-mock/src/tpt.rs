//! The translation and protection table: one entry (MPT) with its pages (MTT) per region.

use crate::dma::Span;
use mr_core::{Access, KeyTag, RemoteKey};

/// One mapping: what an MPT entry says while it honours a key, and what the MPT cache copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// The key that it honours.
    pub(crate) key: RemoteKey,
    /// Differs from mapping to mapping, also where the key is the same again. No HCA has it: it is
    /// how the mock tells an old translation from the present one.
    pub(crate) serial: u64,
    /// The memory. MTT entries follow from it, since a mapping is one run of pages.
    pub(crate) span: Span,
    /// What a peer may do.
    pub(crate) access: Access,
    /// The protection domain that the key belongs to.
    pub(crate) domain: u32,
    /// The connection that the key belongs to; `None` for all of the domain.
    pub(crate) connection: Option<u32>,
    /// The address by which peers name the first byte.
    pub(crate) base: u64,
}

/// What a region's table entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not allocated.
    Free,
    /// Honours no key, and nothing of it is cached.
    Clean,
    /// Honours its key.
    Live,
    /// Honours no key any more; caches may.
    SoftInvalid,
    /// The peer has killed the key; nothing of it is cached.
    PeerInvalid,
}

/// The table entry of one region.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// The present pages and protection; stays behind a soft invalidation, as MTT entries do.
    pub(crate) mapping: Option<Mapping>,
    /// The user of the key said that it does not need it any more.
    pub(crate) released: bool,
    /// Mappings since everything of this region was last evicted from the caches.
    pub(crate) maps: u32,
    /// The most MTT lines that any of those mappings had.
    pub(crate) lines: u32,
    /// Tag of the latest mapping.
    pub(crate) tag: KeyTag,
}

impl Entry {
    /// The mapping that the table honours `key` for.
    pub(crate) fn honours(&self, key: RemoteKey) -> Option<Mapping> {
        self.mapping
            .filter(|mapping| self.state == State::Live && mapping.key == key)
    }

    /// Forgets the mapping: neither table nor caches know the region's memory afterwards (the
    /// caller has seen to the caches).
    pub(crate) fn forget(&mut self, state: State) {
        self.state = state;
        self.mapping = None;
        self.released = false;
        self.maps = 0;
        self.lines = 0;
    }
}

/// All table entries. Index 0 is never given out, so that a zeroed key names nothing.
#[derive(Debug)]
pub(crate) struct Tpt {
    entries: Vec<Entry>,
    free: Vec<u32>,
    limit: u32,
}

impl Tpt {
    /// A table for `limit` regions, which grows as they are allocated.
    pub(crate) const fn new(limit: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    /// The index of a fresh clean entry; `None` if the table is full.
    pub(crate) fn alloc(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            self.entry_mut(index)?.state = State::Clean;
            return Some(index);
        }
        if self.entries.len() >= self.limit as usize {
            return None;
        }
        self.entries.push(Entry {
            state: State::Clean,
            mapping: None,
            released: false,
            maps: 0,
            lines: 0,
            tag: KeyTag::new(0),
        });
        Some(self.entries.len() as u32)
    }

    /// Gives an entry back. Its tag stays, so that the next owner of the index does not start
    /// with the keys of this one.
    pub(crate) fn free(&mut self, index: u32) {
        if let Some(entry) = self.entry_mut(index) {
            entry.forget(State::Free);
            self.free.push(index);
        }
    }

    /// The entry at `index`, if there is an allocated one.
    pub(crate) fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries
            .get((index as usize).wrapping_sub(1))
            .filter(|entry| entry.state != State::Free)
    }

    /// The entry at `index`, allocated or not.
    pub(crate) fn entry_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut((index as usize).wrapping_sub(1))
    }

    /// Allocated entries.
    pub(crate) fn allocated(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Drops every entry (the device is gone).
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.free.clear();
        self.limit = 0;
    }
}
