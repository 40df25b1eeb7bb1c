//! A backend that calls back into the pool: no lock of the pool is held across its calls.

use crate::support::Spy;
use mr_core::{
    Access, BatchError, Capabilities, DeallocError, Driver, ErrorKind, KeyTag, Keys, LeaseRefusal,
    MemoryRange, MrBackend, OwnedLease, Poisoned, PoisonedBy, Pool,
};
use mr_mock::{
    Call, Fault, FaultBackend, FaultError, FaultPlan, MockError, MockHca, MockRegion, Preset, When,
};
use mr_policies::Policy;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

type Hook = Arc<Mutex<Option<Box<dyn Fn() + Send>>>>;

/// Calls the hook before each call of the backend inside.
struct Hooked {
    inner: FaultBackend<MockHca>,
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
    type Error = FaultError<MockError>;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn alloc(&self) -> Result<MockRegion, Self::Error> {
        self.inner.alloc()
    }

    fn map(
        &self,
        region: &mut MockRegion,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, Self::Error> {
        self.call();
        self.inner.map(region, memory, access, tag)
    }

    fn soft_invalidate(&self, region: &mut MockRegion) {
        self.call();
        self.inner.soft_invalidate(region);
    }

    fn invalidate(&self, batch: &mut [&mut MockRegion]) -> Result<(), BatchError<Self::Error>> {
        self.call();
        self.inner.invalidate(batch)
    }

    fn invalidated_by_peer(&self, region: &mut MockRegion) -> bool {
        self.call();
        self.inner.invalidated_by_peer(region)
    }

    fn dealloc(&self, region: MockRegion) -> Result<(), DeallocError<MockRegion, Self::Error>> {
        self.call();
        self.inner.dealloc(region)
    }
}

type HookedPool = Pool<Spy<Hooked>>;
type Held = Mutex<Vec<OwnedLease<Spy<Hooked>, Vec<u8>>>>;

fn lease(pool: &Arc<HookedPool>) -> Option<OwnedLease<Spy<Hooked>, Vec<u8>>> {
    let pool = Arc::clone(pool);
    pool.lease_owned(vec![0; 64], Access::all(), Duration::ZERO)
        .ok()
}

fn build(preset: &str, policy: &str, driver: Driver, plan: FaultPlan) -> (Arc<HookedPool>, Hook) {
    let hook = Hook::default();
    let hca = MockHca::new(&Preset::named(preset).unwrap());
    let hooked = Hooked {
        inner: FaultBackend::new(hca, plan),
        hook: Arc::clone(&hook),
    };
    let pool = Pool::builder(Spy::new(hooked), policy.parse::<Policy>().unwrap())
        .configure(|config| {
            config.capacity = 64;
            config.driver = driver;
            config.lease_timeout = Duration::ZERO;
            config.max_age = Duration::from_millis(1);
            config.retry_after = Duration::from_micros(100);
            config.max_retries = 1000;
        })
        .build()
        .unwrap();
    (Arc::new(pool), hook)
}

/// All that a user does, while every call of the backend looks at the pool and releases a lease.
fn live(preset: &str, policy: &str, driver: Driver, plan: FaultPlan) {
    let (pool, hook) = build(preset, policy, driver, plan);
    let first = (0..20).filter_map(|_| lease(&pool)).collect();
    let held: Arc<Held> = Arc::new(Mutex::new(first));
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
        let (one, two) = (lease(&pool), lease(&pool));
        match one {
            Some(one) if round % 2 == 0 => drop(one.invalidate()),
            one => one.into_iter().for_each(|one| one.release()),
        }
        drop(two);
        let _ = pool.flush();
        pool.step();
    }
    let rest = std::mem::take(&mut *held.lock().unwrap());
    drop(rest);
    let report = pool.shutdown(Duration::from_secs(20));
    assert!(report.is_complete(), "{report:?}");
}

fn live_everywhere(plan: impl Fn() -> FaultPlan + Send + 'static) {
    let (done, watchdog) = mpsc::channel();
    let lives = thread::spawn(move || {
        for preset in ["connectx-2008", "connectx-5"] {
            for policy in ["immediate", "use-once", "threshold=3", "max-exposure=1us"] {
                for driver in [Driver::Thread, Driver::Manual] {
                    live(preset, policy, driver, plan());
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

#[test]
fn a_backend_that_calls_back_does_not_deadlock() {
    live_everywhere(FaultPlan::none);
}

/// On the way back from a failure locks were held that on the way there were not (Open MPI, aws-ofi-nccl).
#[test]
fn a_backend_that_calls_back_and_fails_does_not_deadlock() {
    live_everywhere(|| {
        let every = |plan: FaultPlan, call, nth, fault| plan.on(call, When::Every(nth), fault);
        let plan = every(
            FaultPlan::none(),
            Call::Map,
            5,
            Fault::Fail(ErrorKind::NoMemory),
        );
        let plan = every(plan, Call::Map, 7, Fault::HalfDone(ErrorKind::Io));
        let plan = every(plan, Call::Invalidate, 3, Fault::HalfDone(ErrorKind::Busy));
        every(plan, Call::Dealloc, 9, Fault::Fail(ErrorKind::Busy))
    });
}

/// Every call of the backend in turn panics, those included that cannot fail: the pool is poisoned, and
/// its shutdown ends.
#[test]
fn a_panic_in_any_call_poisons() {
    let mut poisoned = 0;
    for (preset, policy) in [("connectx-2008", "use-n=2"), ("connectx-5", "use-once")] {
        for bad in 1..40 {
            let (pool, hook) = build(preset, policy, Driver::Manual, FaultPlan::none());
            let calls = AtomicU32::new(0);
            *hook.lock().unwrap() = Some(Box::new(move || {
                assert_ne!(
                    calls.fetch_add(1, Ordering::SeqCst) + 1,
                    bad,
                    "as asked for"
                );
            }));
            for round in 0..6 {
                match (lease(&pool), round % 3) {
                    (Some(lease), 0) => drop(lease.invalidate()),
                    (Some(lease), 1) => drop(lease.take_if_peer_invalidated()),
                    (lease, _) => drop(lease),
                }
                let _ = pool.flush();
            }
            let refused = pool.try_lease(vec![0; 8], Access::all()).map(drop);
            let by_backend = refused.is_err_and(|error| {
                matches!(
                    error.reason,
                    LeaseRefusal::Poisoned(Poisoned(PoisonedBy::Backend))
                )
            });
            let report = pool.shutdown(Duration::from_millis(50));
            // A call of the shutdown itself may be the one.
            assert!(
                !by_backend || report.poisoned.is_some(),
                "{bad}: {report:?}"
            );
            let named = report.freed + report.quarantined + report.stale + report.not_freed;
            assert_eq!(named + report.leased, 64, "{bad}: {report:?}");
            poisoned += u32::from(by_backend);
        }
    }
    assert!(
        poisoned > 20,
        "{poisoned}: the life calls the backend too seldom"
    );
}
