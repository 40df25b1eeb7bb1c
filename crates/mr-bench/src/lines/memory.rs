//! What the pool itself takes per region, as its allocations add up to.

use std::hint::black_box;

use anyhow::{Result, anyhow};
use mr_core::DrawOrder;
use mr_policies::UseOnce;
use peak_alloc::PeakAlloc;

use crate::backends::ACCESS;
use crate::churn::{BenchPool, pool};
use crate::lines::Setting;
use crate::report::{Line, Wanted};

/// Counts for this line alone; the others pay two atomic additions per allocation for it, of which
/// a lease makes none and a flush about ten.
#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const REGIONS: usize = 100_000;

pub(crate) fn measure(_: &Setting) -> Result<Vec<Line>> {
    // The first pool of a process calibrates the clock and makes what all pools share.
    drop(pool(1, DrawOrder::Random, UseOnce)?);
    // What is not the pool's is made before counting starts, and kept until it has ended.
    let mut buffers: Vec<_> = (0..REGIONS).map(|_| vec![0_u8]).collect();

    let before = ALLOCATED.current_usage();
    let pool = pool(REGIONS, DrawOrder::Random, UseOnce)?;
    let built = ALLOCATED.current_usage();
    use_all_once(&pool, &mut buffers)?;
    let used = ALLOCATED.current_usage();
    black_box(&pool);
    let each = |now: usize| (now.saturating_sub(before)) as f64 / REGIONS as f64;
    Ok(vec![
        Line::alone(
            "memory per region, after all have been used once",
            "byte",
            &[each(used)],
        )
        .wanted(Wanted::AtMost(128.0)),
        Line::alone("memory per region, new pool", "byte", &[each(built)]),
    ])
}

/// Leases every region, releases them all, flushes and takes the buffers back.
fn use_all_once(pool: &BenchPool, buffers: &mut Vec<Vec<u8>>) -> Result<()> {
    let leases: Result<Vec<_>, _> = buffers
        .drain(..)
        .map(|buffer| pool.lease(buffer, ACCESS))
        .collect();
    let leases = leases.map_err(|error| anyhow!("{error}"))?;
    leases.into_iter().for_each(|lease| lease.release());
    pool.flush()?;
    pool.reclaim(buffers, REGIONS);
    Ok(())
}
