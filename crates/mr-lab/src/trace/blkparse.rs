//! What `blkparse` prints by default: one line per event of the Linux block layer, then a summary.
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q  WS 223490 + 8 [fio]
//! device cpu sequence   seconds.nanos   pid  action RWBS sector + sectors [command]
//! ```
//! By blkparse(1) and its `blkparse_fmt.c`: times count from the start of the trace, sectors are of 512 bytes, a
//! request without sectors has only the command, and a packet command has its byte count and its bytes in parentheses.
//!
//! # One I/O, counted once
//! An I/O passes through several actions: Q (queued), G (gets a request), I (inserted), D (issued to the driver),
//! C (completed); on the way it may be split (X) or merged (M, F). **Q is counted**: it is what the application asked
//! for, in its size and at its time, before the block layer cut or joined it to fit *this* device. fio and btrecord replay
//! by it too. It is also the one action besides C that a device without a request queue (device-mapper, md) shows.
//!
//! A file recorded with a filter (`blktrace -a issue`) may lack it. Then the first of D, I, G, C is counted that occurs
//! in the first 64 KiB: D and I have the sizes after most merges, G misses what is merged later, and C has the time of the
//! end instead of the start. If none occurs there, it is the first of the five to appear.
//! [`Trace::counted_action`](super::Trace::counted_action) tells which it was.
//!
//! When the file holds a volume and the disk below it, Q on the disk is the volume's I/O again; the remap between them (A)
//! tells, see `remap.rs`. Old kernels queue the rest of a split I/O a second time (6.1, where the sample in `tests/traces`
//! comes from, does not); such a rest is counted as an I/O of its own.

use std::time::Duration;

use super::fields::{Reject, number, words};
use super::remap::{Device, Remaps};
use super::{Kind, Record, Skip};

const EXPECTED: &str = "an event of blkparse's default format: MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS, \
     then SECTOR + SECTORS if it moves data";
const EXPECTED_ONE_TRACE: &str =
    "nothing but blkparse's summary up to the end (here seems to start another trace)";
const SECTOR: u64 = 512;

/// The actions that can stand for an I/O, best first.
const COUNTABLE: [&str; 5] = ["Q", "D", "I", "G", "C"];

/// Whether a file begins like blkparse's output: with an event, after blank lines and notes about input files.
pub(super) fn starts_with(head: &[u8]) -> bool {
    head.split(|&byte| byte == b'\n')
        .find(|line| !is_blank_or_note(line))
        .is_some_and(|line| Event::parse(line).is_some())
}

#[derive(Debug)]
pub(super) struct Parser {
    counted: Option<&'static str>,
    remaps: Remaps,
    in_summary: bool,
}

impl Parser {
    /// Chooses the action to count from the beginning of the file.
    pub(super) fn new(head: &[u8]) -> Self {
        let counted = COUNTABLE.into_iter().find(|wanted| {
            head.split(|&byte| byte == b'\n')
                .filter_map(Event::parse)
                .any(|event| event.action == wanted.as_bytes())
        });
        Self {
            counted,
            remaps: Remaps::default(),
            in_summary: false,
        }
    }

