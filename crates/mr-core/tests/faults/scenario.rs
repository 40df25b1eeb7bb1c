//! A short life of a pool, with everything checked after each of its steps.

use crate::support::{Book, Buffer, Morgue, Spy};
use mr_core::{
    Access, BuildError, Driver, ErrorKind, LeaseRefusal, ManualClock, OwnedLease, Pool, PoolConfig,
    RemoteKey, ShutdownReport,
};
use mr_mock::{
    Call, FaultBackend, FaultControl, FaultError, FaultPlan, MockError, MockHca, Preset,
};
use mr_policies::Policy;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) type Backend = Spy<FaultBackend<MockHca>>;
pub(crate) type TestPool = Arc<Pool<Backend, Buffer>>;
type Held = OwnedLease<Backend, Buffer>;

pub(crate) const CAPACITY: u32 = 3;

/// Kinds of devices, each with a policy that makes the most of it.
pub(crate) const DEVICES: &[(&str, &[(&str, &str)])] = &[
    (
        "use-n=3",
        &[("fence", "global"), ("remap", "leaves-previous")],
    ),
    ("immediate", &[("fence", "global"), ("remap", "impossible")]),
    (
        "use-n=3",
        &[
            ("fence", "per-key"),
            ("remap", "kills-previous"),
            ("max_batch", "2"),
        ],
    ),
    (
        "immediate",
        &[
            ("fence", "per-key"),
            ("remap", "impossible"),
            ("max_batch", "1"),
        ],
    ),
    (
        "use-once",
        &[
            ("fence", "per-key"),
            ("remap", "impossible"),
            ("max_batch", "2"),
        ],
    ),
    ("use-once", &[("fence", "global"), ("remap", "impossible")]),
];

pub(crate) struct Device {
    pub(crate) hca: MockHca,
    pub(crate) faults: FaultControl,
    pub(crate) clock: Arc<ManualClock>,
    book: Book,
}

/// Builds the pool; `None` if the plan does not let it.
pub(crate) fn build(
    device: usize,
    driver: Driver,
    plan: impl FnOnce(&Arc<ManualClock>) -> FaultPlan,
) -> (Device, Result<TestPool, BuildError<FaultError<MockError>>>) {
    let (text, knobs) = DEVICES[device];
    let policy: Policy = text.parse().unwrap();
    let hca = MockHca::new(&Preset::named("connectx-2008").unwrap().with(knobs).unwrap());
    let clock = Arc::new(ManualClock::new());
    let faulty = FaultBackend::new(hca.clone(), plan(&clock));
    let faults = faulty.control();
    let spy = Spy::new(faulty);
    let book = spy.book();
    let configure = |config: &mut PoolConfig| {
        config.capacity = CAPACITY;
        config.shards = 1;
        config.driver = driver;
        if text.starts_with("use-n") {
            // What was released last is mapped again first.
            config.order = mr_core::DrawOrder::Lifo;
        }
        config.lease_timeout = Duration::ZERO;
        config.flush_timeout = Duration::from_secs(2);
        config.max_retries = 1;
    };
    let pool = Pool::builder(spy, policy)
        .clock(Arc::clone(&clock))
        .seed(7)
        .configure(configure)
        .build();
    let device = Device {
        hca,
        faults,
        clock,
        book,
    };
    (device, pool.map(Arc::new))
}

/// A key that was given out.
struct Given {
    key: RemoteKey,
    place: usize,
    serial: u64,
}

/// One life.
pub(crate) struct Life<'d> {
    device: &'d Device,
    pool: TestPool,
    morgue: Morgue,
    given: Vec<Option<Given>>,
    leased: u32,
}

impl<'d> Life<'d> {
    pub(crate) fn new(device: &'d Device, pool: TestPool) -> Self {
        Self {
            device,
            pool,
            morgue: Morgue::default(),
            given: Vec::new(),
            leased: 0,
        }
    }

    /// The scenario: leases, every way to end one, flushes, a wait for what is due, the end.
    pub(crate) fn run(mut self) -> ShutdownReport {
        let first = self.lease();
        let second = self.lease();
        self.end(first, Held::release);
        let third = self.lease();
        self.flush();
        let mut pending = None;
        self.end(second, |lease| pending = Some(lease.release_pending()));
        self.invalidate(third);
        let fourth = self.lease();
        self.end(fourth, drop);
        let fifth = self.lease();
        self.flush();
        self.end(fifth, Held::release);
        if let Some(Ok(buffer)) = pending.map(|pending| pending.try_take()) {
            self.come_back(buffer);
        }
        self.pass(Duration::from_secs(3));
        self.reclaim();
        let started = SystemTime::now();
        let report = self.pool.shutdown(Duration::from_millis(200));
        let took = started.elapsed().unwrap_or_default();
        assert!(took < Duration::from_secs(5), "a shutdown of {took:?}");
        self.reclaim();
        self.check();
        self.check_report(&report);
        report
    }

