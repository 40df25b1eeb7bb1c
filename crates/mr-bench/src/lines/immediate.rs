//! `Immediate` against the backend's own `map` and `invalidate`.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Result, anyhow};
use mr_core::{Fence, KeyTag, MrBackend, Pool};
use mr_policies::Immediate;

use crate::backends::{ACCESS, Price, StubBackend, map_bare};
use crate::churn::{BenchPool, buffers};
use crate::lines::Setting;
use crate::report::{Line, Wanted};
use crate::rounds::{interleave, nanos_each};

/// One LOCAL_INV work request with its completion: less than the 2 us of today's HCAs.
const PER_KEY: Duration = Duration::from_micros(1);

/// One SYNC_TPT: never published; freeing an FMR, which contains one, takes "tens of usecs" (Linux,
/// net/sunrpc/xprtrdma), so this is the least that it can be.
const GLOBAL: Duration = Duration::from_micros(10);

const LEASES: usize = 1000;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    Ok(vec![
        line(Fence::PerKey, Price::Spin(PER_KEY), setting)?.wanted(Wanted::AtMost(1.3)),
        line(Fence::Global, Price::Spin(GLOBAL), setting)?.wanted(Wanted::AtMost(1.3)),
        line(Fence::PerKey, Price::Nothing, setting)?,
    ])
}

fn line(fence: Fence, price: Price, setting: &Setting) -> Result<Line> {
    let pool: BenchPool = Pool::builder(StubBackend::new(fence, price), Immediate).build()?;
    let bare = StubBackend::new(fence, price);
    let (mut mine, mut theirs) = (buffers(1), buffers(1));
    let [mine, theirs] = interleave(
        setting.rounds(101),
        [&mut || by_pool(&pool, &mut mine), &mut || {
            by_hand(&bare, &mut theirs)
        }],
    )?;
    let fence = match fence {
        Fence::PerKey => "per-key fence",
        Fence::Global => "global fence",
    };
    let price = match price {
        Price::Spin(time) => format!("{time:?}"),
        _ => "0".to_owned(),
    };
    Ok(Line::ratio(
        format!("Immediate, {fence}, invalidate takes {price}"),
        &mine,
        "bare map + invalidate",
        &theirs,
    ))
}

fn by_pool(pool: &BenchPool, buffers: &mut Vec<Vec<u8>>) -> Result<f64> {
    nanos_each(LEASES, || {
        for _ in 0..LEASES {
            let buffer = buffers
                .pop()
                .ok_or_else(|| anyhow!("no buffer came back"))?;
            let lease = pool
                .lease(buffer, ACCESS)
                .map_err(|error| anyhow!("{error}"))?;
            black_box(lease.remote_key());
            lease.release();
            pool.reclaim(buffers, 1);
        }
        Ok(())
    })
}

fn by_hand(backend: &StubBackend, buffers: &mut [Vec<u8>]) -> Result<f64> {
    let mut region = backend.alloc()?;
    let mut tag = KeyTag::new(0);
    nanos_each(LEASES, || {
        for _ in 0..LEASES {
            tag = tag.next();
            black_box(map_bare(backend, &mut region, &mut buffers[0], tag)?);
            backend.invalidate(&mut [&mut region])?;
        }
        Ok(())
    })
}