    /// The action that stands for an I/O; `None` if no event has told yet.
    pub(super) fn counted_action(&self) -> Option<&'static str> {
        self.counted
    }

    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Record, Reject> {
        self.in_summary |= is_summary(line);
        if self.in_summary && Event::parse(line).is_some() {
            return Err(Reject::line(EXPECTED_ONE_TRACE, line));
        }
        if self.in_summary || is_blank_or_note(line) {
            return Ok(Record::Bookkeeping);
        }
        self.event(line).ok_or_else(|| Reject::line(EXPECTED, line))
    }

    fn event(&mut self, line: &[u8]) -> Option<Record> {
        let event = Event::parse(line)?;
        if event.action == b"A" {
            self.remap(&event)?;
        }
        let counted = match self.counted {
            Some(counted) => counted,
            None => match event.countable() {
                Some(action) => *self.counted.insert(action),
                None => return Some(Record::Bookkeeping),
            },
        };
        let Some(action) = event.countable() else {
            return Some(Record::Bookkeeping);
        };
        // Those that are not counted must be well-formed all the same: which one counts depends on
        // the whole head, and a file that is cut before an error is to be read to its end.
        let request = Request::parse(&event)?;
        if action != counted {
            return Some(Record::Bookkeeping);
        }
        Some(self.count(&event, request))
    }

    /// `A`: `SECTOR + SECTORS <- (MAJOR,MINOR) SECTOR`.
    fn remap(&mut self, event: &Event<'_>) -> Option<()> {
        let mut words = words(event.details);
        let sector = number(words.nth(1)?)?;
        let arrow = words.nth(2)?;
        let from = words.next()?.strip_prefix(b"(")?.strip_suffix(b")")?;
        let from_sector = number(words.next()?)?;
        if arrow != b"<-" {
            return None;
        }
        self.remaps
            .remapped(event.device, sector, device(from)?, from_sector);
        Some(())
    }

    /// The record of the counted action.
    fn count(&mut self, event: &Event<'_>, request: Request) -> Record {
        let (sector, bytes, purpose) = match request {
            Request::Sectors {
                sector,
                bytes,
                purpose,
            } => (sector, bytes, purpose),
            Request::Without(reason) => return Record::Skip(reason),
        };
        // What it reflects was counted on the upper device, as whatever it is.
        if event.action == b"Q" && self.remaps.is_reflection(event.device, sector) {
            return Record::Bookkeeping;
        }
        match purpose.of {
            Of::Data(kind) if bytes > 0 => Record::Io {
                time: event.time,
                bytes,
                kind,
            },
            _ => Record::Skip(purpose.when_empty()),
        }
    }
}

/// What the details of a countable action say.
enum Request {
    /// `RWBS SECTOR + SECTORS ...`
    Sectors {
        sector: u64,
        bytes: u64,
        purpose: Purpose,
    },
    /// `RWBS [COMMAND]`, or `RWBS BYTES (BYTES IN HEX) [COMMAND]` for a packet command: why it is skipped.
    Without(Skip),
}

impl Request {
    fn parse(event: &Event<'_>) -> Option<Self> {
        let mut words = words(event.details);
        let purpose = Purpose::parse(words.next()?)?;
        let (first, second) = (words.next()?, words.next());
        if let (Some(sector), Some(b"+")) = (number(first), second) {
            let bytes = number(words.next()?)?.checked_mul(SECTOR)?;
            return Some(Self::Sectors {
                sector,
                bytes,
                purpose,
            });
        }
        if first.starts_with(b"[") {
            return Some(Self::Without(purpose.when_empty()));
        }
        number(first)?;
        let second = second?;
        let is_packet_command = second.starts_with(b"(") || second.starts_with(b"[");
        is_packet_command.then_some(Self::Without(Skip::NonIo))
    }
}

/// The fields that every event has, and the rest of its line.
struct Event<'a> {
    device: Device,
    time: Duration,
    action: &'a [u8],
    /// From the RWBS field on.
    details: &'a [u8],
}

impl<'a> Event<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        let device = device(word(&mut rest)?)?;
        let _cpu = number(word(&mut rest)?)?;
        let _sequence = number(word(&mut rest)?)?;
        let time = time(word(&mut rest)?)?;
        let _pid = number(word(&mut rest)?)?;
        let action = word(&mut rest)?;
        let is_action = action.len() <= 2 && action.iter().all(u8::is_ascii_alphabetic);
        is_action.then_some(Self {
            device,
            time,
            action,
            details: rest,
        })
    }

    /// The action, if it can stand for an I/O.
    fn countable(&self) -> Option<&'static str> {
        COUNTABLE
            .into_iter()
            .find(|action| action.as_bytes() == self.action)
    }
}

/// What a request is for, by its RWBS field.
#[derive(Debug, Clone, Copy)]
struct Purpose {
    /// A flush comes first.
    flush: bool,
    of: Of,
}

#[derive(Debug, Clone, Copy)]
enum Of {
    Data(Kind),
    Skipped(Skip),
}