    fn lease(&mut self) -> Option<Held> {
        let name = self.given.len() as u64;
        let buffer = Buffer::new(name, 600, &self.morgue);
        let pool = Arc::clone(&self.pool);
        let leased = pool.lease_owned(buffer, Access::all(), Duration::ZERO);
        let lease = match leased {
            Ok(lease) => {
                let place = lease.region().unwrap().place;
                self.given.push(Some(Given {
                    key: lease.remote_key(),
                    place,
                    serial: self.device.book.latest(place).serial,
                }));
                self.leased += 1;
                Some(lease)
            }
            Err(mut error) => {
                self.given.push(None);
                let unknown = matches!(
                    error.reason,
                    LeaseRefusal::Backend(_) | LeaseRefusal::Poisoned(_)
                );
                assert!(error.buffer.is_some() || unknown, "{error}");
                drop(error.buffer.take());
                self.morgue.take();
                None
            }
        };
        self.check();
        lease
    }

    fn end(&mut self, lease: Option<Held>, how: impl FnOnce(Held)) {
        if let Some(lease) = lease {
            self.leased -= 1;
            how(lease);
            self.check();
        }
    }

    fn invalidate(&mut self, lease: Option<Held>) {
        let Some(lease) = lease else {
            return;
        };
        self.leased -= 1;
        if let Ok(buffer) = lease.invalidate() {
            self.come_back(buffer);
        }
        self.check();
    }

    fn flush(&mut self) {
        if self.pool.flush().is_ok() {
            assert_eq!(self.pool.stats().stale.keys, 0, "flushed, and stale");
        }
        self.check();
    }

    fn pass(&mut self, time: Duration) {
        let end = mr_core::Clock::now(&*self.device.clock) + time;
        for _ in 0..1000 {
            let Some(at) = self.pool.next_due().filter(|at| *at <= end) else {
                return;
            };
            self.device.clock.advance_to(at);
            self.pool.step();
            self.check();
        }
        assert!(
            self.pool.stats().regions.total() == 0,
            "the pool is never content"
        );
    }

    fn reclaim(&mut self) {
        let mut buffers = Vec::new();
        self.pool.reclaim(&mut buffers, usize::MAX);
        for buffer in buffers {
            self.come_back(buffer);
        }
    }

    /// No memory is handed back while its key is alive: by the backend's word, and by the HCA's.
    fn come_back(&self, buffer: Buffer) {
        if let Some(given) = &self.given[buffer.name as usize] {
            self.check_dead(given);
        }
        self.forget(buffer);
    }

    fn forget(&self, buffer: Buffer) {
        drop(buffer);
        self.morgue.take();
    }

    fn check_dead(&self, given: &Given) {
        let book = &self.device.book;
        assert!(
            !book.is_alive(given.place, given.serial),
            "{} is alive",
            given.key
        );
        let again = book
            .all()
            .iter()
            .any(|(_, entry)| entry.key == Some(given.key));
        let honoured = self.device.hca.connect().write(given.key, 0, &[1]).is_ok();
        assert!(again || !honoured, "{} is honoured", given.key);
    }

    /// I1, the gauges against a recount, and nothing dropped too early.
    fn check(&mut self) {
        for name in self.morgue.take() {
            if let Some(given) = &self.given[name as usize] {
                self.check_dead(given);
            }
        }
        let stats = self.pool.stats();
        let counts = stats.regions;
        assert_eq!(counts.total(), CAPACITY, "{counts:?}");
        assert_eq!(counts.leased, self.leased, "{counts:?}");
        assert_eq!(stats.leased.bytes, 600 * u64::from(self.leased));
        let alive = self.device.book.all().len() as u64;
        let known = stats.stale.keys + stats.leased.keys;
        assert!(known >= alive, "{known} keys known, {alive} alive");
        let mut busy: Vec<_> = self
            .device
            .book
            .all()
            .iter()
            .map(|(place, _)| *place)
            .collect();
        busy.dedup();
        let unclean = CAPACITY - counts.clean - counts.freed - counts.lost;
        assert!(
            unclean as usize >= busy.len(),
            "{counts:?}, {busy:?} are not clean"
        );
    }

    /// The report names all that is left.
    fn check_report(&self, report: &ShutdownReport) {
        let counts = self.pool.stats().regions;
        assert_eq!(report.leased, 0);
        let named =
            report.freed + report.quarantined + report.stale + report.in_flush + report.not_freed;
        assert_eq!(named, CAPACITY, "{report:?} {counts:?}");
        assert_eq!(report.is_complete(), report.freed == CAPACITY, "{report:?}");
        if report.poisoned.is_some() {
            let buffer = Buffer::new(0, 1, &self.morgue);
            let refused = self.pool.lease(buffer, Access::all());
            let reason = refused.err().map(|error| error.reason);
            assert!(matches!(reason, Some(LeaseRefusal::Poisoned(_))));
        }
        let left = self.device.hca.regions() as u32;
        assert_eq!(left, CAPACITY - report.freed, "regions of the HCA");
    }
}

/// How often each kind of call comes in a life without faults.
pub(crate) fn calls(device: usize) -> Vec<(Call, u64)> {
    let (device, pool) = build(device, Driver::Manual, |_| FaultPlan::none());
    let report = Life::new(&device, pool.unwrap()).run();
    assert!(report.is_complete(), "{report:?}");
    let count = |call| (call, device.faults.calls(call));
    Call::ALL.into_iter().map(count).collect()
}

pub(crate) const KINDS: [ErrorKind; 7] = [
    ErrorKind::NoMemory,
    ErrorKind::Busy,
    ErrorKind::Unsupported,
    ErrorKind::Denied,
    ErrorKind::TimedOut,
    ErrorKind::NoDevice,
    ErrorKind::Io,
];
