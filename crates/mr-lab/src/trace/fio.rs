//! fio's I/O log, as `write_iolog` writes it: versions 2 and 3.
//!
//! After a header line, each line is `FILE add|open|close` or `FILE ACTION OFFSET LENGTH`, in version 3 with a stamp
//! before it. Offset and length are in bytes (fio's HOWTO, "Trace file format v2" and "v3").
//!
//! # Version 3
//! The HOWTO says that the stamp is relative to the beginning of the run, and leaves its unit open. It is microseconds:
//! fio's `iolog.c` writes `utime_since_now()`, and a log which fio 3.33 wrote of a job with `thinktime=2000`
//! (microseconds) shows steps of a little over 2000. A test holds this on the logs in `tests/traces`.
//!
//! # Version 2
//! There are no stamps. I/Os are spaced by the caller's rate: the k-th one, from 0, is at k/rate seconds. The action
//! `wait`, which fio itself never writes, adds its first number to the clock, as the HOWTO says: microseconds, and nothing
//! below 100. (fio's replay code takes that number for milliseconds since the start of fio instead; its documentation is
//! what people write logs by.)
//!
//! # Two runs in one file
//! fio appends to a log that exists. The second header is refused: the second run's stamps start again from 0.

use std::num::NonZeroU32;
use std::time::Duration;

use super::fields::{Reject, number, words};
use super::{Kind, Record, Skip};

pub(super) const HEADER_V2: &[u8] = b"fio version 2 iolog";
pub(super) const HEADER_V3: &[u8] = b"fio version 3 iolog";

const EXPECTED_V2: &str =
    "FILE add|open|close, or FILE read|write|trim|sync|datasync|wait OFFSET LENGTH";
const EXPECTED_V3: &str = "MICROSECONDS FILE add|open|close, or MICROSECONDS FILE read|write|trim|sync|datasync OFFSET LENGTH";

const EXPECTED_ONE_RUN: &str =
    "no second header (fio appends to a log that exists, so here starts another run)";

/// Waits below this are discarded, says the HOWTO.
const SHORTEST_WAIT: Duration = Duration::from_micros(100);

#[derive(Debug)]
pub(super) struct Parser {
    clock: Clock,
    header_read: bool,
}

/// Where the times come from.
#[derive(Debug)]
enum Clock {
    /// Version 2: `ios` so far, at the caller's rate, plus what was waited.
    Rate {
        per_second: NonZeroU32,
        ios: u64,
        waited: Duration,
    },
    /// Version 3: the stamp before each line.
    Stamps,
}

impl Parser {
    pub(super) fn version_2(per_second: NonZeroU32) -> Self {
        Self {
            clock: Clock::Rate {
                per_second,
                ios: 0,
                waited: Duration::ZERO,
            },
            header_read: false,
        }
    }

    pub(super) fn version_3() -> Self {
        Self {
            clock: Clock::Stamps,
            header_read: false,
        }
    }

    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Record, Reject> {
        if !self.header_read {
            // Detection has compared the header.
            self.header_read = true;
            return Ok(Record::Bookkeeping);
        }
        if line == HEADER_V2 || line == HEADER_V3 {
            return Err(Reject::line(EXPECTED_ONE_RUN, line));
        }
        self.clock
            .record(line)
            .ok_or_else(|| Reject::line(self.clock.expected(), line))
    }
}

