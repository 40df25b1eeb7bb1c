//! Which keys peers may invalidate, and have.

use crate::ProtocolError;
use crate::wait::lock;
use mr_core::RemoteKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The keys of one connection, by index.
#[derive(Debug, Default)]
pub(crate) struct PeerKeys {
    cells: Mutex<HashMap<u32, Arc<KeyCell>>>,
}

/// The latest key of one window: none, alive, or invalidated by the peer.
#[derive(Debug, Default)]
pub(crate) struct KeyCell(AtomicU64);

const ALIVE: u64 = 1 << 32;
const KILLED: u64 = 2 << 32;

impl KeyCell {
    /// `key` is alive from here on.
    pub(crate) fn set_alive(&self, key: RemoteKey) {
        self.0
            .store(ALIVE | u64::from(key.bits()), Ordering::Release);
    }

    /// The window has no key.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether the peer has invalidated this key.
    pub(crate) fn is_killed(&self, key: RemoteKey) -> bool {
        self.0.load(Ordering::Acquire) == KILLED | u64::from(key.bits())
    }

    fn kill(&self, key: RemoteKey) -> Result<(), ProtocolError> {
        let bits = u64::from(key.bits());
        let alive = ALIVE | bits;
        let killed = KILLED | bits;
        let swapped = self
            .0
            .compare_exchange(alive, killed, Ordering::AcqRel, Ordering::Acquire);
        match swapped {
            Ok(_) => Ok(()),
            Err(now) if now == killed => Err(ProtocolError::RepeatedKey(key)),
            Err(_) => Err(ProtocolError::ForeignKey(key)),
        }
    }
}

impl PeerKeys {
    /// Makes the keys of this index known.
    pub(crate) fn add(&self, index: u32, cell: &Arc<KeyCell>) {
        lock(&self.cells).insert(index, Arc::clone(cell));
    }

    /// Forgets the index, unless another window has it by now.
    pub(crate) fn remove(&self, index: u32, cell: &Arc<KeyCell>) {
        let mut cells = lock(&self.cells);
        if cells
            .get(&index)
            .is_some_and(|found| Arc::ptr_eq(found, cell))
        {
            cells.remove(&index);
        }
    }

    /// The HCA says that the peer had it invalidate `key`. The key is compared as a whole.
    pub(crate) fn invalidated(&self, key: RemoteKey) -> Result<(), ProtocolError> {
        let cell = lock(&self.cells).get(&key.index()).cloned();
        cell.ok_or(ProtocolError::ForeignKey(key))?.kill(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_core::KeyTag;

    #[test]
    fn only_the_live_key_can_be_invalidated_and_only_once() {
        let keys = PeerKeys::default();
        let cell = Arc::new(KeyCell::default());
        let key = RemoteKey::new(7, KeyTag::new(3));
        let older = key.with_tag(KeyTag::new(2));
        assert_eq!(keys.invalidated(key), Err(ProtocolError::ForeignKey(key)));
        keys.add(7, &cell);
        assert_eq!(keys.invalidated(key), Err(ProtocolError::ForeignKey(key)));
        cell.set_alive(key);
        assert_eq!(
            keys.invalidated(older),
            Err(ProtocolError::ForeignKey(older))
        );
        assert!(!cell.is_killed(key));
        assert_eq!(keys.invalidated(key), Ok(()));
        assert!(cell.is_killed(key) && !cell.is_killed(older));
        assert_eq!(keys.invalidated(key), Err(ProtocolError::RepeatedKey(key)));
        cell.clear();
        assert_eq!(keys.invalidated(key), Err(ProtocolError::ForeignKey(key)));
    }

    #[test]
    fn an_index_that_another_window_took_is_not_forgotten() {
        let keys = PeerKeys::default();
        let (old, new) = (Arc::new(KeyCell::default()), Arc::new(KeyCell::default()));
        keys.add(7, &old);
        keys.add(7, &new);
        keys.remove(7, &old);
        let key = RemoteKey::new(7, KeyTag::new(0));
        new.set_alive(key);
        assert_eq!(keys.invalidated(key), Ok(()));
    }
}
