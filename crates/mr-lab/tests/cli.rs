//! The command line: what it answers, and what it says to those who ask for what cannot be.

#![allow(clippy::unwrap_used, reason = "a failing test is meant to stop")]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn mr_lab(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mr-lab"));
    command.args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The answer of a command that succeeds without complaint.
fn answer(args: &[&str]) -> String {
    let output = mr_lab(args);
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    assert_eq!(errors, "", "no progress bar in a pipe");
    text(&output.stdout)
}

fn json(args: &[&str]) -> Value {
    let args = [args, &["--format", "json"]].concat();
    serde_json::from_str(&answer(&args)).unwrap()
}

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces")
        .join(name)
}

const SHORT: [&str; 4] = ["--duration", "2s", "--size", "4KiB"];

#[test]
fn the_default_command_compares() {
    let plain = answer(&SHORT);
    let named = answer(&[&["compare"], &SHORT[..]].concat());
    assert_eq!(plain, named);
    for part in [
        "connectx-2008",
        "connectx-5",
        "threshold=4000",
        "ko2iblnd",
        "n/a",
    ] {
        assert!(plain.contains(part), "{part} is missing:\n{plain}");
    }
}

#[test]
fn json_has_the_fields_that_programs_rely_on() {
    let document = json(&SHORT);
    assert_eq!(document["scenario"]["regions"], 5000);
    assert_eq!(document["scenario"]["max_age_s"], 3600.0);
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 25, "15 policies on one preset, 10 on the other");
    for row in rows {
        for field in ["policy", "preset"] {
            assert!(row[field].is_string(), "{field}: {row}");
        }
        for field in [
            "ios",
            "flushes",
            "flushes_per_s",
            "regions_per_flush",
            "tpt_misses_per_io",
            "hca_us_per_io",
            "cpu_us_per_io",
            "throughput_mb_s",
            "waits",
            "key_seconds",
            "pinned_bytes_peak",
        ] {
            assert!(row[field].is_number(), "{field}: {row}");
        }
        for (object, fields) in [
            ("latency_us", &["p50", "p99", "p999"][..]),
            ("stale_keys", &["mean", "max"]),
            ("exposure_s", &["mean", "max"]),
        ] {
            for field in fields {
                assert!(row[object][field].is_number(), "{object}.{field}: {row}");
            }
        }
        assert_eq!(row["ios"], 2000);
    }
    assert_eq!(document["skipped"].as_array().unwrap().len(), 5);
    // Every preset has somebody whom nobody beats.
    for preset in ["connectx-2008", "connectx-5"] {
        assert!(
            rows.iter()
                .any(|row| row["preset"] == preset && row["pareto"] == true)
        );
    }
}

#[test]
fn csv_has_as_many_fields_in_each_line() {
    let csv = answer(
        &[
            &SHORT[..],
            &[
                "--format",
                "csv",
                "--policy",
                "use-n=2,threshold=9",
                "--policy",
                "srp",
            ],
        ]
        .concat(),
    );
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].starts_with("connectx-2008,\"use-n=2,threshold=9\",2000,"));
    let fields = |line: &str| line.replace("n=2,t", "n=2;t").split(',').count();
    assert!(
        lines.iter().all(|line| fields(line) == fields(lines[0])),
        "{csv}"
    );
}