impl Clock {
    fn expected(&self) -> &'static str {
        match self {
            Self::Rate { .. } => EXPECTED_V2,
            Self::Stamps => EXPECTED_V3,
        }
    }

    fn record(&mut self, line: &[u8]) -> Option<Record> {
        let mut words = words(line);
        let stamp = match self {
            Self::Rate { .. } => None,
            Self::Stamps => Some(Duration::from_micros(number(words.next()?)?)),
        };
        // From the end, since nothing stops a file name from having blanks in it.
        let last = words.next_back()?;
        let Some(length) = number(last) else {
            let known = matches!(last, b"add" | b"open" | b"close");
            return (known && words.next().is_some()).then_some(Record::Bookkeeping);
        };
        let offset = number(words.next_back()?)?;
        let action = words.next_back()?;
        words.next()?;
        let kind = match action {
            b"read" => Kind::Read,
            b"write" => Kind::Write,
            b"trim" => return Some(Record::Skip(Skip::Trim)),
            b"sync" | b"datasync" | b"syncfs" | b"sync_file_range" => {
                return Some(Record::Skip(Skip::Flush));
            }
            b"wait" => return self.wait(Duration::from_micros(offset)),
            _ => return None,
        };
        let time = match stamp {
            Some(stamp) => stamp,
            None => self.tick()?,
        };
        Some(Record::Io {
            time,
            bytes: length,
            kind,
        })
    }

    /// Version 2: time of the next I/O; `None` with stamps, or beyond what a `Duration` holds.
    fn tick(&mut self) -> Option<Duration> {
        let Self::Rate {
            per_second,
            ios,
            waited,
        } = self
        else {
            return None;
        };
        let rate = u64::from(per_second.get());
        let seconds = Duration::from_secs(*ios / rate);
        // Below one second's worth of I/Os, so both the product and the quotient fit.
        let rest = Duration::from_nanos(*ios % rate * 1_000_000_000 / rate);
        *ios += 1;
        waited.checked_add(seconds)?.checked_add(rest)
    }

    /// Version 2: a pause; version 3 has none.
    fn wait(&mut self, pause: Duration) -> Option<Record> {
        let Self::Rate { waited, .. } = self else {
            return None;
        };
        if pause >= SHORTEST_WAIT {
            *waited = waited.checked_add(pause)?;
        }
        Some(Record::Bookkeeping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(mut parser: Parser, lines: &[&str]) -> Vec<Option<Record>> {
        assert_eq!(parser.parse(b"the header"), Ok(Record::Bookkeeping));
        lines
            .iter()
            .map(|line| parser.parse(line.as_bytes()).ok())
            .collect()
    }

    fn io(micros: u64, bytes: u64, kind: Kind) -> Option<Record> {
        let time = Duration::from_micros(micros);
        Some(Record::Io { time, bytes, kind })
    }

    #[test]
    fn version_2_is_spaced_by_the_rate_and_by_waits() {
        let rate = NonZeroU32::new(1000).unwrap();
        let lines = [
            "/d add",
            "/d open",
            "/d read 0 4096",
            "/d write 4096 8192",
            "/d wait 99 0",
            "/d read 0 1",
            "/d wait 5000 0",
            "/d sync 0 0",
            "/d trim 0 4096",
            "/d read 0 2",
            "/d close",
        ];
        let expected = [
            Some(Record::Bookkeeping),
            Some(Record::Bookkeeping),
            io(0, 4096, Kind::Read),
            io(1000, 8192, Kind::Write),
            Some(Record::Bookkeeping),
            io(2000, 1, Kind::Read),
            Some(Record::Bookkeeping),
            Some(Record::Skip(Skip::Flush)),
            Some(Record::Skip(Skip::Trim)),
            io(8000, 2, Kind::Read),
            Some(Record::Bookkeeping),
        ];
        assert_eq!(read_all(Parser::version_2(rate), &lines), expected);
    }

    #[test]
    fn version_3_stamps_are_microseconds_and_names_may_have_blanks() {
        let lines = [
            "20 my data add",
            "272 my data read 245760 8192",
            "9 d datasync 0 0",
        ];
        let expected = [
            Some(Record::Bookkeeping),
            io(272, 8192, Kind::Read),
            Some(Record::Skip(Skip::Flush)),
        ];
        assert_eq!(read_all(Parser::version_3(), &lines), expected);
    }

    #[test]
    fn what_the_format_does_not_allow_is_refused() {
        let lines = [
            "",
            "1",
            "1 d",
            "1 add",
            "1 d unlink",
            "d read 0 1",
            "1 read 0 1",
            "1 d read 0",
            "1 d read x 1",
            "1 d move 0 1",
            "1 d wait 500 0",
            "1 d read 0 18446744073709551616",
        ];
        for (line, record) in lines.iter().zip(read_all(Parser::version_3(), &lines)) {
            assert_eq!(record, None, "{line}");
        }
    }

    #[test]
    fn a_second_run_in_the_file_is_told_as_such() {
        let mut parser = Parser::version_3();
        assert_eq!(parser.parse(HEADER_V3), Ok(Record::Bookkeeping));
        assert_eq!(
            parser.parse(HEADER_V3).unwrap_err().expected,
            EXPECTED_ONE_RUN
        );
    }

    #[test]
    fn endless_waits_are_an_error_and_no_overflow() {
        let rate = NonZeroU32::new(1).unwrap();
        let mut parser = Parser::version_2(rate);
        let Clock::Rate { waited, .. } = &mut parser.clock else {
            unreachable!()
        };
        *waited = Duration::MAX;
        let lines = ["/d wait 100 0", "/d read 0 1", "/d read 0 1"];
        let expected = [None, io_at_the_end(), None];
        assert_eq!(read_all(parser, &lines), expected);
    }

    fn io_at_the_end() -> Option<Record> {
        Some(Record::Io {
            time: Duration::MAX,
            bytes: 1,
            kind: Kind::Read,
        })
    }
}
