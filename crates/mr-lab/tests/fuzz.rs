//! Hostile files: traces, recordings of them, and presets by path. No panic, bounded memory, and
//! what the documentation of the readers promises.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

use mr_fuzz::Fuzz;
use mr_lab::recording::Recording;
use mr_lab::scenario::{Load, Scenario};
use mr_lab::sim;
use mr_lab::trace::{self, Io, Options, Skipped, TraceError};
use mr_mock::Preset;
use std::fs;
use std::io::BufReader;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

const TRACES: Fuzz<'_> = Fuzz {
    name: "traces",
    corpus: &[concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/traces")],
    words: &[
        "fio version 2 iolog\n",
        "fio version 3 iolog\n",
        "add",
        "open",
        "close",
        "read",
        "write",
        "trim",
        "sync",
        "datasync",
        "wait",
        "Read",
        "Write",
        ",",
        " ",
        "\t",
        "\n",
        "\r\n",
        "Timestamp,",
        "usr",
        "8,0",
        "253,0",
        "0.000000001",
        "Q",
        "G",
        "I",
        "D",
        "C",
        "A",
        "X",
        "R",
        "W",
        "FWS",
        "FN",
        "N",
        "DS",
        "+",
        "<-",
        "(253,0)",
        "(12",
        "[a]",
        "CPU0 (",
        "Total (",
        "Input file ",
        "\u{0}",
        "\u{fffd}",
        "(\u{0}\u{0}\u{1}",
        "8,0 0 1 0.000000000 1 Q R 0 + 8 [a]\n",
        "8,0 0 1 0.000000000 1 D R 0 + 8 [a]\n",
        "1,h,0,Read,0,512,1\n",
        "1 d read 0 4096\n",
    ],
    longest: 4096,
    cost: 2,
    // What the readers promise is 64 KiB of the head, a line of 8 KiB and small tables; beside them
    // this test keeps the I/Os.
    most_bytes: |len| 256 * 1024 + 64 * len,
};

/// The same files, read by path and simulated.
const RECORDINGS: Fuzz<'_> = Fuzz {
    name: "recordings",
    cost: 10,
    // The simulation has a device, a pool and its histograms.
    most_bytes: |_| 8 << 20,
    ..TRACES
};

const PRESETS: Fuzz<'_> = Fuzz {
    name: "presets by path",
    corpus: &[
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../mr-mock/tests/corpus/presets"
        ),
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/traces"),
    ],
    words: &[
        "\u{0}",
        "extends",
        "=",
        "\"connectx-3\"",
        "\n",
        "{ value = ",
        "\u{e9}",
    ],
    longest: 8192,
    cost: 20,
    most_bytes: |len| 2 * 1024 * 1024 + 128 * len,
};

/// What a reader makes of a file.
struct Read {
    ios: Vec<Io>,
    skipped: Skipped,
    counted: Option<&'static str>,
    error: Option<TraceError>,
}

fn options() -> Options {
    let rate = NonZeroU32::new(1000);
    Options {
        rate,
        ..Options::default()
    }
}

fn read(bytes: &[u8], buffer: usize) -> Read {
    let reader = BufReader::with_capacity(buffer, bytes);
    let mut read = Read {
        ios: Vec::new(),
        skipped: Skipped::default(),
        counted: None,
        error: None,
    };
    let mut trace = match trace::from_reader("hostile", reader, options()) {
        Ok(trace) => trace,
        Err(error) => {
            read.error = Some(error);
            return read;
        }
    };
    for io in trace.by_ref() {
        match io {
            Ok(io) => read.ios.push(io),
            Err(error) => read.error = Some(error),
        }
    }
    assert!(trace.next().is_none(), "the end is the end");
    read.skipped = trace.skipped();
    read.counted = trace.counted_action();
    read
}

/// Where an error of the content lies.
fn offset(error: &TraceError) -> Option<u64> {
    match error {
        TraceError::Malformed { at, .. }
        | TraceError::Truncated { at, .. }
        | TraceError::LineTooLong { at, .. }
        | TraceError::StepsBack { at, .. }
        | TraceError::Gap { at, .. } => Some(at.offset),
        _ => None,
    }
}

#[test]
fn a_hostile_trace_is_read_as_far_as_it_is_one() {
    TRACES.run(|input| {
        let whole = read(input, 64 * 1024);
        assert!(whole.ios.is_sorted_by_key(|io| io.at));
        assert!(whole.ios.iter().all(|io| io.bytes > 0));
        assert!(whole.ios.len() as u64 + whole.skipped.total() <= input.len() as u64);
        let in_pieces = read(input, 7);
        assert_eq!(whole.ios, in_pieces.ios, "whatever the reader's buffer");
        let Some(error) = whole.error else {
            return;
        };
        assert!(error.to_string().len() < 2048);
        let Some(offset) = offset(&error) else {
            return;
        };
        // "Cutting the file at that offset leaves what comes before it, which reads to its end."
        let cut = read(&input[..offset as usize], 4096);
        if matches!(cut.error, Some(TraceError::Unrecognised { .. })) {
            assert_eq!((whole.ios.len(), whole.skipped.total()), (0, 0));
            return;
        }
        // What is behind the cut may have said which of blkparse's actions to count. The times of another may
        // not be believed.
        let steps = matches!(
            cut.error,
            Some(TraceError::StepsBack { .. } | TraceError::Gap { .. })
        );
        if cut.counted != whole.counted && steps {
            return;
        }
        assert!(
            cut.error.is_none(),
            "{error}, and cut there: {:?}",
            cut.error
        );
        if cut.counted == whole.counted {
            assert_eq!((cut.ios, cut.skipped), (whole.ios, whole.skipped));
        }
    });
}

#[test]
fn a_hostile_recording_is_refused_or_simulated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hostile");
    let preset = Preset::named("connectx-5").unwrap();
    let preset = preset
        .with(&[("mpt_entries", "64"), ("mtt_lines", "64")])
        .unwrap();
    RECORDINGS.run(|input| {
        fs::write(&path, input).unwrap();
        for speed in [1e-6, 1.0, 1e6] {
            if let Ok(recording) = Recording::open(&path, options(), speed) {
                replay(recording, &preset);
            }
        }
    });
}

fn replay(recording: Recording, preset: &Preset) {
    let summary = recording.summary();
    assert!(summary.ios > 0 && summary.largest > 0);
    assert!(summary.bytes >= summary.largest && recording.duration() >= Duration::ZERO);
    let scenario = Scenario {
        load: Load::Recorded(recording),
        regions: 16,
        hot_keys: 1,
        ..Scenario::default()
    };
    let simulated = sim::run(&scenario, preset, &"use-once,threshold=4".parse().unwrap());
    if let Err(error) = simulated {
        assert_eq!(error.exit_code(), 2, "the file's fault: {error}");
    }
}

#[test]
fn a_hostile_preset_by_path_is_refused_or_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hostile.toml");
    PRESETS.run(|input| {
        fs::write(&path, input).unwrap();
        let (code, out, err) = show(&path);
        assert!(matches!(code, 0 | 2), "{code}: {err}");
        assert_eq!(code == 0, err.is_empty() && !out.is_empty(), "{err}");
        assert!(err.len() < 4096 + 12 * input.len());
    });
}

fn show(path: &Path) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = ["mr-lab".into(), "presets".into(), path.into()];
    let code = mr_lab::cli::main(args, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}
