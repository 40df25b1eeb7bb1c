//! Who waits for a buffer: a poisoned pool hands none over any more, and they must be told.

use crate::Poisoned;
use crate::pool::handback::Handback;
use crate::sync::Mutex;
use std::sync::Arc;

/// The threads that wait for buffers of one pool. It is theirs as well as the pool's, so that a wait
/// can outlive the pool.
pub(crate) struct Alarm<M>(Mutex<Watch<M>>);

struct Watch<M> {
    rung: Option<Poisoned>,
    /// As many as there are threads that wait right now.
    waiting: Vec<Arc<Handback<M>>>,
}

impl<M> Alarm<M> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Watch {
            rung: None,
            waiting: Vec::new(),
        }))
    }

    /// From now on, and until it [leaves](Self::leave), whoever waits at `handback` is told.
    pub(crate) fn join(&self, handback: &Arc<Handback<M>>) {
        let mut watch = self.0.lock();
        watch.waiting.push(Arc::clone(handback));
        let rung = watch.rung;
        drop(watch);
        if let Some(poisoned) = rung {
            handback.tell(poisoned);
        }
    }

    pub(crate) fn leave(&self, handback: &Arc<Handback<M>>) {
        let waiting = &mut self.0.lock().waiting;
        if let Some(place) = waiting
            .iter()
            .position(|other| Arc::ptr_eq(other, handback))
        {
            waiting.swap_remove(place);
        }
    }

    /// Tells everyone, and all who are still to come.
    pub(crate) fn ring(&self, poisoned: Poisoned) {
        let mut watch = self.0.lock();
        watch.rung.get_or_insert(poisoned);
        let waiting = watch.waiting.clone();
        drop(watch);
        for handback in waiting {
            handback.tell(poisoned);
        }
    }
}
