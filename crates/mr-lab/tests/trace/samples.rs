//! The traces in `tests/traces`: recognised, and read as the tool that wrote them says.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use mr_lab::trace::{self, Format, Io, Kind, Options, Skipped, TraceError};

fn sample(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "traces", name]
        .iter()
        .collect()
}

struct Read {
    format: Format,
    counted: Option<&'static str>,
    ios: Vec<Io>,
    skipped: Skipped,
    clamped: u64,
}

impl Read {
    fn of(name: &str) -> Self {
        let options = Options {
            rate: NonZeroU32::new(100),
            ..Options::default()
        };
        let mut trace = trace::open(sample(name), options).unwrap();
        let ios = trace.by_ref().collect::<Result<_, _>>().unwrap();
        Self {
            format: trace.format(),
            counted: trace.counted_action(),
            ios,
            skipped: trace.skipped(),
            clamped: trace.clamped(),
        }
    }

    fn bytes(&self, kind: Kind) -> u64 {
        self.of_kind(kind).map(|io| io.bytes).sum()
    }

    fn count(&self, kind: Kind) -> usize {
        self.of_kind(kind).count()
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Io> {
        self.ios.iter().filter(move |io| io.kind == kind)
    }

    fn duration(&self) -> Duration {
        self.ios.last().unwrap().at
    }
}

fn is_near(duration: Duration, millis: u64) -> bool {
    let wanted = Duration::from_millis(millis);
    duration.abs_diff(wanted) * 20 < wanted
}

#[test]
fn fio_random_reads() {
    let read = Read::of("random-read-4k.log");
    assert_eq!(read.format, Format::FioV3);
    assert_eq!(read.count(Kind::Read), 1000);
    assert!(read.ios.iter().all(|io| io.bytes == 4096));
    // 1000 at 2000 a second, says the job: this and the next two hold the unit of fio's stamps.
    assert!(is_near(read.duration(), 500), "{:?}", read.duration());
}

#[test]
fn fio_mixed_sizes() {
    let read = Read::of("mixed-8k-64k.log");
    // What fio's own report of that run said: 18.3 MiB read, 9288 KiB written, in 1695 ms.
    assert_eq!(read.ios.len(), 800);
    assert_eq!(
        read.bytes(Kind::Read),
        (293 * 8 + 256 * 64) << 10,
        "18.29 MiB"
    );
    assert_eq!(read.bytes(Kind::Write), 9288 << 10);
    assert!(is_near(read.duration(), 1695), "{:?}", read.duration());
    assert!(
        read.ios
            .iter()
            .all(|io| [8 << 10, 64 << 10].contains(&io.bytes))
    );
    let think = Duration::from_micros(2000);
    assert!(
        read.ios
            .windows(2)
            .all(|pair| pair[1].at - pair[0].at >= think)
    );
}

#[test]
fn fio_sequential_writes_in_both_versions() {
    let v3 = Read::of("sequential-write-1m.log");
    assert_eq!(
        (v3.count(Kind::Write), v3.bytes(Kind::Write)),
        (200, 200 << 20)
    );
    assert!(is_near(v3.duration(), 1990), "{:?}", v3.duration());
    let v2 = Read::of("sequential-write-1m.v2.log");
    assert_eq!((v3.format, v2.format), (Format::FioV3, Format::FioV2));
    assert_eq!(v2.bytes(Kind::Write), v3.bytes(Kind::Write));
    assert_eq!(v2.duration(), Duration::from_millis(1990));
}

#[test]
fn version_2_without_a_rate_is_an_error() {
    let error = trace::open(sample("sequential-write-1m.v2.log"), Options::default()).unwrap_err();
    assert!(matches!(error, TraceError::NeedsRate { .. }), "{error}");
}

#[test]
fn blkparse_splits_and_merges_are_counted_as_queued() {
    let read = Read::of("blkparse-null-blk.txt");
    assert_eq!((read.format, read.counted), (Format::Blkparse, Some("Q")));
    // blkparse's summary: 40 reads queued, 1328 KiB; 86 writes queued, 992 KiB, which counts the two discards of 64 KiB.
    assert_eq!(
        (read.count(Kind::Read), read.bytes(Kind::Read)),
        (40, 1328 << 10)
    );
    assert_eq!(read.count(Kind::Write), 84);
    assert_eq!(read.bytes(Kind::Write), (992 - 128) << 10);
    assert_eq!((read.skipped.trim, read.skipped.total()), (2, 2));
}

#[test]
fn blkparse_of_issues_only_has_the_same_bytes_in_smaller_requests() {
    let read = Read::of("blkparse-issue-only.txt");
    assert_eq!((read.format, read.counted), (Format::Blkparse, Some("D")));
    let queued = Read::of("blkparse-null-blk.txt");
    assert_eq!(read.bytes(Kind::Read), queued.bytes(Kind::Read));
    assert_eq!(
        read.count(Kind::Read),
        58,
        "dispatches, by the summary of the other file"
    );
    assert!(read.ios.iter().all(|io| io.bytes <= 32 << 10));
}

#[test]
fn msr_out_of_order_stamps_are_clamped() {
    let read = Read::of("msr.csv");
    assert_eq!(
        (read.format, read.ios.len(), read.clamped),
        (Format::Msr, 40, 2)
    );
    assert!(read.ios.is_sorted_by_key(|io| io.at));
}

#[test]
fn a_file_that_is_missing_or_no_trace_says_so() {
    let missing = trace::open(sample("absent"), Options::default()).unwrap_err();
    assert!(
        missing.to_string().contains("absent: cannot open"),
        "{missing}"
    );
    let readme = trace::open(sample("README.md"), Options::default()).unwrap_err();
    assert!(
        readme.to_string().contains("README.md: not a trace"),
        "{readme}"
    );
    let directory = trace::open(sample(""), Options::default()).unwrap_err();
    assert!(matches!(directory, TraceError::Read { .. }), "{directory}");
}