#[test]
fn the_scenario_can_be_said_number_by_number() {
    let row = |more: &[&str]| {
        let fixed = [
            "--policy",
            "threshold=50",
            "--preset",
            "connectx-3",
            "--duration",
            "3s",
        ];
        json(&[&fixed, more].concat())["rows"][0].clone()
    };
    let plain = row(&[]);
    assert_eq!(plain["ios"], 3000);
    assert_eq!(row(&["--rate", "100"])["ios"], 300);
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap();
    let smaller = row(&["--mtu", "1024"]);
    assert!(number(&smaller, "hca_us_per_io") > 2.0 * number(&plain, "hca_us_per_io"));
    let slower = row(&["--service-time", "20ms"]);
    assert!(slower["latency_us"]["p50"].as_f64() > Some(20_000.0));
    let changed = row(&["--set", "sync_ns=1000000", "--set", "map_ns=9000"]);
    assert!(number(&changed, "cpu_us_per_io") > number(&plain, "cpu_us_per_io") + 8.0);
    let bounded = row(&["--max-stale-bytes", "10MiB"]);
    assert!(bounded["stale_keys"]["max"].as_f64() < Some(15.0));
    let few = row(&["--regions", "60"]);
    assert!(few["exposure_s"]["max"].as_f64() < Some(0.06));
    let mixed = row(&[
        "--size",
        "4KiB:1,64KiB:1",
        "--arrival",
        "poisson",
        "--seed",
        "7",
    ]);
    assert_ne!(mixed["ios"], 3000);
    assert_eq!(
        mixed,
        row(&[
            "--size",
            "4KiB:1,64KiB:1",
            "--arrival",
            "poisson",
            "--seed",
            "7"
        ])
    );
}

#[test]
fn closed_forms_and_simulation_agree() {
    let table = answer(&[
        "--check",
        "--size",
        "4KiB",
        "--policy",
        "threshold=99",
        "--policy",
        "immediate",
        "--policy",
        "use-n=2",
    ]);
    assert!(table.contains("yes") && !table.contains("NO"), "{table}");
    let document = json(&["compare", "--check", "--size", "4KiB", "--policy", "rds"]);
    let row = &document["rows"][0];
    assert_eq!(
        (&row["policy"], &row["agrees"]),
        (&"rds".into(), &true.into())
    );
    assert_eq!(row["closed"]["regions_per_flush"], 500.0);
}

#[test]
fn a_sweep_has_a_row_for_each_point() {
    let document = json(
        &[
            &[
                "sweep",
                "--over",
                "threshold=10..1000",
                "--over",
                "sync-latency=30us,1ms",
                "--points",
                "3",
            ],
            &SHORT[..],
        ]
        .concat(),
    );
    let rows = document["rows"].as_array().unwrap();
    let points: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["point"]["threshold"].as_f64().unwrap(),
                row["point"]["sync-latency"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        points,
        [
            (10.0, 3e-5),
            (10.0, 1e-3),
            (100.0, 3e-5),
            (100.0, 1e-3),
            (1000.0, 3e-5),
            (1000.0, 1e-3)
        ]
    );
    assert_eq!(rows[2]["policy"], "threshold=100");
    let cost = |row: &Value| row["cost_us_per_io"].as_f64().unwrap();
    assert!(
        cost(&rows[1]) > cost(&rows[0]) + 90.0,
        "a tenth of a fence of 1 ms per I/O"
    );
    let caches = answer(&[&["sweep", "--over", "mtt-cache=64..256"], &SHORT[..]].concat());
    assert_eq!(caches.matches("mtt-cache=").count(), 3, "{caches}");
}

#[test]
fn traces_of_every_format_are_replayed() {
    for (name, ios, more) in [
        ("mixed-8k-64k.log", 400, &[][..]),
        ("sequential-write-1m.v2.log", 200, &["--rate", "1000"]),
        ("blkparse-null-blk.txt", 64, &[]),
        ("msr.csv", 40, &[]),
    ] {
        let path = trace(name);
        let args = [
            &["replay", path.to_str().unwrap(), "--policy", "threshold=8"],
            more,
        ]
        .concat();
        let document = json(&args);
        let load = &document["scenario"]["load"];
        let rows = document["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row["ios"], load["ios"], "{name}");
            assert!(row["ios"].as_u64() >= Some(ios), "{name}: {}", row["ios"]);
        }
    }
}