impl Purpose {
    /// `[F] R|W|D|N [F A S M B ...]`: a leading F is a flush before the data, the later letters are modifiers.
    fn parse(rwbs: &[u8]) -> Option<Self> {
        let (flush, rest) = match rwbs.strip_prefix(b"F") {
            Some(rest) => (true, rest),
            None => (false, rwbs),
        };
        let of = match rest.first() {
            Some(b'R') => Of::Data(Kind::Read),
            Some(b'W') => Of::Data(Kind::Write),
            Some(b'D') => Of::Skipped(Skip::Trim),
            Some(b'N') => Of::Skipped(Skip::NonIo),
            _ if flush => Of::Skipped(Skip::Flush),
            _ => return None,
        };
        Some(Self { flush, of })
    }

    /// Why a request for this that moves no data is skipped. (Linux sends a bare flush as a write without sectors.)
    fn when_empty(self) -> Skip {
        match self.of {
            _ if self.flush => Skip::Flush,
            Of::Skipped(reason) => reason,
            Of::Data(_) => Skip::ZeroLength,
        }
    }
}

/// Takes the next word off `rest`.
fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let text = rest.trim_ascii_start();
    let end = text
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    (!word.is_empty()).then_some(word)
}

/// `MAJOR,MINOR`
fn device(field: &[u8]) -> Option<Device> {
    let comma = field.iter().position(|&byte| byte == b',')?;
    Some((number(&field[..comma])?, number(&field[comma + 1..])?))
}

/// `SECONDS.NANOSECONDS`, always with nine digits after the point.
fn time(field: &[u8]) -> Option<Duration> {
    let point = field.iter().position(|&byte| byte == b'.')?;
    let nanos = &field[point + 1..];
    if nanos.len() != 9 {
        return None;
    }
    let nanos = u32::try_from(number(nanos)?).ok()?;
    Some(Duration::new(number(&field[..point])?, nanos))
}

/// Whether a line stands between the events without being one.
fn is_blank_or_note(line: &[u8]) -> bool {
    line.trim_ascii().is_empty() || line.starts_with(b"Input file ")
}

