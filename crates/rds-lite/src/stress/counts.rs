//! What the tasks of a side have done.

use super::error::Fault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

macro_rules! counts {
    ($($name:ident),+) => {
        /// What the tasks of one side have done.
        #[derive(Default)]
        pub(super) struct Counts {
            $(pub(super) $name: AtomicU64,)+
            outstanding: AtomicU64,
            failure: Mutex<Option<String>>,
        }

        /// The same, summed up at one time.
        #[derive(Clone, Default)]
        pub(super) struct Sums {
            $(pub(super) $name: u64,)+
        }

        impl Sums {
            pub(super) fn add(&mut self, counts: &Counts) {
                $(self.$name += counts.$name.load(Ordering::Relaxed);)+
            }

            pub(super) fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name - before.$name,)+ }
            }
        }
    };
}

counts!(
    sent,
    received,
    bytes,
    rdma_read,
    rdma_written,
    send_nanos,
    rtt_nanos,
    answers
);

impl Counts {
    /// Whether anything has come.
    pub(super) fn has_begun(&self) -> bool {
        self.received.load(Ordering::Relaxed) > 0
    }

    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::SeqCst)
    }

    pub(super) fn asked(&self) {
        self.outstanding.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn answered(&self) {
        self.outstanding.fetch_sub(1, Ordering::SeqCst);
    }

    /// What went wrong first.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn fail(&self, fault: &Fault) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| fault.to_string());
    }
}

pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
