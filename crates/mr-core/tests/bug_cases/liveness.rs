//! A state that nobody comes to leave (fjall, feldera, risingwave).

use crate::setup::{Backend, FMR, NO_TIME, Setup};
use mr_core::{Access, FlushDecision, InvalidationPolicy, Pool, StaleView};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Flushes the pool while it is asked, once.
#[derive(Clone, Default)]
struct FlushesItself {
    pool: Arc<OnceLock<Weak<Pool<Backend>>>>,
    armed: Arc<AtomicBool>,
}

impl fmt::Display for FlushesItself {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flushes-itself")
    }
}

impl InvalidationPolicy for FlushesItself {
    fn flush(&self, _: &StaleView) -> FlushDecision {
        if self.armed.swap(false, Ordering::SeqCst) {
            let pool = self.pool.get().and_then(Weak::upgrade).unwrap();
            pool.flush().unwrap();
        }
        FlushDecision::SILENT
    }
}

/// A release saw that too much was stale; before it could say so a flush had begun and ended. What
/// it said then refused all leases, although nothing was stale any more.
#[test]
fn a_bound_that_was_passed_before_a_flush_refuses_nobody_after_it() {
    let policy = FlushesItself::default();
    let setup = Setup::with_policy(FMR, policy.clone(), |config| config.max_stale = Some(1));
    policy.pool.set(Arc::downgrade(&setup.pool)).unwrap();
    let lease = setup.lease();
    policy.armed.store(true, Ordering::SeqCst);
    lease.release();
    let stats = setup.pool.stats();
    assert_eq!(
        (stats.flushes, stats.stale.keys),
        (1, 0),
        "flushed meanwhile"
    );
    setup.pool.step();
    for _ in 0..2 {
        let leased = setup.pool.lease_owned(vec![0; 8], Access::all(), NO_TIME);
        drop(leased.map_err(|error| error.reason).unwrap());
        setup.pool.step();
    }
    let tried = setup.pool.try_lease(vec![0; 8], Access::all());
    assert!(tried.is_ok(), "{:?}", tried.map(drop).unwrap_err().reason);
}
