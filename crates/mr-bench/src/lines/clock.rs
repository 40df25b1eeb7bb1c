//! Reading the clock.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use mr_core::{Clock, SystemClock};

use crate::churn::ROUND;
use crate::lines::Setting;
use crate::report::Line;
use crate::rounds::{interleave, nanos_each};

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let clock = SystemClock::new();
    let [mine, theirs] = interleave(
        setting.rounds(101),
        [&mut || repeat(|| clock.now()), &mut || repeat(Instant::now)],
    )?;
    Ok(vec![Line::ratio(
        "SystemClock::now",
        &mine,
        "Instant::now",
        &theirs,
    )])
}

fn repeat<T>(read: impl Fn() -> T) -> Result<f64> {
    nanos_each(ROUND, || {
        for _ in 0..ROUND {
            black_box(read());
        }
        Ok(())
    })
}
