//! Comma-separated text as in the MSR Cambridge traces.
//!
//! One I/O a line: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. By the README of the distribution
//! (SNIA IOTTA, "MSR Cambridge Traces") the stamp is the time of issue as a Windows file time, which counts ticks of
//! 100 ns; type is `Read` or `Write`; offset and size are in bytes; the response time is in the same ticks. The published
//! files have no header line; one with these names is accepted as the first line.

use std::time::Duration;

use super::fields::{Reject, number};
use super::{Kind, Record};

const FIELDS: usize = 7;
const EXPECTED: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime with Type Read or Write, \
                        and the stamp in ticks of 100 ns";
const TICKS_PER_SECOND: u64 = 10_000_000;
const NANOS_PER_TICK: u32 = 100;

/// Whether a file's first line looks like an I/O or the header; it may be cut short after the type.
pub(super) fn starts_with(line: &[u8]) -> bool {
    let mut fields = line.split(|&byte| byte == b',');
    let stamp = fields.next().and_then(number);
    is_header(line) || (stamp.is_some() && fields.nth(2).and_then(kind).is_some())
}

#[derive(Debug, Default)]
pub(super) struct Parser {
    started: bool,
}

impl Parser {
    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Record, Reject> {
        let first = !std::mem::replace(&mut self.started, true);
        if first && is_header(line) {
            return Ok(Record::Bookkeeping);
        }
        io(line).ok_or_else(|| Reject::line(EXPECTED, line))
    }
}

fn is_header(line: &[u8]) -> bool {
    let first = line.split(|&byte| byte == b',').next().unwrap_or_default();
    first.eq_ignore_ascii_case(b"timestamp") && line.split(|&byte| byte == b',').count() == FIELDS
}

fn io(line: &[u8]) -> Option<Record> {
    let mut fields = line.split(|&byte| byte == b',');
    let ticks = number(fields.next()?)?;
    let _host = fields.next()?;
    let _disk = number(fields.next()?)?;
    let kind = kind(fields.next()?)?;
    let _offset = number(fields.next()?)?;
    let bytes = number(fields.next()?)?;
    let _response = number(fields.next()?)?;
    if fields.next().is_some() {
        return None;
    }
    // The remainder is below ten million, so it fits.
    let nanos = (ticks % TICKS_PER_SECOND) as u32 * NANOS_PER_TICK;
    Some(Record::Io {
        time: Duration::new(ticks / TICKS_PER_SECOND, nanos),
        bytes,
        kind,
    })
}

fn kind(field: &[u8]) -> Option<Kind> {
    if field.eq_ignore_ascii_case(b"read") {
        Some(Kind::Read)
    } else if field.eq_ignore_ascii_case(b"write") {
        Some(Kind::Write)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] = b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";

    #[test]
    fn a_tick_is_100_ns() {
        let line = b"128166372003061629,usr,0,Read,7014609920,24576,41286";
        let expected = Record::Io {
            time: Duration::new(12_816_637_200, 306_162_900),
            bytes: 24576,
            kind: Kind::Read,
        };
        assert_eq!(Parser::default().parse(line), Ok(expected));
    }

    #[test]
    fn the_header_is_accepted_once_and_first() {
        let mut parser = Parser::default();
        assert_eq!(parser.parse(HEADER), Ok(Record::Bookkeeping));
        assert!(parser.parse(HEADER).is_err());
    }

    #[test]
    fn every_field_is_checked() {
        for bad in [
            "",
            "x,usr,0,Read,1,2,3",
            "1,usr,zero,Read,1,2,3",
            "1,usr,0,Trim,1,2,3",
            "1,usr,0,Read,-1,2,3",
            "1,usr,0,Read,1,2.5,3",
            "1,usr,0,Read,1,2,",
            "1,usr,0,Read,1,2",
            "1,usr,0,Read,1,2,3,4",
        ] {
            assert!(Parser::default().parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
