//! How fast mr-lab simulates I/Os of 4 KiB on one core.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mr_lab::arrival::Arrival;
use mr_lab::scenario::{Load, Scenario};
use mr_lab::sim;
use mr_lab::size::Sizes;
use mr_mock::Preset;

use crate::lines::Setting;
use crate::report::{Line, Wanted};

const IOS: u32 = 500_000;
/// I/Os a second, in virtual time: with 10 ms each, some 1000 of the 5000 regions are leased.
const RATE: u32 = 100_000;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let scenario = Scenario {
        load: Load::Synthetic {
            rate: f64::from(RATE),
            sizes: Sizes::Fixed(4096),
            arrival: Arrival::Steady,
            duration: Duration::from_secs(u64::from(IOS / RATE)),
        },
        ..Scenario::default()
    };
    let preset = Preset::named("connectx-2008")?;
    let policy = "threshold=3000".parse()?;
    let mut speeds = Vec::new();
    for _ in 0..setting.rounds(21) {
        let start = Instant::now();
        let row = sim::run(&scenario, &preset, &policy)?;
        let elapsed = start.elapsed();
        ensure!(row.ios == u64::from(IOS), "{} I/Os, not {IOS}", row.ios);
        ensure!(row.waits == 0, "{} I/Os had to wait", row.waits);
        speeds.push(f64::from(IOS) / elapsed.as_secs_f64() / 1e6);
    }
    let what = "mr-lab: simulated I/Os of 4 KiB on one core";
    Ok(vec![
        Line::alone(what, "M/s", &speeds).wanted(Wanted::AtLeast(2.0)),
    ])
}
