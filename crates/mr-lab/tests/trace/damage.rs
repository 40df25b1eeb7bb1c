//! Cut, corrupt and hostile files: an error at the right place or a correct beginning, never a panic.

use std::ops::Range;

use mr_lab::trace::{Io, TraceError};
use proptest::prelude::*;

use crate::writers::{self, Entry, What};

/// Small files of every format, with the ends of their lines or records.
fn small_files() -> Vec<(&'static str, Vec<u8>, Vec<usize>)> {
    let kinds = [
        What::Read,
        What::Write,
        What::Trim,
        What::Flush,
        What::NonIo,
    ];
    let entries = (0..300_u32).map(|k| Entry {
        gap: 1 + k % 70,
        sectors: k % 130,
        what: kinds[k as usize % kinds.len()],
    });
    let entries = entries.collect::<Vec<_>>();
    let vscsi = writers::vscsi(&entries);
    let mut files = vec![(
        "vscsi",
        vscsi[..2048].to_vec(),
        (32..=2048).step_by(32).collect(),
    )];
    let samples: [(&str, &[u8]); 5] = [
        (
            "random-read-4k.log",
            include_bytes!("../traces/random-read-4k.log"),
        ),
        (
            "sequential-write-1m.v2.log",
            include_bytes!("../traces/sequential-write-1m.v2.log"),
        ),
        (
            "blkparse-null-blk.txt",
            include_bytes!("../traces/blkparse-null-blk.txt"),
        ),
        (
            "blkparse-issue-only.txt",
            include_bytes!("../traces/blkparse-issue-only.txt"),
        ),
        ("msr.csv", include_bytes!("../traces/msr.csv")),
    ];
    for (name, bytes) in samples {
        let ends = (0..bytes.len().min(2048))
            .filter(|&at| bytes[at] == b'\n')
            .map(|at| at + 1);
        let ends = ends.collect::<Vec<_>>();
        let end = *ends.last().unwrap();
        files.push((name, bytes[..end].to_vec(), ends));
    }
    files
}

