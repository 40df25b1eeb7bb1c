//! A backend that calls back into the pool: no lock of the pool is held across its calls.

use crate::support::Spy;
use mr_core::{
    Access, BatchError, Capabilities, DeallocError, Driver, KeyTag, Keys, MemoryRange, MrBackend,
    OwnedLease, Pool,
};
use mr_mock::{MockError, MockHca, MockRegion, Preset};
use mr_policies::Policy;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

type Hook = Arc<Mutex<Option<Box<dyn Fn() + Send>>>>;

/// Calls the hook before each call of the backend inside.
struct Hooked {
    inner: MockHca,
    hook: Hook,
}

impl Hooked {
    fn call(&self) {
        // Taken out, so that a call from within a call does not wait for itself here.
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
            *self.hook.lock().unwrap() = Some(hook);
        }
    }
}

// SAFETY: the answers are those of the backend inside.
unsafe impl MrBackend for Hooked {
    type Region = MockRegion;
    type Error = MockError;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn alloc(&self) -> Result<MockRegion, MockError> {
        self.inner.alloc()
    }

    fn map(
        &self,
        region: &mut MockRegion,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, MockError> {
        self.call();
        self.inner.map(region, memory, access, tag)
    }

    fn soft_invalidate(&self, region: &mut MockRegion) {
        self.call();
        self.inner.soft_invalidate(region);
    }

    fn invalidate(&self, batch: &mut [&mut MockRegion]) -> Result<(), BatchError<MockError>> {
        self.call();
        self.inner.invalidate(batch)
    }

    fn invalidated_by_peer(&self, region: &mut MockRegion) -> bool {
        self.call();
        self.inner.invalidated_by_peer(region)
    }

    fn dealloc(&self, region: MockRegion) -> Result<(), DeallocError<MockRegion, MockError>> {
        self.call();
        self.inner.dealloc(region)
    }
}

type HookedPool = Pool<Spy<Hooked>>;
type Held = Mutex<Vec<OwnedLease<Spy<Hooked>, Vec<u8>>>>;

fn lease(pool: &Arc<HookedPool>) -> OwnedLease<Spy<Hooked>, Vec<u8>> {
    let pool = Arc::clone(pool);
    pool.lease_owned(vec![0; 64], Access::all(), Duration::ZERO)
        .unwrap()
}

/// All that a user does, while every call of the backend looks at the pool and releases a lease.
fn live(preset: &str, policy: &str, driver: Driver) {
    let hook = Hook::default();
    let hooked = Hooked {
        inner: MockHca::new(&Preset::named(preset).unwrap()),
        hook: Arc::clone(&hook),
    };
    let pool: Arc<HookedPool> = Arc::new(
        Pool::builder(Spy::new(hooked), policy.parse::<Policy>().unwrap())
            .configure(|config| {
                config.capacity = 64;
                config.driver = driver;
                config.lease_timeout = Duration::ZERO;
                config.max_age = Duration::from_millis(1);
            })
            .build()
            .unwrap(),
    );
    let held: Arc<Held> = Arc::new(Mutex::new((0..20).map(|_| lease(&pool)).collect()));
    let (weak, spare): (Weak<HookedPool>, _) = (Arc::downgrade(&pool), Arc::clone(&held));
    *hook.lock().unwrap() = Some(Box::new(move || {
        let Some(pool) = weak.upgrade() else {
            return;
        };
        // In the midst of a shutdown some are in nobody's list.
        assert!(pool.stats().regions.total() <= 64);
        let lease = spare.lock().unwrap().pop();
        // A lease for each one released, so that the calls do not beget calls for ever.
        if lease.is_some() {
            drop(pool.try_lease(vec![0; 8], Access::all()));
        }
        drop(lease);
        pool.next_due();
    }));
    for round in 0..20 {
        let one = lease(&pool);
        let two = lease(&pool);
        if round % 2 == 0 {
            one.invalidate().unwrap();
        } else {
            one.release();
        }
        drop(two);
        pool.flush().unwrap();
        pool.step();
    }
    let rest = std::mem::take(&mut *held.lock().unwrap());
    drop(rest);
    let report = pool.shutdown(Duration::from_secs(20));
    assert!(report.is_complete(), "{report:?}");
}

#[test]
fn a_backend_that_calls_back_does_not_deadlock() {
    let (done, watchdog) = mpsc::channel();
    let lives = thread::spawn(move || {
        for preset in ["connectx-2008", "connectx-5"] {
            for policy in ["immediate", "use-once", "threshold=3", "max-exposure=1us"] {
                for driver in [Driver::Thread, Driver::Manual] {
                    live(preset, policy, driver);
                }
            }
        }
        let _ = done.send(());
    });
    let ended = watchdog.recv_timeout(Duration::from_secs(60));
    assert!(
        ended.is_ok() || lives.is_finished(),
        "deadlock: it should take a moment"
    );
    lives.join().unwrap();
}