#[test]
fn a_faster_replay_is_shorter() {
    let path = trace("mixed-8k-64k.log");
    let elapsed = |speed| {
        let args = [
            "replay",
            path.to_str().unwrap(),
            "--policy",
            "rds",
            "--speed",
            speed,
            "--service-time",
            "0s",
        ];
        json(&args)["rows"][0]["elapsed_s"].as_f64().unwrap()
    };
    let ratio = elapsed("0.01") / elapsed("0.1");
    assert!((9.0..=10.1).contains(&ratio), "{ratio}");
}

#[test]
fn presets_tell_their_sources() {
    let list = answer(&["presets"]);
    assert!(
        list.contains("connectx-2008") && list.contains("soft-roce"),
        "{list}"
    );
    let figures = answer(&["presets", "connectx-3"]);
    assert!(
        figures.contains("sync_ns") && figures.contains("LITE"),
        "{figures}"
    );
}

#[test]
fn help_and_version_are_answers() {
    assert!(answer(&["--help"]).contains("use-n=N"));
    assert!(answer(&["sweep", "--help"]).contains("--over"));
    assert!(answer(&["--version"]).starts_with("mr-lab "));
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    for (args, reason) in [
        (&["--policy", "use-n=0"][..], "out of range"),
        (&["--policy", "use-n=256"], "from 1 to 255"),
        (&["--policy", "threshold=5001"], "from 1 to 5000"),
        (&["--policy", "use-once,use-n=32"], "only one of them"),
        (&["--policy", "sometimes"], "no such policy"),
        (
            &["--policy", "srp", "--preset", "connectx-5"],
            "must invalidate",
        ),
        (&["--regions", "0"], "--regions"),
        (&["--regions", "200000"], "--regions"),
        (&["--size", "0"], "at least 1 byte"),
        (&["--size", "1GiB"], "longer than a region"),
        (&["--size", "8KiB..4KiB"], "ends before"),
        (&["--rate", "0"], "--rate"),
        (&["--rate", "nan"], "--rate"),
        (&["--rate", "1000000000", "--duration", "1h"], "10^10"),
        (&["--duration", "0s"], "--duration"),
        (&["--duration", "10"], "unit"),
        (&["--arrival", "never"], "steady, poisson"),
        (&["--concurrency", "0"], "--concurrency"),
        (&["--max-age", "0s"], "--max-age"),
        (&["--mtu", "1000"], "mtu_bytes"),
        (&["--preset", "connectx-9"], "there are connectx-2008"),
        (&["--preset", "missing.toml"], "cannot be read"),
        (&["--set", "sync=1"], "there is no figure"),
        (&["--set", "sync_ns"], "FIGURE=VALUE"),
        (&["--preset", "soft-roce,soft-roce"], "another name"),
        (&["--check", "--arrival", "poisson"], "steady"),
        (&["--format", "xml"], "json"),
        (&["sweep"], "--over"),
        (&["sweep", "--over", "threshold=1..9999"], "from 1 to 5000"),
        (&["sweep", "--over", "luck=1..2"], "there is no parameter"),
        (
            &[
                "sweep",
                "--over",
                "threshold=1..4000",
                "--over",
                "use-n=1..255",
                "--points",
                "200",
            ],
            "10000 points",
        ),
        (&["replay", "missing.log"], "cannot open"),
        (&["replay", "Cargo.toml"], "Cargo.toml"),
        (&["presets", "connectx-9"], "no such preset"),
        (&["measure", "--size", "0"], "--size"),
        (&["measure", "--ios", "0"], "--ios"),
        (&["measure", "--batch", "4097"], "from 1 to 4096"),
        (&["measure", "--rounds", "0"], "--rounds"),
        (&["measure", "--regions", "0"], "--regions"),
        (&["measure", "--rate", "nan"], "--rate"),
        (&["measure", "--size", "64MiB"], "at most 1 GiB"),
        (&["measure", "--chained", "--backend", "mw1"], "mw2"),
        (&["measure", "--backend", "fmr"], "mw2"),
        (&["measure", "--preset", "--backend", "mw1"], "mw2"),
        (&["measure", "--preset", "--alone"], "cannot be used with"),
        (&["measure", "--policy", "sometimes"], "no such policy"),
        (
            &["measure", "--alone", "--policy", "use-once"],
            "cannot be used with",
        ),
        #[cfg(not(feature = "verbs"))]
        (&["measure"], "--features verbs"),
    ] {
        let output = mr_lab(args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(reason), "{args:?}: {errors}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    }
}

#[test]
fn a_damaged_trace_is_refused_with_its_place_and_leaves_the_answer_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let damaged = directory.path().join("damaged.log");
    let whole = fs::read(trace("mixed-8k-64k.log")).unwrap();
    fs::write(&damaged, &whole[..whole.len() - 3]).unwrap();
    let answer = directory.path().join("answer.json");
    fs::write(&answer, "yesterday's").unwrap();
    let args = [
        "replay",
        damaged.to_str().unwrap(),
        "--output",
        answer.to_str().unwrap(),
    ];
    let output = mr_lab(&args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("line 804 at byte offset"), "{errors}");
    assert_eq!(fs::read_to_string(&answer).unwrap(), "yesterday's");
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        2,
        "nothing is left behind"
    );
}

