//! The tail of a lease's latency while a flush sits in the backend, against no flush.

use std::hint::{black_box, spin_loop};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use mr_core::{Driver, Fence, Pool};
use mr_policies::UseOnce;

use crate::backends::{ACCESS, Price, StubBackend};
use crate::churn::{BenchPool, buffers};
use crate::lines::Setting;
use crate::report::{Line, Wanted};
use crate::rounds::interleave;

/// What the flush under way takes, and how long its call of the backend takes: the thread sleeps, as
/// it does when an HCA is at work.
const BATCH: usize = 4000;
const IN_BACKEND: Duration = Duration::from_millis(10);

/// One lease each so many nanoseconds, so that a bounded number of regions lasts until the flush
/// has ended.
const PACE: u64 = 400;

/// Leases beside one flush: 12 ms.
const LEASES: usize = 30_000;

/// Flushes per round: 300,000 leases, of which 30 are beyond the percentile.
const FLUSHES: usize = 10;
const MOST_TRIES: usize = 100;
const PERCENTILE: f64 = 99.99;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let backend = StubBackend::new(Fence::Global, Price::Sleep(IN_BACKEND));
    let pool = Pool::builder(backend, UseOnce).configure(|config| {
        config.capacity = (BATCH + LEASES + BATCH) as u32;
        config.max_stale_bytes = u64::MAX;
        config.max_age = Duration::from_secs(3600);
        config.driver = Driver::Manual;
    });
    let pool: BenchPool = pool.build()?;
    let clock = quanta::Clock::new();
    let buffers = std::cell::RefCell::new(buffers(BATCH + LEASES));
    let round = |flushes| tail(&pool, &clock, &mut buffers.borrow_mut(), flushes);
    let [during, without] = interleave(
        setting.rounds(31),
        [&mut || round(true), &mut || round(false)],
    )?;
    Ok(vec![
        Line::ratio(
            format!("p{PERCENTILE} of a lease during a flush of {BATCH} that takes {IN_BACKEND:?}"),
            &during,
            "the same without a flush",
            &without,
        )
        .wanted(Wanted::AtMost(3.0)),
    ])
}

/// The percentile over all leases of one round, in nanoseconds.
fn tail(
    pool: &BenchPool,
    clock: &quanta::Clock,
    buffers: &mut Vec<Vec<u8>>,
    flushes: bool,
) -> Result<f64> {
    let mut latencies = Histogram::<u64>::new(3)?;
    let mut measured = 0;
    for _ in 0..MOST_TRIES {
        for _ in 0..BATCH {
            release(lease(pool, buffers)?);
        }
        if flushes {
            measured += usize::from(beside_a_flush(pool, clock, buffers, &mut latencies)?);
        } else {
            lease_at_pace(pool, clock, buffers, &mut latencies)?;
            measured += 1;
        }
        pool.flush()?;
        pool.reclaim(buffers, usize::MAX);
        ensure!(buffers.len() == BATCH + LEASES, "a flush lost buffers");
        if measured == FLUSHES {
            return Ok(latencies.value_at_percentile(PERCENTILE) as f64);
        }
    }
    bail!("this thread hardly runs: in {MOST_TRIES} tries it met {measured} flushes")
}

/// Leases while another thread flushes, from when it sits in the backend until after it has ended.
/// Says whether it met the flush: a thread that does not run may miss one.
fn beside_a_flush(
    pool: &BenchPool,
    clock: &quanta::Clock,
    buffers: &mut Vec<Vec<u8>>,
    latencies: &mut Histogram<u64>,
) -> Result<bool> {
    let backend = pool.backend();
    backend.let_sleep(true);
    thread::scope(|scope| {
        let flusher = scope.spawn(|| pool.flush());
        while !backend.is_asleep() && !flusher.is_finished() {
            spin_loop();
        }
        let met = backend.is_asleep();
        if met {
            lease_at_pace(pool, clock, buffers, latencies)?;
        }
        backend.let_sleep(false);
        let flushed = flusher
            .join()
            .map_err(|_| anyhow!("the flusher panicked"))?;
        flushed.context("the flush failed")?;
        Ok(met)
    })
}

fn lease_at_pace(
    pool: &BenchPool,
    clock: &quanta::Clock,
    buffers: &mut Vec<Vec<u8>>,
    latencies: &mut Histogram<u64>,
) -> Result<()> {
    let start = clock.raw();
    for turn in 0..LEASES as u64 {
        while clock.delta_as_nanos(start, clock.raw()) < turn * PACE {
            spin_loop();
        }
        let before = clock.raw();
        let lease = lease(pool, buffers)?;
        let after = clock.raw();
        latencies.saturating_record(clock.delta_as_nanos(before, after));
        release(lease);
    }
    Ok(())
}

type Lease<'p> = mr_core::BorrowedLease<'p, StubBackend, Vec<u8>>;

fn lease<'p>(pool: &'p BenchPool, buffers: &mut Vec<Vec<u8>>) -> Result<Lease<'p>> {
    let buffer = buffers.pop().context("out of buffers")?;
    let lease = pool.lease(buffer, ACCESS);
    lease.map_err(|error| anyhow!("{error}"))
}

fn release(lease: Lease<'_>) {
    black_box(lease.remote_key());
    lease.release();
}