/// Whether a line begins the summary, which runs to the end of the output.
fn is_summary(line: &[u8]) -> bool {
    let per_cpu = line.strip_prefix(b"CPU").and_then(<[u8]>::first);
    per_cpu.is_some_and(u8::is_ascii_digit) || line.starts_with(b"Total (")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(action: &str, lines: &[&str]) -> Vec<Option<Record>> {
        let mut parser = Parser::new(b"");
        parser.counted = COUNTABLE.into_iter().find(|it| *it == action);
        lines
            .iter()
            .map(|line| parser.parse(line.as_bytes()).ok())
            .collect()
    }

    fn details(text: &str) -> Option<Record> {
        let line = format!("  8,0    3        1     1.000000250   697  D  {text}");
        parse("D", &[&line]).remove(0)
    }

    fn io(bytes: u64, kind: Kind) -> Option<Record> {
        let time = Duration::new(1, 250);
        Some(Record::Io { time, bytes, kind })
    }

    #[test]
    fn rwbs_tells_data_from_the_rest() {
        let skip = |reason| Some(Record::Skip(reason));
        assert_eq!(details("R 100 + 8 [a b]"), io(4096, Kind::Read));
        assert_eq!(details("RA 100 + 8 [a]"), io(4096, Kind::Read));
        assert_eq!(details("FWFS 100 + 1 [a]"), io(512, Kind::Write));
        assert_eq!(details("WS 100 + 8 (    1234) [a]"), io(4096, Kind::Write));
        assert_eq!(details("FWS [kworker]"), skip(Skip::Flush));
        assert_eq!(details("WS [kworker]"), skip(Skip::ZeroLength));
        assert_eq!(details("R 0 + 0 [kworker]"), skip(Skip::ZeroLength));
        assert_eq!(details("FN [kworker]"), skip(Skip::Flush));
        assert_eq!(details("F 0 + 0 [kworker]"), skip(Skip::Flush));
        assert_eq!(details("DS 0 + 128 [fio]"), skip(Skip::Trim));
        assert_eq!(details("N 0 [x]"), skip(Skip::NonIo));
        assert_eq!(
            details("R 36 (12 00 00 00 24 00 ..) [udevd]"),
            skip(Skip::NonIo)
        );
    }

    #[test]
    fn what_the_format_does_not_allow_is_refused() {
        for bad in [
            "",
            "R",
            "X 1 + 8 [a]",
            "R 100 + [a]",
            "R 100 + x [a]",
            "R x + 8 [a]",
            "R 1 8 [a]",
            "R 1",
        ] {
            assert_eq!(details(bad), None, "{bad:?}");
        }
        assert_eq!(
            details("R 1 + 18446744073709551615 [a]"),
            None,
            "bytes overflow"
        );
        for bad in [
            "8 0 0 1 0.000000000 1 Q R 1 + 8 [a]",
            "8,0 0 1 0.0 1 Q R 1 + 8 [a]",
            "8,0 0 1 0.000000000 1 Queue R 1 + 8 [a]",
            "noise",
        ] {
            assert_eq!(parse("Q", &[bad]), [None], "{bad}");
        }
    }

    #[test]
    fn a_remapped_io_is_counted_on_the_upper_device() {
        let lines = [
            "253,0 0 1 1.000000250 1 Q R 0 + 8 [a]",
            "  8,0 0 2 1.000000260 1 A R 2048 + 8 <- (253,0) 0",
            "  8,0 0 3 1.000000270 1 Q R 2048 + 8 [a]",
            "  8,0 0 4 1.000000280 1 A R 2048 + 8 -> (253,0) 0",
        ];
        let expected = [
            io(4096, Kind::Read),
            Some(Record::Bookkeeping),
            Some(Record::Bookkeeping),
            None,
        ];
        assert_eq!(parse("Q", &lines), expected);
    }

    #[test]
    fn the_best_action_of_the_head_is_counted_or_else_the_first_to_come() {
        let line = |action: &&str| format!("8,0 0 1 0.000000000 1 {action} R 1 + 8 [a]\n");
        for best in 0..COUNTABLE.len() {
            let head: String = COUNTABLE[best..].iter().rev().map(line).collect();
            let parser = Parser::new(head.as_bytes());
            assert_eq!(parser.counted_action(), Some(COUNTABLE[best]));
        }
        let lines = [line(&"P"), line(&"C"), line(&"Q")];
        let mut parser = Parser::new(b"");
        let ios = lines.iter().filter(|line| {
            let record = parser.parse(line.trim_end().as_bytes());
            matches!(record, Ok(Record::Io { .. }))
        });
        assert_eq!(ios.count(), 1);
        assert_eq!(parser.counted_action(), Some("C"));
    }

    /// A line of another action was not looked at; with the file cut short it was the one to count, and
    /// refused.
    #[test]
    fn an_action_that_is_not_counted_is_checked_all_the_same() {
        let line = "8,0 0 1 0.000000000 1 D R 1 + [a]";
        assert_eq!(parse("D", &[line]), [None]);
        assert_eq!(parse("Q", &[line]), [None]);
        let other = "8,0 0 1 0.000000000 1 P N [a]";
        assert_eq!(parse("Q", &[other]), [Some(Record::Bookkeeping)]);
    }

    #[test]
    fn the_summary_is_read_over() {
        let lines = [
            "Input file q.blktrace.0 added",
            "",
            "CPU0 (q):",
            " Reads Queued:          40,     1328KiB",
            "Events (q): 644 entries",
        ];
        let head = b"Input file q.blktrace.0 added\n\n8,0 0 1 0.000000000 1 Q R 1 + 8 [a]\n";
        assert!(starts_with(head));
        let glued = [lines[2], "8,0 0 1 0.000000000 1 Q R 1 + 8 [a]"];
        assert_eq!(parse("Q", &glued), [Some(Record::Bookkeeping), None]);
        assert!(
            parse("Q", &lines)
                .iter()
                .all(|it| *it == Some(Record::Bookkeeping))
        );
    }
}
