//! What can be wrong with a trace, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A place in a trace file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file, as the caller named it.
    pub name: String,
    /// What [`Position::number`] counts.
    pub unit: Unit,
    /// Number of the line or record, from 1.
    pub number: u64,
    /// Offset in bytes, from 0, at which the line or record starts.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Line => "line",
            Unit::Record => "record",
        };
        write!(
            f,
            "{}: {unit} {} at byte offset {}",
            self.name, self.number, self.offset
        )
    }
}

/// What a trace consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Lines of text.
    Line,
    /// Binary records of a fixed size.
    Record,
}

/// Why a trace cannot be read (further).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be opened.
    #[error("{}: cannot open the trace: {source}; check the path and the permissions", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The operating system failed to read on.
    #[error("{at}: cannot read on: {source}; check the file and its medium")]
    Read {
        /// The line or record that was being read.
        at: Position,
        /// What the system said.
        source: io::Error,
    },
    /// The content is of no format that this crate reads.
    #[error("{name}: {hint}")]
    Unrecognised {
        /// The file, as the caller named it.
        name: String,
        /// What it seems to be, and what to do.
        hint: &'static str,
    },
    /// The format has no times, and the caller gave no rate.
    #[error(
        "{name}: a fio version 2 log has no times; say how many I/Os a second to replay (--rate)"
    )]
    NeedsRate {
        /// The file, as the caller named it.
        name: String,
    },
    /// A line or record is not what the format allows.
    #[error(
        "{at}: expected {expected}, found {found}; repair it, or cut the file there to use what comes before"
    )]
    Malformed {
        /// The line or record.
        at: Position,
        /// What the format asks for.
        expected: &'static str,
        /// The beginning of what is there, escaped.
        found: String,
    },
    /// The file ends inside a line or record.
    #[error(
        "{at}: expected {expected}, but the file ends after {got} bytes; if it is complete append what is missing, else cut it at that offset"
    )]
    Truncated {
        /// The line or record that is incomplete.
        at: Position,
        /// What should have come.
        expected: &'static str,
        /// Bytes of the line or record that are there.
        got: usize,
    },
    /// A line is longer than any line of a trace.
    #[error(
        "{at}: expected a line of at most {limit} bytes; the file is corrupt from there on, or no trace"
    )]
    LineTooLong {
        /// The line.
        at: Position,
        /// The limit in bytes.
        limit: usize,
    },
    /// A stamp lies before a previous one by more than reordering explains.
    #[error(
        "{at}: expected times in order, but this one is {by:?} before a previous one (up to {limit:?} is taken for reordering); split the file if it holds two traces"
    )]
    StepsBack {
        /// The line or record.
        at: Position,
        /// How far it lies before the latest stamp.
        by: Duration,
        /// [`Options::max_step_back`](super::Options::max_step_back).
        limit: Duration,
    },
    /// A stamp lies so far after the previous one that it is taken for corrupt.
    #[error(
        "{at}: expected the next I/O within {limit:?}, but this one is {by:?} later; repair the stamp, or split the file there"
    )]
    Gap {
        /// The line or record.
        at: Position,
        /// How far it lies after the latest stamp.
        by: Duration,
        /// [`Options::max_gap`](super::Options::max_gap).
        limit: Duration,
    },
}
