//! Readers of recorded I/O traces, one file per format.
//!
//! [`open`] recognises the format by content and returns a [`Trace`]: an iterator over the reads and
//! writes of the file, in the order of the file.
//!
//! ```
//! use mr_lab::trace::{self, Kind, Options};
//!
//! let csv = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
//!            128166372003061729,usr,0,Write,2517131264,4096,7\n";
//! let trace = trace::from_reader("inline", csv.as_bytes(), Options::default())?;
//! let ios: Vec<_> = trace.collect::<Result<_, _>>()?;
//! assert_eq!((ios[0].bytes, ios[0].kind), (24576, Kind::Read));
//! assert_eq!(ios[1].at.as_micros(), 10);
//! # Ok::<(), trace::TraceError>(())
//! ```
//!
//! # What every reader keeps
//! - **Constant memory.** 64 KiB of the file's head, one line (8 KiB at most) or one record, and small fixed tables.
//!   Nothing that a file says makes a reader allocate more.
//! - **Positions.** An error about the content names the file, the line or record, and the byte offset at which that
//!   line or record starts. Cutting the file at that offset leaves what comes before it, which reads to its end; of
//!   blkparse's output only if what was cut off has not decided which action is counted, see `blkparse.rs`.
//! - **A text file ends with a line feed.** A last line without one may have lost digits and is an error.
//! - **Time.** [`Io::at`] counts from the first read or write and never decreases. Traces are only nearly
//!   sorted (several CPUs or threads wrote them): a stamp which is earlier than a previous one, by up to
//!   [`Options::max_step_back`], is moved to the latest stamp so far and counted in [`Trace::clamped`]. A larger step
//!   back means two traces in one file or a corrupt one, and a gap above [`Options::max_gap`] a corrupt stamp: both are
//!   errors, since a simulation would otherwise run through a thousand empty years.

mod blkparse;
mod detect;
mod error;
mod fields;
mod fio;
mod msr;
mod remap;
mod source;
mod timeline;
mod vscsi;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

pub use detect::Format;
pub use error::{Position, TraceError, Unit};

use fields::Reject;
use source::Source;
use timeline::Timeline;

/// One read or write of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Time since the first read or write of the trace; never decreases.
    pub at: Duration,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// Direction as the host sees it.
    pub kind: Kind,
}

/// Direction of an I/O as the host that issued it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Data moves from the storage to the host.
    Read,
    /// Data moves from the host to the storage.
    Write,
}

/// What the caller knows and the file does not say.
#[derive(Debug, Clone)]
pub struct Options {
    /// I/Os per second for a format without times (fio's version 2); other formats do not look at it.
    pub rate: Option<NonZeroU32>,
    /// Largest step back in time that is taken for reordering and clamped; default 10 s.
    pub max_step_back: Duration,
    /// Largest time between two I/Os that is believed; default 24 hours.
    pub max_gap: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rate: None,
            max_step_back: Duration::from_secs(10),
            max_gap: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Records that were well-formed and are no reads or writes of data, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Commands that move no user data (inquiry, mode sense, pass-through, ...).
    pub non_io: u64,
    /// Discards: trim, unmap.
    pub trim: u64,
    /// Flushes without data: sync, synchronise cache.
    pub flush: u64,
    /// Reads and writes of no bytes.
    pub zero_length: u64,
}

impl Skipped {
    /// Skipped records of all reasons.
    pub fn total(&self) -> u64 {
        self.non_io + self.trim + self.flush + self.zero_length
    }

    fn count(&mut self, reason: Skip) {
        let counter = match reason {
            Skip::NonIo => &mut self.non_io,
            Skip::Trim => &mut self.trim,
            Skip::Flush => &mut self.flush,
            Skip::ZeroLength => &mut self.zero_length,
        };
        *counter += 1;
    }
}

/// Opens a trace file and recognises its format by content.
///
/// # Errors
/// [`TraceError::Open`] or [`TraceError::Read`] if the file cannot be read; [`TraceError::Unrecognised`] if it is
/// no trace that this crate reads; [`TraceError::NeedsRate`] if the format has no times and `options` no rate.
pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Trace, TraceError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| TraceError::Open {
        path: path.to_owned(),
        source,
    })?;
    from_reader(
        &path.display().to_string(),
        BufReader::with_capacity(64 * 1024, file),
        options,
    )
}

