//! The load: a lease, an RDMA write of the peer through its key, a release.

use super::rig::{Rig, request};
use super::way::Way;
use super::{cpu, device_error};
use crate::LabError;
use crate::measure::{Measured, Plan};
use crate::row::{Latency, MeanMax};
use hdrhistogram::Histogram;
use mr_core::{MrBackend, Pool};
use mr_policies::Policy;
use mr_verbs::{ArenaBuffer, Error};
use std::thread;
use std::time::{Duration, Instant};

/// The pool's own bound on the age of a key, so that each policy shows its own face: as `compare`
/// has it.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// How long all buffers may be in flushes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest latency that is told apart, in ns: a minute.
const LONGEST: u64 = 60_000_000_000;

/// What is added up over a run.
struct Meter {
    latencies: Histogram<u64>,
    /// Wall and CPU time of the caller in lease and release.
    caller_ns: u64,
    cpu_ns: u64,
}

/// One round of one policy.
pub(super) fn run<B: MrBackend<Error = Error>>(
    plan: &Plan,
    rig: &Rig,
    backend: B,
    way: Way<B>,
    policy: &Policy,
    name: &str,
) -> Result<Measured, LabError> {
    let pool: Pool<B, ArenaBuffer> = Pool::builder(backend, policy.clone())
        .capacity(plan.regions)
        .max_age(MAX_AGE)
        .configure(|config| {
            config.max_stale_bytes = u64::MAX;
            config.max_unclaimed = Some(plan.regions + 1);
        })
        .build()
        .map_err(device_error)?;
    let size = plan.size as usize;
    // One more than can be stale: the next I/O always finds one.
    let buffers = (0..=plan.regions).map(|_| rig.arena.take(size));
    let mut buffers: Vec<_> = buffers.collect::<Result<_, _>>().map_err(device_error)?;
    let latencies = Histogram::new_with_bounds(1, LONGEST, 3).map_err(device_error)?;
    let mut meter = Meter {
        latencies,
        caller_ns: 0,
        cpu_ns: 0,
    };

    let (process, thread) = (cpu::of_process(), cpu::of_thread());
    let started = Instant::now();
    for io in 0..plan.ios {
        let arrived = arrival(plan, started, io);
        do_io(rig, &pool, way, &mut buffers, arrived, &mut meter)?;
    }
    let elapsed = started.elapsed();
    let process = cpu::of_process() - process;
    // Besides this thread there is the flusher's.
    let flusher = process.saturating_sub(cpu::of_thread() - thread);

    let stats = pool.stats();
    let ios = f64::from(plan.ios);
    let us_per_io = |nanos: u64| nanos as f64 / 1e3 / ios;
    let elapsed_s = elapsed.as_secs_f64();
    let latency = |percent| meter.latencies.value_at_quantile(percent / 100.0) as f64 / 1e3;
    let oldest = stats.exposure.oldest.unwrap_or_default();
    let row = Measured {
        backend: name.to_owned(),
        policy: policy.to_string(),
        ios: plan.ios.into(),
        elapsed_s,
        flushes: stats.flushes as f64,
        flushes_per_s: stats.flushes as f64 / elapsed_s,
        regions_per_flush: stats.regions_per_flush(),
        cpu_us_per_io: us_per_io(meter.cpu_ns + flusher),
        cpu_us_quartile_low: f64::NAN,
        cpu_us_quartile_high: f64::NAN,
        process_cpu_us_per_io: us_per_io(process),
        caller_us_per_io: us_per_io(meter.caller_ns),
        throughput_mb_s: ios * plan.size as f64 / 1e6 / elapsed_s,
        latency_us: Latency {
            p50: latency(50.0),
            p99: latency(99.0),
            p999: latency(99.9),
        },
        waits: stats.waits as f64,
        exposure_s: MeanMax {
            mean: stats.exposure.key_seconds / ios,
            max: stats.exposure.longest.max(oldest).as_secs_f64(),
        },
        key_seconds: stats.exposure.key_seconds,
        registration_ratio: None,
    };
    let report = pool.shutdown(PATIENCE);
    if report.is_complete() {
        Ok(row)
    } else {
        Err(LabError::Device(
            format!("the pool could not be shut down: {report:?}").into(),
        ))
    }
}

/// The same load without memory management: CPU time per I/O of posting the request, in µs.
pub(super) fn requests(plan: &Plan, rig: &Rig) -> Result<f64, LabError> {
    let started = Instant::now();
    let mut cpu_ns = 0;
    for io in 0..plan.ios {
        arrival(plan, started, io);
        let before = cpu::of_thread();
        rig.ours.post(&[request(io)]).map_err(device_error)?;
        cpu_ns += cpu::of_thread() - before;
        rig.hear()?;
        rig.write_elsewhere()?;
    }
    Ok(cpu_ns as f64 / 1e3 / f64::from(plan.ios))
}

/// Waits until I/O number `io` comes.
fn arrival(plan: &Plan, started: Instant, io: u32) -> Instant {
    let Some(rate) = plan.rate else {
        return Instant::now();
    };
    let due = started + Duration::from_secs_f64(f64::from(io) / rate);
    thread::sleep(due.saturating_duration_since(Instant::now()));
    due
}

fn do_io<B: MrBackend<Error = Error>>(
    rig: &Rig,
    pool: &Pool<B, ArenaBuffer>,
    way: Way<B>,
    buffers: &mut Vec<ArenaBuffer>,
    arrived: Instant,
    meter: &mut Meter,
) -> Result<(), LabError> {
    let lease = meter.of_caller(|| {
        let buffer = spare(pool, buffers)?;
        way.lease(pool, buffer)
    })?;
    let key = if way.announces {
        rig.hear()?
    } else {
        lease.remote_key()
    };
    rig.write(lease.addr(), key)?;
    meter.of_caller(|| {
        lease.release();
        Ok(())
    })?;
    let latency = arrived.elapsed().as_nanos();
    meter
        .latencies
        .saturating_record(u64::try_from(latency).unwrap_or(u64::MAX));
    Ok(())
}

/// A buffer, one of those that flushes have set free if need be.
fn spare<B: MrBackend<Error = Error>>(
    pool: &Pool<B, ArenaBuffer>,
    buffers: &mut Vec<ArenaBuffer>,
) -> Result<ArenaBuffer, LabError> {
    let started = Instant::now();
    loop {
        if let Some(buffer) = buffers.pop() {
            return Ok(buffer);
        }
        if pool.reclaim(buffers, usize::MAX) == 0 {
            if started.elapsed() > PATIENCE {
                return Err(LabError::Device("no buffer has come back".into()));
            }
            thread::yield_now();
        }
    }
}

impl Meter {
    /// Adds the time that `call` takes.
    fn of_caller<T>(&mut self, call: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
        let (started, cpu) = (Instant::now(), cpu::of_thread());
        let done = call();
        self.cpu_ns += cpu::of_thread() - cpu;
        self.caller_ns += u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        done
    }
}
