//! Leases by the million over several threads: a new pool with another policy, device and faults
//! every round; then the counters must be back at zero, memory flat, and no key given out twice.
//!
//! `cargo xtask soak --leases 100000000`, or
//! `cargo run --release -p mr-policies --example soak -- LEASES THREADS SEED`.

use mr_core::{
    Access, BatchError, Capabilities, DeallocError, DrawOrder, ErrorKind, KeyTag, Keys,
    MemoryRange, MrBackend, Pool, Remap,
};
use mr_mock::{Call, Fault, FaultBackend, FaultPlan, MockError, MockHca, MockRegion, Preset, When};
use mr_policies::Policy;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

const LEASES_PER_ROUND: u64 = 500_000;
/// Resident memory may grow so far beyond what it was after the first rounds.
const SLACK: u64 = 64 << 20;

const POLICIES: &[&str] = &[
    "immediate",
    "use-once",
    "use-n=32",
    "use-n=255,threshold=50%",
    "threshold=100",
    "threshold=1MiB",
    "periodic=1ms",
    "max-exposure=2ms",
    "adaptive=1key-s/5ms",
    "use-n=8,max-exposure=1ms",
    "fmr-pool",
    "srp",
];

const DEVICES: &[&[(&str, &str)]] = &[
    &[("fence", "global"), ("remap", "leaves-previous")],
    &[("fence", "global"), ("remap", "impossible")],
    &[
        ("fence", "per-key"),
        ("remap", "kills-previous"),
        ("max_batch", "64"),
    ],
    &[
        ("fence", "per-key"),
        ("remap", "impossible"),
        ("max_batch", "16"),
    ],
];

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: u64| args.next().map_or(Ok(default), |text| text.parse());
    let (leases, threads, seed) = (next(1_000_000)?, next(4)?, next(1)?);
    soak(leases, threads, seed, &mut std::io::stdout().lock())
}

/// Soaks, and writes to `out` what it has done.
///
/// # Errors
/// A counter is not back at zero, a key was given out while stale, or memory has grown.
pub(crate) fn soak(
    leases: u64,
    threads: u64,
    seed: u64,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let started = Instant::now();
    let mut dice = Dice(seed);
    let (mut done, mut rounds, mut skipped, mut faults, mut waits) = (0, 0, 0, 0, 0);
    let (mut first, mut most) = (0, 0);
    while done < leases {
        let wanted = LEASES_PER_ROUND.min(leases - done);
        let Some(round) = Round::build(&mut dice)? else {
            skipped += 1;
            continue;
        };
        let sum = round.run(wanted, threads, &mut dice)?;
        done += sum.leases;
        faults += sum.faults;
        waits += sum.waits;
        rounds += 1;
        let resident = resident_bytes();
        if rounds <= 4 {
            first = resident.max(first);
        }
        most = resident.max(most);
        if rounds % 20 == 0 {
            writeln!(
                out,
                "{done} leases, {rounds} rounds, {} MiB",
                resident >> 20
            )?;
        }
    }
    writeln!(
        out,
        "{done} leases over {threads} threads in {rounds} pools ({skipped} policies did not fit their \
         device), {faults} faults injected, {waits} waits, {:.0} s; resident memory {} MiB at first, \
         {} MiB at most; every counter back at zero, no key given out while stale; seed {seed}",
        started.elapsed().as_secs_f64(),
        first >> 20,
        most >> 20,
    )?;
    if most > first + SLACK {
        return Err("memory has grown".into());
    }
    Ok(())
}

/// One pool.
struct Round {
    pool: Pool<Watch>,
    faults: mr_mock::FaultControl,
    doubles: Arc<AtomicU64>,
    name: String,
}

struct Sum {
    leases: u64,
    faults: u64,
    waits: u64,
}

