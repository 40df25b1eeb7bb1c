//! Callers that wait for a region, in the order in which they came.

use crate::pool::shard::Boxed;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::{DmaBuffer, MrBackend};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The queue of waiting lease calls.
///
/// Nobody can miss a region: a waiter joins the queue first and looks through all lists once more
/// before it sleeps; whoever puts a region on a list does so under that list's lock first and
/// looks at the queue afterwards. Whichever of the two takes the list's lock second sees the other.
pub(crate) struct Queue<B: MrBackend, M> {
    waiters: Mutex<VecDeque<Arc<Waiter<B, M>>>>,
    len: AtomicUsize,
}

/// One waiting lease call.
pub(crate) struct Waiter<B: MrBackend, M> {
    news: Mutex<News<B, M>>,
    told: Condvar,
}

/// What a waiter wakes up to.
enum News<B: MrBackend, M> {
    None,
    /// Look again: something is stale now, or the pool has been closed or poisoned.
    Look,
    /// Here is a region.
    Region(Boxed<B, M>),
}

impl<B: MrBackend, M: DmaBuffer> Queue<B, M> {
    pub(crate) fn new() -> Self {
        Self {
            waiters: Mutex::new(VecDeque::new()),
            len: AtomicUsize::new(0),
        }
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn join(&self) -> Arc<Waiter<B, M>> {
        let waiter = Arc::new(Waiter {
            news: Mutex::new(News::None),
            told: Condvar::new(),
        });
        let mut waiters = self.waiters.lock();
        waiters.push_back(Arc::clone(&waiter));
        self.len.store(waiters.len(), Ordering::SeqCst);
        waiter
    }

    /// Leaves the queue, with a region if one was handed over in the meantime.
    pub(crate) fn leave(&self, waiter: &Arc<Waiter<B, M>>) -> Option<Boxed<B, M>> {
        let mut waiters = self.waiters.lock();
        waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        self.len.store(waiters.len(), Ordering::SeqCst);
        drop(waiters);
        waiter.take_region()
    }

    /// Hands `slot` to the first waiter; gives it back if nobody waits.
    pub(crate) fn hand(&self, slot: Boxed<B, M>) -> Option<Boxed<B, M>> {
        let mut waiters = self.waiters.lock();
        let Some(waiter) = waiters.pop_front() else {
            return Some(slot);
        };
        self.len.store(waiters.len(), Ordering::SeqCst);
        // Still under the queue's lock: a waiter that gives up takes that lock before it looks for
        // a region for the last time.
        waiter.tell(News::Region(slot));
        None
    }

    /// Makes the first waiter look again: there is something that it can flush.
    pub(crate) fn poke(&self) {
        let first = self.waiters.lock().front().map(Arc::clone);
        if let Some(waiter) = first {
            waiter.tell(News::Look);
        }
    }

    /// Makes everyone look again: the pool is closed or poisoned.
    pub(crate) fn poke_all(&self) {
        let all: Vec<_> = self.waiters.lock().iter().map(Arc::clone).collect();
        for waiter in all {
            waiter.tell(News::Look);
        }
    }
}

impl<B: MrBackend, M: DmaBuffer> Waiter<B, M> {
    fn tell(&self, news: News<B, M>) {
        let mut mine = self.news.lock();
        // A region is never overwritten: it would be lost.
        if !matches!(*mine, News::Region(_)) {
            *mine = news;
        }
        drop(mine);
        self.told.notify_all();
    }

    fn take_region(&self) -> Option<Boxed<B, M>> {
        let mut news = self.news.lock();
        match std::mem::replace(&mut *news, News::None) {
            News::Region(slot) => Some(slot),
            News::None | News::Look => None,
        }
    }

    /// Sleeps until there is news, at most `timeout`. Gives the region if that is the news.
    pub(crate) fn sleep(&self, timeout: Duration) -> Option<Boxed<B, M>> {
        let mut news = self.news.lock();
        if matches!(*news, News::None) {
            news = self.told.wait_timeout(news, timeout);
        }
        match std::mem::replace(&mut *news, News::None) {
            News::Region(slot) => Some(slot),
            News::None | News::Look => None,
        }
    }
}
