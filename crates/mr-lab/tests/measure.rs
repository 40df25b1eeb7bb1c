//! `mr-lab measure` on a device: what it answers. `cargo xtask hw` runs this.

#![allow(clippy::unwrap_used, reason = "a failing test is meant to stop")]

use serde_json::Value;
use std::io::{Write, stderr};

/// Runs a command in this process: there is no `mr-lab` beside the test in a virtual machine.
fn mr_lab(args: &[&str]) -> (u8, String, String) {
    let args = std::iter::once("mr-lab").chain(args.iter().copied());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = mr_lab::cli::main(args.map(Into::into), &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

fn has_device(test: &str) -> bool {
    let has = std::env::var_os("MR_VERBS_DEVICE").is_some();
    if !has {
        let _ = writeln!(
            stderr(),
            "{test}: SKIPPED, no RDMA device (run `cargo xtask hw`)"
        );
    }
    has
}

const SMALL: [&str; 15] = [
    "measure",
    "--size",
    "4KiB",
    "--ios",
    "24",
    "--batch",
    "8",
    "--depth",
    "3",
    "--rounds",
    "1",
    "--regions",
    "8",
    "--format",
    "json",
];

fn measured(more: &[&str]) -> Value {
    let (code, out, err) = mr_lab(&[&SMALL, more].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn each_mechanism_is_measured() {
    if !has_device("each_mechanism_is_measured") {
        return;
    }
    for (mechanism, steps) in [
        (&["--backend", "reg"][..], 8),
        (&["--backend", "mw1"], 8),
        (&["--backend", "mw2"], 10),
        (&["--backend", "mw2", "--chained"], 16),
    ] {
        let policies = ["--policy", "immediate", "--policy", "threshold=6"];
        let answer = measured(&[mechanism, &policies].concat());
        let alone = answer["alone"].as_array().unwrap();
        assert_eq!(alone.len(), steps, "{mechanism:?}");
        assert!(
            alone
                .iter()
                .all(|step| step["wall_us_per_io"].as_f64().unwrap() > 0.0)
        );
        assert!(answer["ratios"]["waited"].as_f64().unwrap() > 0.0);

        let rows = answer["rows"].as_array().unwrap();
        let [registration, immediate, threshold] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!(registration["backend"], "registration");
        assert_eq!(registration["registration_ratio"], 1.0);
        // An invalidation by the release itself is no flush.
        assert_eq!(immediate["flushes"], 0.0);
        assert!(immediate["key_seconds"].as_f64().unwrap() > 0.0);
        let flushes = threshold["flushes"].as_f64().unwrap();
        // At most eight regions a flush, and the last eight may still be stale.
        assert!((2.0..=4.0).contains(&flushes), "{flushes}");
        assert!(threshold["exposure_s"]["max"].as_f64() > immediate["exposure_s"]["mean"].as_f64());
        assert!(threshold["throughput_mb_s"].as_f64().unwrap() > 0.0);
    }
}

/// The mock takes what is printed, but for what was lost in the noise of one short round.
#[test]
fn figures_for_a_preset_are_lines_of_its_file() {
    if !has_device("figures_for_a_preset_are_lines_of_its_file") {
        return;
    }
    // The default policies hold in so many regions.
    let small = [
        "measure", "--preset", "--ios", "24", "--batch", "8", "--rounds", "1", "--rate", "1000",
    ];
    let (code, out, err) = mr_lab(&small);
    assert_eq!((code, err.as_str()), (0, ""));
    for name in ["packet_ns", "map_hca_ns", "doorbell_ns", "map_ns"] {
        assert!(out.contains(name), "{name} is missing:\n{out}");
    }
    let head = "name = \"mine\"\nsummary = \"measured\"\nextends = \"soft-roce\"\n";
    let preset = mr_mock::Preset::parse("mine.toml", &format!("{head}{out}")).unwrap();
    assert!(preset.packet_ns.value > 0, "{out}");
}

#[test]
fn a_policy_that_cannot_hold_is_refused() {
    if !has_device("a_policy_that_cannot_hold_is_refused") {
        return;
    }
    let (code, out, err) = mr_lab(&[&SMALL[..], &["--policy", "threshold=9"]].concat());
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("threshold"), "{err}");
}

#[test]
fn a_device_that_there_is_not_is_said() {
    let (code, out, err) = mr_lab(&[&SMALL[..], &["--device", "no-such-device"]].concat());
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.starts_with("mr-lab: measuring: "), "{err}");
}