/// The I/Os before the end or the first error, and that error.
fn read(bytes: &[u8]) -> (Vec<Io>, Option<TraceError>) {
    let mut trace = match writers::open(bytes, 4096) {
        Ok(trace) => trace,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut ios = Vec::new();
    for io in trace.by_ref() {
        match io {
            Ok(io) => ios.push(io),
            Err(error) => {
                assert!(trace.next().is_none(), "the iterator ends after an error");
                return (ios, Some(error));
            }
        }
    }
    (ios, None)
}

/// The line or record, by number from 1 and range, in which a byte lies.
fn unit_at(ends: &[usize], byte: usize) -> (u64, Range<usize>) {
    let index = ends.partition_point(|&end| end <= byte);
    let start = if index == 0 { 0 } else { ends[index - 1] };
    (index as u64 + 1, start..ends[index])
}

#[test]
fn every_cut_ends_cleanly_at_a_boundary_or_names_the_place() {
    for (name, bytes, ends) in small_files() {
        let (whole, error) = read(&bytes);
        assert!(error.is_none() && !whole.is_empty(), "{name}: {error:?}");
        for cut in 0..bytes.len() {
            let (ios, error) = read(&bytes[..cut]);
            assert!(whole.starts_with(&ios), "{name}, cut at {cut}");
            let (number, unit) = unit_at(&ends, cut);
            match error {
                None => assert!(cut > 0 && cut == unit.start, "{name}, cut at {cut}"),
                Some(TraceError::Unrecognised { .. }) => {
                    assert_eq!(number, 1, "{name}, cut at {cut}")
                }
                Some(TraceError::Truncated { at, got, .. }) => {
                    assert_eq!(
                        (at.number, at.offset),
                        (number, unit.start as u64),
                        "{name}, cut at {cut}"
                    );
                    assert_eq!((at.name.as_str(), got), ("made", cut - unit.start));
                }
                Some(other) => panic!("{name}, cut at {cut}: {other}"),
            }
        }
    }
}

#[test]
fn a_broken_byte_is_reported_in_its_line_or_record() {
    for (name, bytes, ends) in small_files() {
        for (byte, bad) in (0..bytes.len()).flat_map(|at| [(at, b'\n'), (at, 0xff), (at, b'Q')]) {
            let mut broken = bytes.clone();
            broken[byte] = bad;
            let (_, error) = read(&broken);
            if let Some(TraceError::Malformed { at, .. }) = error {
                let (_, unit) = unit_at(&ends, byte);
                // A line feed put in makes the rest of the line one of its own, which may begin right after it.
                let place = unit.start as u64..=byte as u64 + 1;
                assert!(
                    place.contains(&at.offset),
                    "{name}, byte {byte} set to {bad}: {at}"
                );
            }
        }
    }
}

#[test]
fn errors_name_file_place_and_what_was_expected() {
    let cases: [(&[u8], &str); 5] = [
        (
            b"fio version 3 iolog\n1 d add\n2 d raed 0 4096\n",
            "made: line 3 at byte offset 28: expected MICROSECONDS FILE add|open|close, or",
        ),
        (
            b"1,h,0,Read,0,512,1\n2,h,0,Read,0,5",
            "made: line 2 at byte offset 19: expected a line feed at the end of the line, but the file ends after 14 bytes",
        ),
        (
            b"999999999,h,0,Read,0,512,1\n1,h,0,Read,0,512,1\n",
            "made: line 2 at byte offset 27: expected times in order, but this one is 99.9999998s before",
        ),
        (
            b"1,h,0,Read,0,512,1\n9999999999999,h,0,Read,0,512,1\n",
            "made: line 2 at byte offset 19: expected the next I/O within 86400s, but this one is 999999.9999998s later",
        ),
        (b"", "made: the file is empty"),
    ];
    for (bytes, start) in cases {
        let message = read(bytes).1.unwrap().to_string();
        assert!(message.starts_with(start), "{message}");
    }
    let mut long = b"fio version 3 iolog\n".to_vec();
    long.resize(20_000, b'x');
    let message = read(&long).1.unwrap().to_string();
    assert!(
        message
            .starts_with("made: line 2 at byte offset 20: expected a line of at most 8192 bytes"),
        "{message}"
    );
}

/// Beginnings that get arbitrary bytes past the detection.
const BEGINNINGS: [&[u8]; 6] = [
    b"",
    b"fio version 2 iolog\n",
    b"fio version 3 iolog\n",
    b"1,h,0,Read,0,512,1\n",
    b"8,0 0 1 0.000000000 1 Q R 0 + 8 [a]\n",
    b"\x01\0\0\0\0\x02\0\0\x01\0\0\0\x28\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
];

/// Words of the formats, so that arbitrary lines get far into the parsers.
fn wordy() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "0",
        "1",
        "8",
        "18446744073709551615",
        "8,0",
        "253,0",
        "0.000000001",
        "Q",
        "D",
        "A",
        "R",
        "FWS",
        "N",
        "+",
        "<-",
        "(253,0)",
        "(12",
        "[a]",
        "d",
        "read",
        "write",
        "wait",
        "trim",
        "sync",
        "open",
        "Read",
        ",",
        "\n",
        "\n",
        "\r\n",
        "\u{fffd}",
        "CPU0 (",
        "Total (",
    ]);
    prop::collection::vec(words, 0..300).prop_map(|words| words.join(" ").into_bytes())
}

proptest! {
    #[test]
    fn arbitrary_content_never_panics(
        beginning in prop::sample::select(BEGINNINGS.to_vec()),
        rest in prop_oneof![prop::collection::vec(any::<u8>(), 0..2000), wordy()],
    ) {
        let bytes = [beginning, &rest].concat();
        let (ios, _) = read(&bytes);
        prop_assert!(ios.len() <= bytes.len());
        prop_assert!(ios.is_sorted_by_key(|io| io.at));
        prop_assert!(ios.iter().all(|io| io.bytes > 0));
    }
}