#[test]
fn an_answer_can_go_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("answer.csv");
    let args = [&SHORT[..], &["--policy", "rds", "--format", "csv"]].concat();
    let printed = answer(&args);
    let silent = answer(&[&args[..], &["--output", path.to_str().unwrap()]].concat());
    assert_eq!(silent, "");
    assert_eq!(fs::read_to_string(&path).unwrap(), printed);
    let nowhere = directory.path().join("no/such/place");
    let failed = mr_lab(&[&args[..], &["--output", nowhere.to_str().unwrap()]].concat());
    assert_eq!(failed.status.code(), Some(1));
}

#[test]
fn a_preset_file_is_read_and_its_faults_are_located() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    let args = [
        &SHORT[..],
        &["--policy", "immediate", "--preset", path.to_str().unwrap()],
    ]
    .concat();
    fs::write(
        &path,
        "name = \"mine\"\nextends = \"connectx-3\"\nsync_ns = 1000000\n",
    )
    .unwrap();
    let row = json(&args)["rows"][0].clone();
    assert_eq!(row["preset"], "mine");
    assert!(row["exposure_s"]["mean"].as_f64() > Some(1e-3));
    fs::write(&path, "extends = \"connectx-3\"\nsink_ns = 1\n").unwrap();
    let output = mr_lab(&args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors.contains("mine.toml:2:1") && errors.contains("sink_ns"),
        "{errors}"
    );
}

fn refused(args: &[&str]) -> String {
    let output = mr_lab(args);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    text(&output.stderr)
}

/// The sum over a trace with corrupt lengths overflowed.
#[test]
fn a_trace_with_more_bytes_than_can_be_counted_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("huge.csv");
    let line = format!("1,h,0,Read,0,{},1\n", u64::MAX);
    fs::write(&path, line.repeat(2)).unwrap();
    let message = refused(&["replay", path.to_str().unwrap()]);
    assert!(message.contains("a length is corrupt"), "{message}");
}

/// Virtual time ends after 584 years.
#[test]
fn a_replay_that_would_take_years_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slow.csv");
    let day = 86_400 * 10_000_000_u64;
    fs::write(
        &path,
        format!("1,h,0,Read,0,512,1\n{day},h,0,Read,0,512,1\n"),
    )
    .unwrap();
    let slow = ["replay", path.to_str().unwrap(), "--speed"];
    let message = refused(&[&slow[..], &["0.000001"]].concat());
    assert!(
        message.starts_with("mr-lab: --speed must be so high"),
        "{message}"
    );
}
