//! Hostile preset files and changes: no panic, bounded memory and messages, and what is accepted makes
//! a device that works.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{Memory, map};
use mr_core::{KeyScope, MrBackend};
use mr_fuzz::Fuzz;
use mr_mock::{MockHca, Preset, PresetError};

const WORDS: &[&str] = &[
    "name = ",
    "summary = ",
    "extends = ",
    "\"connectx-3\"",
    "\"connectx-2008\"",
    "value",
    "evidence",
    "source",
    "{ value = ",
    " }",
    "\"stated\"",
    "\"given\"",
    "[",
    "]",
    "=",
    ".",
    ",",
    "#",
    "\"",
    "'",
    "\"\"\"",
    "\n",
    "\r\n",
    "_",
    "-",
    "+",
    "0x",
    "1e9",
    "nan",
    "true",
    "false",
    "1979-05-27",
    "\u{0}",
    "\u{e9}",
    "\u{1f980}",
    "fence = \"global\"",
    "fence = \"per-key\"",
    "remap = \"impossible\"",
    "remap = \"kills-previous\"",
    "remap = \"leaves-previous\"",
    "cache_tag = \"index\"",
    "key_scope = \"connection\"",
    "soft_invalidate = ",
    "tag_bits = ",
    "max_regions = ",
    "max_pages = ",
    "page_bytes = ",
    "max_batch = ",
    "link_bytes_per_s = ",
    "mtu_bytes = ",
    "miss_overlap = ",
    "mpt_entries = ",
    "mpt_ways = ",
    "mtt_lines = ",
    "mtt_ways = ",
    "mtt_line_pages = ",
    "map_inline_pages = ",
    "sync_ns = ",
    "stall_ns = ",
    "alloc_ns = ",
];

const FILES: Fuzz<'_> = Fuzz {
    name: "preset files",
    corpus: &[
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/presets"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/presets"),
    ],
    words: WORDS,
    longest: 16 * 1024,
    cost: 2,
    most_bytes: |len| 512 * 1024 + 128 * len,
};

const CHANGES: Fuzz<'_> = Fuzz {
    name: "changes of presets",
    corpus: &[concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/changes")],
    words: WORDS,
    longest: 512,
    cost: 2,
    most_bytes: |len| 512 * 1024 + 128 * len,
};

/// Entries of a cache table that is small enough to be made thousands of times.
const SMALL: u64 = 1024;

#[test]
fn a_hostile_file_is_refused_with_its_place_or_makes_a_device() {
    let memory = Memory::new(256);
    FILES.run(|input| {
        let text = String::from_utf8_lossy(input);
        match Preset::parse("hostile.toml", &text) {
            Ok(preset) => check_accepted(&preset, &memory),
            Err(error) => check_refused(&error, &text),
        }
    });
}

#[test]
fn a_hostile_change_is_refused_or_makes_a_device() {
    let memory = Memory::new(256);
    let base = Preset::named("connectx-3").unwrap();
    CHANGES.run(|input| {
        let text = String::from_utf8_lossy(input);
        let changes: Vec<_> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .collect();
        match base.clone().with(&changes) {
            Ok(preset) => check_accepted(&preset, &memory),
            Err(error) => check_refused(&error, &text),
        }
    });
}

fn check_refused(error: &PresetError, text: &str) {
    assert!(!error.message.is_empty());
    // A word of the text is quoted, escaped, and beside it stands what is allowed.
    assert!(error.to_string().len() < 4096 + 12 * text.len());
    if let Some((line, column)) = error.place {
        assert!(line <= text.split('\n').count() && column <= text.chars().count() + 1);
    }
}

/// The figures can be written down and are read as the same, and a small device does its work.
fn check_accepted(preset: &Preset, memory: &Memory) {
    let mut written = String::new();
    for figure in preset.figures() {
        let bare = figure.value.parse::<u64>().is_ok() || figure.value.parse::<bool>().is_ok();
        let quote = if bare { "" } else { "\"" };
        written += &format!("{} = {quote}{}{quote}\n", figure.name, figure.value);
    }
    let again = Preset::parse("written.toml", &written).unwrap();
    for (first, second) in preset.figures().iter().zip(again.figures()) {
        assert_eq!((first.name, &first.value), (second.name, &second.value));
    }
    if preset.mpt_entries.value.max(preset.mtt_lines.value) <= SMALL {
        work(&MockHca::new(preset), preset.key_scope.value, memory);
    }
}

fn work(hca: &MockHca, scope: KeyScope, memory: &Memory) {
    let capabilities = hca.capabilities();
    assert!(capabilities.max_batch >= 1 && capabilities.max_regions >= 1);
    let (peer, other) = (hca.connect(), hca.connect());
    let hca = hca.for_connection(&peer).unwrap();
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, memory, 7).remote;
    assert!(peer.write(key, 0, &[1; 64]).is_ok());
    let written = other.write(key, 0, &[1; 64]).is_ok();
    assert_eq!(written, scope == KeyScope::ProtectionDomain);
    hca.invalidate(&mut [&mut region]).unwrap();
    for peer in [peer, other] {
        peer.recover();
        assert!(peer.write(key, 0, &[1]).is_err());
    }
    assert!(hca.dealloc(region).is_ok());
}
