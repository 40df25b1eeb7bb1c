//! Texts of policies, for the tests that run over all of them.

use mr_policies::{Named, Policy};
use proptest::prelude::*;

/// One policy, in any of the ways in which it can be written.
pub(crate) fn clauses() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("immediate".to_owned()),
        Just("use-once".to_owned()),
        (1_u32..=255).prop_map(|n| format!("use-n={n}")),
        (1_u32..=40).prop_map(|m| format!("threshold={m}")),
        (1_u32..=100).prop_map(|m| format!("threshold={m}%")),
        (1_u64..8_000_000, sizes()).prop_map(|(m, unit)| format!("threshold={m}{unit}")),
        times().prop_map(|t| format!("periodic={t}")),
        times().prop_map(|t| format!("max-exposure={t}")),
        times().prop_map(|q| format!("adaptive={}", key(&q))),
        (times(), times()).prop_map(|(q, t)| format!("adaptive={}/{t}", key(&q))),
        prop::sample::select(Named::ALL.to_vec()).prop_map(|named| named.to_string()),
    ]
}

/// Combinations of one to four that do not contradict each other.
pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    prop::collection::vec(clauses(), 1..=4)
        .prop_map(|clauses| clauses.join(","))
        .prop_filter_map("a contradiction", |text| text.parse().ok())
}

fn sizes() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "B", "kB", "KiB", "MB", "MiB", "GB", "GiB", "TB", "TiB",
    ])
}

fn times() -> impl Strategy<Value = String> {
    let unit = prop::sample::select(vec!["s", "ms", "us", "ns"]);
    (1_u32..2000, unit).prop_map(|(number, unit)| format!("{number}{unit}"))
}

fn key(time: &str) -> String {
    let digits = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    format!("{digits}key-{}", &time[digits.len()..])
}