impl Round {
    /// `None` if the policy does not fit the device.
    fn build(dice: &mut Dice) -> Result<Option<Self>, Failure> {
        let policy: Policy = dice.pick(POLICIES).parse()?;
        let device = *dice.pick(DEVICES);
        let plan = FaultPlan::seeded(dice.next())
            .on(Call::Map, When::Rate(0.001), Fault::Fail(ErrorKind::Busy))
            .on(
                Call::Map,
                When::Rate(0.0005),
                Fault::HalfDone(ErrorKind::Io),
            )
            .on(
                Call::Invalidate,
                When::Rate(0.002),
                Fault::HalfDone(ErrorKind::TimedOut),
            )
            .on(
                Call::Invalidate,
                When::Rate(0.002),
                Fault::LostAnswer(ErrorKind::Io),
            );
        let preset = Preset::named("connectx-2008")?.with(device)?;
        let faulty = FaultBackend::new(MockHca::new(&preset), plan);
        let faults = faulty.control();
        let doubles = Arc::new(AtomicU64::new(0));
        let name = format!("{policy} on {device:?}");
        let watch = Watch {
            inner: faulty,
            doubles: Arc::clone(&doubles),
        };
        let order = *dice.pick(&[DrawOrder::Random, DrawOrder::Fifo, DrawOrder::Lifo]);
        let capacity = *dice.pick(&[16, 64, 512]);
        let built = Pool::builder(watch, policy)
            .seed(dice.next())
            .configure(|config| {
                config.capacity = capacity;
                config.order = order;
                config.max_age = Duration::from_millis(50);
                config.retry_after = Duration::from_micros(100);
                config.max_retries = 1000;
                config.max_unclaimed = Some(1000);
            })
            .build();
        match built {
            Ok(pool) => Ok(Some(Self {
                pool,
                faults,
                doubles,
                name,
            })),
            Err(mr_core::BuildError::Policy(_)) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn run(self, wanted: u64, threads: u64, dice: &mut Dice) -> Result<Sum, Failure> {
        let leases = thread::scope(|scope| {
            let users: Vec<_> = (0..threads)
                .map(|_| {
                    let mut dice = Dice(dice.next());
                    let pool = &self.pool;
                    scope.spawn(move || use_pool(pool, wanted / threads + 1, &mut dice))
                })
                .collect();
            let ended = users.into_iter().map(|user| user.join().unwrap_or(0));
            ended.sum::<u64>()
        });
        self.faults.set_plan(FaultPlan::none());
        for _ in 0..1000 {
            if self.pool.flush().is_ok() {
                break;
            }
        }
        let stats = self.pool.stats();
        let at_zero = (
            stats.leased.keys,
            stats.leased.bytes,
            stats.stale.keys,
            stats.stale.bytes,
        );
        let counted = (stats.leases, self.doubles.load(Ordering::Relaxed));
        if at_zero != (0, 0, 0, 0) || counted != (leases, 0) {
            return Err(format!("{}: {leases} leases, {counted:?}, {stats:?}", self.name).into());
        }
        let report = self.pool.shutdown(Duration::from_secs(30));
        if !report.is_complete() {
            return Err(format!("{}: {report:?}", self.name).into());
        }
        Ok(Sum {
            leases,
            faults: self.faults.injected(),
            waits: stats.waits,
        })
    }
}

/// Leases and ends leases in every way. Says how many it got.
fn use_pool(pool: &Pool<Watch>, wanted: u64, dice: &mut Dice) -> u64 {
    let mut held = Vec::new();
    let mut back = Vec::new();
    let mut got = 0;
    for _ in 0..wanted {
        let len = 1 + (dice.next() % 4096) as usize;
        let access = *dice.pick(&[Access::all(), Access::REMOTE_READ]);
        if let Ok(lease) = pool.lease_timeout(vec![0; len], access, Duration::from_secs(5)) {
            got += 1;
            held.push(lease);
        }
        if held.len() > (dice.next() % 3) as usize {
            for lease in held.drain(..) {
                match dice.next() % 64 {
                    0 => drop(lease.invalidate()),
                    1..8 => drop(lease),
                    8 => drop(lease.release_pending()),
                    _ => lease.release(),
                }
            }
        }
        match dice.next() % 4096 {
            0 => drop(pool.flush()),
            1 => drop(pool.stats()),
            2..40 => {
                pool.reclaim(&mut back, 100);
                back.clear();
            }
            _ => {}
        }
    }
    got
}

/// Watches for keys that are given out while an earlier use of the same value may be honoured.
struct Watch {
    inner: FaultBackend<MockHca>,
    doubles: Arc<AtomicU64>,
}

/// A region, and which of its 256 tags may be honoured.
struct Watched {
    inner: MockRegion,
    stale: [u64; 4],
}

// SAFETY: the answers are those of the backend inside.
unsafe impl MrBackend for Watch {
    type Region = Watched;
    type Error = mr_mock::FaultError<MockError>;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn alloc(&self) -> Result<Watched, Self::Error> {
        let inner = self.inner.alloc()?;
        Ok(Watched {
            inner,
            stale: [0; 4],
        })
    }

    fn map(
        &self,
        region: &mut Watched,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, Self::Error> {
        let keys = self.inner.map(&mut region.inner, memory, access, tag)?;
        if self.capabilities().remap == Remap::KillsPrevious {
            region.stale = [0; 4];
        }
        let tag = keys.remote.tag().get();
        let (word, bit) = (usize::from(tag / 64), 1 << (tag % 64));
        let double = region.stale[word] & bit != 0;
        self.doubles.fetch_add(u64::from(double), Ordering::Relaxed);
        region.stale[word] |= bit;
        Ok(keys)
    }

    fn soft_invalidate(&self, region: &mut Watched) {
        self.inner.soft_invalidate(&mut region.inner);
    }

    fn invalidate(&self, batch: &mut [&mut Watched]) -> Result<(), BatchError<Self::Error>> {
        let mut regions: Vec<_> = batch.iter_mut().map(|region| &mut region.inner).collect();
        let answer = self.inner.invalidate(&mut regions);
        for (place, region) in batch.iter_mut().enumerate() {
            if answer
                .as_ref()
                .map_or_else(|failed| failed.is_dead(place), |()| true)
            {
                region.stale = [0; 4];
            }
        }
        answer
    }

    fn dealloc(&self, region: Watched) -> Result<(), DeallocError<Watched, Self::Error>> {
        let stale = region.stale;
        let freed = self.inner.dealloc(region.inner);
        freed.map_err(|failed| DeallocError {
            region: Watched {
                inner: failed.region,
                stale,
            },
            error: failed.error,
        })
    }
}

/// SplitMix64: small, seeded, and good enough to choose with.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[(self.next() % from.len() as u64) as usize]
    }
}

/// Resident memory of this process; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
