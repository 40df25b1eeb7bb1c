//! What is written in a format is read back equal.

use std::time::Duration;

use mr_lab::trace::{Format, Io, Skipped};
use proptest::prelude::*;

use crate::writers::{self, Entry, RATE, What, entries};

const ALL: &[What] = &[
    What::Read,
    What::Write,
    What::Trim,
    What::Flush,
    What::NonIo,
];
const FIO: &[What] = &[What::Read, What::Write, What::Trim, What::Flush];
const MSR: &[What] = &[What::Read, What::Write];

fn read(bytes: &[u8], buffer: usize) -> (Format, Vec<Io>, Skipped) {
    let mut trace = writers::open(bytes, buffer).unwrap();
    let ios = trace.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(trace.clamped(), 0);
    (trace.format(), ios, trace.skipped())
}

fn check(bytes: &[u8], buffer: usize, format: Format, entries: &[Entry], unit: Duration) {
    let (ios, skipped) = writers::expected(entries, unit);
    assert_eq!(read(bytes, buffer), (format, ios, skipped));
}

proptest! {
    #[test]
    fn fio_version_3(entries in entries(FIO), buffer in 1..100_usize) {
        let unit = Duration::from_micros(1);
        check(&writers::fio(&entries, 3), buffer, Format::FioV3, &entries, unit);
    }

    #[test]
    fn fio_version_2(entries in entries(FIO), buffer in 1..100_usize) {
        let (format, ios, skipped) = read(&writers::fio(&entries, 2), buffer);
        let (expected, expected_skipped) = writers::expected(&entries, Duration::from_micros(1));
        prop_assert_eq!((format, skipped), (Format::FioV2, expected_skipped));
        let what = |ios: &[Io]| ios.iter().map(|io| (io.bytes, io.kind)).collect::<Vec<_>>();
        prop_assert_eq!(what(&ios), what(&expected));
        // An I/O without data takes its turn, too.
        let turns = entries.iter().filter(|it| matches!(it.what, What::Read | What::Write));
        let ticks = (0_u64..).zip(turns).filter(|(_, it)| it.sectors > 0).map(|(tick, _)| tick);
        let ticks = ticks.collect::<Vec<_>>();
        for (io, tick) in ios.iter().zip(&ticks) {
            let exact = (tick - ticks[0]) as f64 / f64::from(RATE);
            prop_assert!((io.at.as_secs_f64() - exact).abs() < 2e-9, "{io:?}, tick {tick}");
        }
    }

    #[test]
    fn vscsi(entries in entries(ALL), buffer in 1..100_usize) {
        let unit = Duration::from_micros(1);
        check(&writers::vscsi(&entries), buffer, Format::Vscsi, &entries, unit);
    }

    #[test]
    fn msr(entries in entries(MSR), buffer in 1..100_usize, header: bool, crlf: bool) {
        let mut text = String::from_utf8(writers::msr(&entries)).unwrap();
        if header {
            text.insert_str(0, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n");
        }
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        check(text.as_bytes(), buffer, Format::Msr, &entries, Duration::from_nanos(100));
    }

    #[test]
    fn blkparse_counts_an_io_once_whatever_actions_are_there(
        entries in entries(ALL),
        buffer in 1..100_usize,
        first in 0..5_usize,
    ) {
        let unit = Duration::from_nanos(1);
        check(&writers::blkparse(&entries, first), buffer, Format::Blkparse, &entries, unit);
    }
}
