//! Taking part in a load of `rds stress`.

use crate::stack::Stack;
use crate::step::LONGEST;
use crate::stress::{self, Arrival, Part};
use anyhow::{Context, Result, bail, ensure};
use rds_lite::stress::{Format, Reporter};
use std::time::Duration;

/// The time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the summary.
pub(super) fn take_part(stack: &dyn Stack, part: &Part, within: u64) -> Result<String> {
    if let Some((_, load)) = &part.lead {
        let is_bounded = load.time.is_some_and(|time| time <= LONGEST);
        ensure!(is_bounded, "a load lasts at most {LONGEST:?}");
    }
    let wait = Duration::from_millis(within).min(LONGEST);
    let arrival = Arrival {
        wait: Some(wait),
        retries: (wait.as_millis() / PAUSE.as_millis()) as u32,
        pause: PAUSE,
    };
    let mut report = Vec::new();
    let reporter = |load: &_| Reporter::new(Format::Json, true, false, load);
    let failure = stress::take_part(stack, part, arrival, reporter, &mut report)?;
    if let Some(failure) = failure {
        bail!("the load has failed: {failure}");
    }
    let report = String::from_utf8(report).context("no report")?;
    Ok(report.trim_end().to_owned())
}
