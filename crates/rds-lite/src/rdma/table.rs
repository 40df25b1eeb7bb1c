//! The regions of one socket, by key.

use crate::rdma::{Cookie, Leased, MrFlags};
use std::collections::BTreeMap;

/// A region that peers may use.
#[derive(Debug)]
pub struct Region {
    /// What names it.
    pub cookie: Cookie,
    /// What becomes of it.
    pub flags: MrFlags,
    /// The lease.
    pub lease: Box<dyn Leased>,
}

/// All regions of one socket.
#[derive(Debug, Default)]
pub(crate) struct RegionTable {
    /// In order, so that the same run gives them up in the same order.
    by_key: BTreeMap<u32, Region>,
}

impl RegionTable {
    pub(crate) fn insert(&mut self, region: Region) {
        self.by_key.insert(region.cookie.key().bits(), region);
    }

    pub(crate) fn contains(&self, cookie: Cookie) -> bool {
        let key = cookie.key().bits();
        self.by_key
            .get(&key)
            .is_some_and(|region| region.cookie == cookie)
    }

    pub(crate) fn take(&mut self, cookie: Cookie) -> Option<Region> {
        if !self.contains(cookie) {
            return None;
        }
        self.by_key.remove(&cookie.key().bits())
    }

    /// The region of this key, if its first use is its last.
    pub(crate) fn take_used(&mut self, rkey: u32) -> Option<Region> {
        let once = self
            .by_key
            .get(&rkey)
            .is_some_and(|region| region.flags.contains(MrFlags::USE_ONCE));
        if once {
            self.by_key.remove(&rkey)
        } else {
            None
        }
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Region> {
        std::mem::take(&mut self.by_key).into_values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}
