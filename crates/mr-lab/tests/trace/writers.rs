//! Writers of every format, and a generated trace to write.

use std::fmt::Write;
use std::io::BufReader;
use std::num::NonZeroU32;
use std::time::Duration;

use mr_lab::trace::{self, Io, Kind, Options, Skipped, Trace, TraceError};
use proptest::prelude::*;

/// I/Os per second of version 2 logs in these tests.
pub(crate) const RATE: u32 = 3000;

/// One entry of a generated trace: an I/O or something to skip, `gap` units of the format's clock after the previous one.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) gap: u32,
    /// In sectors, so that every format can say it; 0 is an I/O without data.
    pub(crate) sectors: u32,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    Write,
    Trim,
    Flush,
    NonIo,
}

impl What {
    fn kind(self) -> Option<Kind> {
        match self {
            Self::Read => Some(Kind::Read),
            Self::Write => Some(Kind::Write),
            Self::Trim | Self::Flush | Self::NonIo => None,
        }
    }
}

/// A trace of up to 60 entries; `kinds` are those which the format can say.
pub(crate) fn entries(kinds: &'static [What]) -> impl Strategy<Value = Vec<Entry>> {
    let entry = (any::<u32>(), 0..5000_u32, prop::sample::select(kinds)).prop_map(
        |(gap, sectors, what)| Entry {
            // Skewed to small gaps: most I/Os come close together.
            gap: gap >> (gap % 32),
            sectors,
            what,
        },
    );
    prop::collection::vec(entry, 1..60)
}

/// What a reader must make of the entries, with a clock of `unit`.
pub(crate) fn expected(entries: &[Entry], unit: Duration) -> (Vec<Io>, Skipped) {
    let (mut ios, mut skipped) = (Vec::new(), Skipped::default());
    let (mut now, mut first) = (Duration::ZERO, None);
    for entry in entries {
        now += unit * entry.gap;
        match entry.what.kind() {
            Some(_) if entry.sectors == 0 => skipped.zero_length += 1,
            Some(kind) => ios.push(Io {
                at: now - *first.get_or_insert(now),
                bytes: u64::from(entry.sectors) * 512,
                kind,
            }),
            None => match entry.what {
                What::Trim => skipped.trim += 1,
                What::Flush => skipped.flush += 1,
                _ => skipped.non_io += 1,
            },
        }
    }
    (ios, skipped)
}

pub(crate) fn fio(entries: &[Entry], version: u32) -> Vec<u8> {
    let mut text = format!("fio version {version} iolog\n");
    let mut now = 7_u64;
    let mut line = |now: u64, rest: &str| {
        if version == 3 {
            write!(text, "{now} ").unwrap();
        }
        writeln!(text, "{rest}").unwrap();
    };
    line(now, "/data/a add");
    line(now, "/data/a open");
    for entry in entries {
        now += u64::from(entry.gap);
        let action = match entry.what {
            What::Read => "read",
            What::Write => "write",
            What::Trim => "trim",
            _ => "sync",
        };
        let bytes = u64::from(entry.sectors) * 512;
        line(now, &format!("/data/a {action} {} {bytes}", now * 512));
    }
    line(now, "/data/a close");
    text.into_bytes()
}

pub(crate) fn vscsi(entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut now = 5_633_898_368_802_u64;
    for (serial, entry) in (0_u32..).zip(entries) {
        now += u64::from(entry.gap);
        let operation: u16 = match entry.what {
            What::Read => 0x28,
            What::Write => 0x2a,
            What::Trim => 0x42,
            What::Flush => 0x35,
            What::NonIo => 0x12,
        };
        file.extend(serial.to_le_bytes());
        file.extend((entry.sectors * 512).to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        file.extend(operation.to_le_bytes());
        file.extend(0x0100_u16.to_le_bytes());
        file.extend((now * 3).to_le_bytes());
        file.extend(now.to_le_bytes());
    }
    file
}

pub(crate) fn msr(entries: &[Entry]) -> Vec<u8> {
    let mut text = String::new();
    let mut now = 128_166_372_003_061_629_u64;
    for entry in entries {
        now += u64::from(entry.gap);
        let kind = match entry.what {
            What::Read => "Read",
            _ => "Write",
        };
        let bytes = u64::from(entry.sectors) * 512;
        writeln!(text, "{now},usr,0,{kind},{},{bytes},41286", now % 4096).unwrap();
    }
    text.into_bytes()
}

/// Every entry under the actions Q, G, I, D and C from `first` on, in blkparse's own layout.
pub(crate) fn blkparse(entries: &[Entry], first: usize) -> Vec<u8> {
    let mut text = String::new();
    let (mut now, mut sequence) = (0_u64, 0);
    for entry in entries {
        now += u64::from(entry.gap);
        let rwbs = match entry.what {
            What::Read => "RA",
            What::Write => "WS",
            What::Trim => "DS",
            What::Flush => "FN",
            What::NonIo => "N",
        };
        for action in &["Q", "G", "I", "D", "C"][first..] {
            sequence += 1;
            let (seconds, nanos) = (now / 1_000_000_000, now % 1_000_000_000);
            write!(
                text,
                "{:3},{:<3} {:2} {sequence:8} {seconds:5}.{nanos:09} {:5} {action:>2} {rwbs:>3} ",
                8, 0, 1, 697
            )
            .unwrap();
            let who = if *action == "C" { "0" } else { "my app" };
            let sector = now % 100_000;
            match entry.sectors {
                0 => writeln!(text, "[{who}]").unwrap(),
                sectors => writeln!(text, "{sector} + {sectors} [{who}]").unwrap(),
            }
        }
    }
    text.push_str("CPU0 (8,0):\n Reads Queued:  1,  4KiB\n\nEvents (8,0): 1 entries\n");
    text.into_bytes()
}

/// Opens bytes through a buffer of a given size, so that lines and records lie across its ends.
pub(crate) fn open(bytes: &[u8], buffer: usize) -> Result<Trace<BufReader<&[u8]>>, TraceError> {
    let options = Options {
        rate: NonZeroU32::new(RATE),
        ..Options::default()
    };
    trace::from_reader("made", BufReader::with_capacity(buffer, bytes), options)
}
