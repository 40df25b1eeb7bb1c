//! Two threads on one pool, each with buffers of its own, against one.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use crossbeam_queue::ArrayQueue;
use mr_core::DrawOrder;
use mr_policies::Threshold;

use crate::backends::ACCESS;
use crate::churn::{BenchPool, buffers, pool};
use crate::lines::Setting;
use crate::report::{Line, Wanted};
use crate::rounds::interleave;

const BATCH: usize = 4000;
const REGIONS: usize = 16_000;
/// Leases of a thread between two looks at what is due.
const STRIDE: usize = 1000;
/// Strides of a thread per round: some 4 ms, which both threads often have to themselves even where
/// something else runs.
const STRIDES: usize = 100;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let make = || {
        let policy = Threshold::regions(BATCH as u32)?;
        pool(REGIONS, DrawOrder::Random, policy)
    };
    let workers = [
        Mutex::new(buffers(REGIONS / 2)),
        Mutex::new(buffers(REGIONS / 2)),
    ];
    let stride = |pool, worker: usize| {
        let buffers = workers[worker].lock();
        stride(pool, &mut buffers.unwrap_or_else(PoisonError::into_inner))
    };
    let pool = make()?;
    let [two, one] = scaling(setting, &|worker| stride(&pool, worker))?;
    let apart = [make()?, make()?];
    let [two_apart, one_apart] = scaling(setting, &|worker| stride(&apart[worker], worker))?;
    let queue = ArrayQueue::new(REGIONS);
    (0..BATCH).try_for_each(|index| queue.push(index).map_err(|_| anyhow!("full")))?;
    let [two_queue, one_queue] = scaling(setting, &|_| pop_and_push(&queue))?;
    Ok(vec![
        Line::ratio("two threads on one pool", &two, "one thread", &one)
            .unit("M/s")
            .wanted(Wanted::AtLeast(1.7)),
        Line::ratio(
            "two threads on a pool each",
            &two_apart,
            "one thread",
            &one_apart,
        )
        .unit("M/s"),
        Line::ratio(
            "two threads on one ArrayQueue",
            &two_queue,
            "one thread",
            &one_queue,
        )
        .unit("M/s"),
    ])
}

fn stride(pool: &BenchPool, buffers: &mut Vec<Vec<u8>>) -> Result<()> {
    for _ in 0..STRIDE {
        let buffer = match buffers.pop() {
            Some(buffer) => buffer,
            None => {
                // The other thread has reclaimed more than its share.
                pool.flush()?;
                pool.reclaim(buffers, STRIDE);
                buffers.pop().context("no buffer came back")?
            }
        };
        let lease = pool
            .lease(buffer, ACCESS)
            .map_err(|error| anyhow!("{error}"))?;
        black_box(lease.remote_key());
        lease.release();
    }
    pool.step();
    let lack = (REGIONS / 2).saturating_sub(buffers.len());
    pool.reclaim(buffers, lack);
    Ok(())
}

fn pop_and_push(queue: &ArrayQueue<usize>) -> Result<()> {
    for _ in 0..STRIDE {
        let index = queue.pop().context("the queue is empty")?;
        let pushed = queue.push(black_box(index));
        pushed.map_err(|_| anyhow!("the queue is full"))?;
    }
    Ok(())
}

/// Millions of operations a second by two threads and by one.
fn scaling(
    setting: &Setting,
    stride: &(impl Fn(usize) -> Result<()> + Sync),
) -> Result<[Vec<f64>; 2]> {
    thread::scope(|scope| {
        // The helper lives through all rounds, as threads of a pool's users do.
        let (order, orders) = mpsc::channel::<()>();
        let (report, reports) = mpsc::channel();
        scope.spawn(move || {
            for () in orders {
                if report.send(work(1, stride)).is_err() {
                    return;
                }
            }
        });
        interleave(
            setting.rounds(301),
            [
                &mut || {
                    order.send(())?;
                    let mine = work(0, stride)?;
                    let theirs = reports.recv()??;
                    Ok(throughput(&[mine, theirs]))
                },
                &mut || Ok(throughput(&[work(0, stride)?])),
            ],
        )
    })
}

/// When a thread began and ended its part of a round.
fn work(worker: usize, stride: &impl Fn(usize) -> Result<()>) -> Result<[Instant; 2]> {
    let start = Instant::now();
    (0..STRIDES).try_for_each(|_| stride(worker))?;
    Ok([start, Instant::now()])
}

/// Millions of operations a second, from the first beginning to the last end.
fn throughput(spans: &[[Instant; 2]]) -> f64 {
    let start = spans.iter().map(|span| span[0]).min();
    let end = spans.iter().map(|span| span[1]).max();
    let elapsed = start
        .zip(end)
        .map_or(Duration::MAX, |(start, end)| end - start);
    (spans.len() * STRIDES * STRIDE) as f64 / elapsed.as_secs_f64() / 1e6
}
