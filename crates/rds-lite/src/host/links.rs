//! The links that a host has, and who is sending on them.

use crate::fabric::Link;
use crate::host::Shared;
use crate::proto::{LinkId, Transmission};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// All links by name.
#[derive(Default)]
pub(crate) struct Links {
    by_id: RwLock<BTreeMap<LinkId, Arc<OpenLink>>>,
}

/// A link, and the right to send on it.
pub(crate) struct OpenLink {
    link: Arc<dyn Link>,
    /// Held by whoever sends, with what it has fetched and not handed over.
    sending: Mutex<Vec<Transmission>>,
    /// There may be more to send than the one who sends has seen.
    again: AtomicBool,
    /// How often the fabric has said that it can take more.
    writable: AtomicU64,
}

impl Links {
    pub(crate) fn insert(&self, id: LinkId, link: Arc<dyn Link>) {
        let open = OpenLink {
            link,
            sending: Mutex::new(Vec::new()),
            again: AtomicBool::new(false),
            writable: AtomicU64::new(0),
        };
        let mut links = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        links.insert(id, Arc::new(open));
    }

    pub(crate) fn get(&self, id: LinkId) -> Option<Arc<OpenLink>> {
        let links = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        links.get(&id).map(Arc::clone)
    }

    /// The link, if there is one and no other.
    pub(crate) fn only(&self) -> Option<Arc<dyn Link>> {
        let links = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = links.values();
        let first = all.next().map(|open| Arc::clone(&open.link));
        first.filter(|_| all.next().is_none())
    }

    /// Has all links receive by themselves.
    pub(crate) fn recall_all(&self) {
        let links = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        links.values().for_each(|open| open.link.recall());
    }

    pub(crate) fn remove(&self, id: LinkId) -> Option<Arc<OpenLink>> {
        let mut links = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        links.remove(&id)
    }

    pub(crate) fn close_all(&self) {
        let links =
            std::mem::take(&mut *self.by_id.write().unwrap_or_else(PoisonError::into_inner));
        for open in links.into_values() {
            open.link.close();
        }
    }
}

impl OpenLink {
    pub(crate) fn close(&self) {
        self.link.close();
    }

    pub(crate) fn finish(&self) {
        self.link.finish();
    }

    pub(crate) fn arrived(&self) -> Option<u64> {
        self.link.arrived()
    }

    pub(crate) fn note_writable(&self) {
        self.writable.fetch_add(1, Ordering::SeqCst);
    }

    /// Sends what the core has for this link, in the caller's thread, unless another thread is at
    /// it: that one then looks again before it goes.
    pub(crate) fn send(&self, shared: &Shared, id: LinkId) {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst) {
            let Ok(mut batch) = self.sending.try_lock() else {
                shared.lock().note_contention();
                return;
            };
            self.again.store(false, Ordering::SeqCst);
            let follows = self.drain(shared, id, &mut batch);
            drop(batch);
            // Not while others are kept from sending.
            if follows {
                shared.with(|_| ());
            }
        }
    }

    /// Hands over what the core has. Says whether something follows from that which is to be carried out.
    fn drain(&self, shared: &Shared, id: LinkId, batch: &mut Vec<Transmission>) -> bool {
        let mut follows = false;
        loop {
            let (all, armed) = {
                let mut core = shared.lock();
                let all = core.transmit(shared.clock.now(), id, batch);
                follows |= core.has_events();
                (all, core.take_armed())
            };
            if let Some(at) = armed {
                shared.timer.arm(at);
            }
            if batch.is_empty() {
                return follows;
            }
            let writable = self.writable.load(Ordering::SeqCst);
            let open = self.link.transmit(batch);
            if !open {
                shared.lock().set_blocked(id, true);
                // The fabric may have said otherwise before the core was told.
                if self.writable.load(Ordering::SeqCst) == writable {
                    return follows;
                }
                shared.lock().set_blocked(id, false);
            } else if all {
                return follows;
            }
        }
    }
}