/// Reads a trace from any source; `name` stands for the file in errors.
///
/// # Errors
/// As [`open`], without [`TraceError::Open`].
pub fn from_reader<R: BufRead>(
    name: &str,
    reader: R,
    options: Options,
) -> Result<Trace<R>, TraceError> {
    let source = Source::new(name, reader)?;
    let format = Format::detect(source.head()).map_err(|hint| TraceError::Unrecognised {
        name: name.to_owned(),
        hint,
    })?;
    let parser =
        Parser::new(format, source.head(), options.rate).ok_or_else(|| TraceError::NeedsRate {
            name: name.to_owned(),
        })?;
    Ok(Trace {
        source: source.counting(parser.unit()),
        parser,
        format,
        timeline: Timeline::new(options.max_step_back, options.max_gap),
        skipped: Skipped::default(),
        finished: false,
    })
}

/// A trace being read: an iterator over its reads and writes.
///
/// The iterator ends after the last I/O or after the first error.
#[derive(Debug)]
pub struct Trace<R = BufReader<File>> {
    source: Source<R>,
    parser: Parser,
    format: Format,
    timeline: Timeline,
    skipped: Skipped,
    finished: bool,
}

impl<R> Trace<R> {
    /// The format that was recognised.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How the I/Os were taken from the records, where a format leaves a choice: which of blkparse's actions is counted.
    pub fn counted_action(&self) -> Option<&'static str> {
        match &self.parser {
            Parser::Blkparse(parser) => parser.counted_action(),
            _ => None,
        }
    }

    /// Records skipped so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// I/Os so far whose stamp was earlier than a previous one and was moved to it.
    pub fn clamped(&self) -> u64 {
        self.timeline.clamped()
    }
}

impl<R: BufRead> Trace<R> {
    /// Reads up to the next I/O; `None` at a clean end.
    fn advance(&mut self) -> Result<Option<Io>, TraceError> {
        while let Some(record) = self.parser.next(&mut self.source)? {
            match record {
                Record::Io { bytes: 0, .. } => self.skipped.count(Skip::ZeroLength),
                Record::Io { time, bytes, kind } => {
                    let at = self
                        .timeline
                        .place(time)
                        .map_err(|step| step.at(self.source.position()))?;
                    return Ok(Some(Io { at, bytes, kind }));
                }
                Record::Skip(reason) => self.skipped.count(reason),
                Record::Bookkeeping => {}
            }
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for Trace<R> {
    type Item = Result<Io, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let step = self.advance();
        self.finished = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

impl<R: BufRead> std::iter::FusedIterator for Trace<R> {}

/// What one line or binary record says.
#[derive(Debug, PartialEq, Eq)]
enum Record {
    /// A read or write; `time` is on the trace's own clock, from any origin.
    Io {
        time: Duration,
        bytes: u64,
        kind: Kind,
    },
    /// A request which is not replayed, and is counted.
    Skip(Skip),
    /// A line that is no request of its own: a header, a file's opening, another view of a counted I/O.
    Bookkeeping,
}

/// Why a request is not replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skip {
    NonIo,
    Trim,
    Flush,
    ZeroLength,
}

/// The parser of the recognised format, with its state.
#[derive(Debug)]
enum Parser {
    Fio(fio::Parser),
    Vscsi,
    Blkparse(blkparse::Parser),
    Msr(msr::Parser),
}

impl Parser {
    /// `None` if the format needs a rate and there is none.
    fn new(format: Format, head: &[u8], rate: Option<NonZeroU32>) -> Option<Self> {
        Some(match format {
            Format::FioV2 => Self::Fio(fio::Parser::version_2(rate?)),
            Format::FioV3 => Self::Fio(fio::Parser::version_3()),
            Format::Vscsi => Self::Vscsi,
            Format::Blkparse => Self::Blkparse(blkparse::Parser::new(head)),
            Format::Msr => Self::Msr(msr::Parser::default()),
        })
    }

    fn unit(&self) -> Unit {
        match self {
            Self::Vscsi => Unit::Record,
            Self::Fio(_) | Self::Blkparse(_) | Self::Msr(_) => Unit::Line,
        }
    }

    /// Reads and parses one line or record; `None` at a clean end.
    fn next<R: BufRead>(&mut self, source: &mut Source<R>) -> Result<Option<Record>, TraceError> {
        let parsed = match self {
            Self::Vscsi => source
                .next_record(vscsi::WHOLE)?
                .map(|record| vscsi::parse(&record)),
            Self::Fio(parser) => source.next_line()?.map(|line| parser.parse(line)),
            Self::Blkparse(parser) => source.next_line()?.map(|line| parser.parse(line)),
            Self::Msr(parser) => source.next_line()?.map(|line| parser.parse(line)),
        };
        parsed
            .transpose()
            .map_err(|Reject { expected, found }| TraceError::Malformed {
                at: source.position(),
                expected,
                found,
            })
    }
}
