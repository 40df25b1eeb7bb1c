//! Who waits on a host, and whether one of them does the receiving meanwhile.

use crate::fabric::Bell;
use crate::host::Shared;
use crate::host::signal::{LOOK_AGAIN, Signal};
use mr_core::Time;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// All that wait on a host.
///
/// A thread that is the only one to wait, on a host with a single link, [serves](crate::fabric::Link::serve)
/// that link rather than sleep. When it has what it waited for and others wait by then, the link is
/// recalled. So whenever anybody waits, somebody receives.
#[derive(Default)]
pub(crate) struct Crowd {
    /// Threads that wait, and tasks to be woken.
    waiting: AtomicUsize,
    /// A link may be without a reader.
    served: AtomicBool,
    /// Wakes the thread that serves; made when it is first needed.
    bell: OnceLock<Option<Arc<Bell>>>,
}

impl Crowd {
    /// One more waits. Says whether it is the only one.
    fn enter(&self) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// So many wait no longer. Says whether there are others.
    pub(crate) fn leave(&self, count: usize) -> bool {
        self.waiting.fetch_sub(count, Ordering::SeqCst) > count
    }

    /// The bell, unless the process has no descriptors left for one.
    fn bell(&self) -> Option<&Arc<Bell>> {
        let bell = self.bell.get_or_init(|| Bell::new().map(Arc::new).ok());
        bell.as_ref()
    }

    /// Wakes the thread that serves.
    pub(crate) fn ring(&self) {
        if let Some(Some(bell)) = self.bell.get() {
            bell.ring();
        }
    }
}

impl Shared {
    /// Waits until `signal` is raised after `epoch`, or until `deadline`. Says whether it has been.
    pub(crate) fn wait(&self, signal: &Signal, epoch: u64, deadline: Option<Time>) -> bool {
        let served = self.crowd.enter() && self.serve(signal, epoch, deadline);
        let raised = signal.wait(epoch, &*self.clock, deadline);
        if self.crowd.leave(1) && served {
            self.recall();
        }
        raised
    }

    /// A task is about to wait: nobody serves on its behalf.
    pub(crate) fn task_waits(&self) {
        if self.crowd.enter() {
            self.recall();
        }
    }

    /// Serves the only link while there is no other, until `signal` is raised. Says whether it did.
    fn serve(&self, signal: &Signal, epoch: u64, deadline: Option<Time>) -> bool {
        let (Some(link), Some(bell)) = (self.links.only(), self.crowd.bell()) else {
            self.recall();
            return false;
        };
        self.crowd.served.store(true, Ordering::SeqCst);
        signal.serve(|| {
            link.serve(bell, &|| {
                let left = deadline.map_or(LOOK_AGAIN, |at| at.since(self.clock.now()));
                let over = signal.epoch() != epoch || left.is_zero();
                (!over).then(|| left.min(LOOK_AGAIN))
            })
        })
    }

    /// Has all links receive by themselves.
    fn recall(&self) {
        if self.crowd.served.load(Ordering::SeqCst)
            && self.crowd.served.swap(false, Ordering::SeqCst)
        {
            self.links.recall_all();
        }
    }
}
