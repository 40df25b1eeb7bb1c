//! What every policy with a parameter needs: its range, and the mark for "nothing is stale yet".

use crate::quantity::{self, TIME};
use mr_core::{FlushDecision, Marks, PolicyError};
use std::fmt;
use std::time::Duration;

/// The longest time that a policy can name. It keeps every sum of times far from overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The allowed times, as error messages write them.
pub(crate) const TIMES: &str = "a time from 1ns to 365d";

/// Nothing is stale: ask again at the first stale key.
pub(crate) const UNTIL_STALE: FlushDecision = FlushDecision::Hold(Marks {
    at: None,
    worn: None,
    keys: Some(1),
    bytes: None,
});

/// The error of a parameter outside of its range.
pub(crate) fn out_of_range(
    policy: &impl fmt::Display,
    parameter: &'static str,
    allowed: impl Into<String>,
) -> PolicyError {
    PolicyError::OutOfRange {
        policy: policy.to_string(),
        parameter,
        allowed: allowed.into(),
    }
}

/// Whether a policy can name this time.
pub(crate) fn is_time(time: Duration) -> bool {
    !time.is_zero() && time <= LONGEST
}

/// Writes `name=time`.
pub(crate) fn write_time(
    f: &mut fmt::Formatter<'_>,
    name: &'static str,
    time: Duration,
) -> fmt::Result {
    write!(f, "{name}={}", quantity::show(nanos(time), TIME))
}

/// Whole nanoseconds, saturating.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
