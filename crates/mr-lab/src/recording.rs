//! A recorded load: a trace file that can be read again and again.

use crate::LabError;
use crate::trace::{self, Options, TraceError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest replay.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A trace that has been read to its end once, so that it is known to be whole.
#[derive(Clone, Debug)]
pub struct Recording {
    path: PathBuf,
    options: Options,
    speed: f64,
    summary: Summary,
}

/// What a trace holds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Its format.
    pub format: String,
    /// Reads and writes.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Length of the longest.
    pub largest: u64,
    /// From the first to the last, as recorded.
    pub span: Duration,
    /// Records that are no reads or writes of data.
    pub skipped: u64,
    /// I/Os whose stamp was earlier than a previous one and was moved to it.
    pub clamped: u64,
}

impl Recording {
    /// Reads the trace once. It is replayed `speed` times as fast as it was recorded.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, has no I/O, or more bytes than can be counted; or the speed is none, or
    /// so low that the replay takes more than a year.
    pub fn open(path: &Path, options: Options, speed: f64) -> Result<Self, LabError> {
        if !(speed.is_finite() && (1e-6..=1e6).contains(&speed)) {
            return Err(LabError::OutOfRange {
                what: "--speed",
                allowed: "from 0.000001 to 1000000".into(),
                given: speed.to_string(),
            });
        }
        let mut summary = Summary::default();
        let mut trace = trace::open(path, options.clone())?;
        for io in trace.by_ref() {
            let io = io?;
            summary.ios += 1;
            summary.bytes = summary.bytes.checked_add(io.bytes).ok_or_else(|| {
                let message = "its I/Os have more than 2^64 bytes together: a length is corrupt";
                LabError::Usage(format!("{}: {message}", path.display()))
            })?;
            summary.largest = summary.largest.max(io.bytes);
            summary.span = io.at;
        }
        summary.format = trace.format().to_string();
        summary.skipped = trace.skipped().total();
        summary.clamped = trace.clamped();
        if summary.ios == 0 {
            let message = format!("{}: the trace holds no read or write", path.display());
            return Err(LabError::Usage(message));
        }
        if summary.span.as_secs_f64() / speed > LONGEST.as_secs_f64() {
            return Err(LabError::OutOfRange {
                what: "--speed",
                allowed: format!("so high that {:?} pass in a year", summary.span),
                given: speed.to_string(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            options,
            speed,
            summary,
        })
    }

    /// What the trace holds.
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many times faster than recorded it is replayed.
    pub const fn speed(&self) -> f64 {
        self.speed
    }

    /// How long the replay takes.
    pub fn duration(&self) -> Duration {
        self.summary.span.div_f64(self.speed)
    }

    /// Opens the trace again.
    pub(crate) fn reopen(&self) -> Result<trace::Trace, TraceError> {
        trace::open(&self.path, self.options.clone())
    }
}
