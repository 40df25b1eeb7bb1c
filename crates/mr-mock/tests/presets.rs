//! Preset files: what is shipped, what a user may write, and what he is told when it is wrong.

use mr_core::{Fence, MrBackend, Remap};
use mr_mock::{CacheTag, Evidence, MockHca, Preset};
use proptest::prelude::*;

#[test]
fn every_shipped_preset_is_whole_and_says_where_it_is_from() {
    for name in Preset::names() {
        let preset = Preset::named(name).unwrap();
        assert_eq!(preset.name, name);
        assert!(!preset.summary.is_empty());
        let figures = preset.figures();
        assert_eq!(figures.len(), Preset::FIELDS.len());
        for figure in figures {
            assert_ne!(figure.evidence, Evidence::Given, "{name}: {}", figure.name);
            let sourced = !figure.source.is_empty() || figure.evidence == Evidence::Assumed;
            assert!(sourced, "{name}: {} comes from nowhere", figure.name);
            assert!(!figure.meaning.is_empty());
        }
        let capabilities = MockHca::new(&preset).capabilities();
        assert!(capabilities.max_batch >= 1 && capabilities.max_bytes >= 1 << 20);
    }
}

#[test]
fn the_two_mechanisms_are_there() {
    let fmr = MockHca::new(&Preset::named("connectx-2008").unwrap()).capabilities();
    assert_eq!(
        (fmr.fence, fmr.remap),
        (Fence::Global, Remap::LeavesPrevious)
    );
    assert!(fmr.soft_invalidate && !fmr.remote_invalidate);
    let frwr = MockHca::new(&Preset::named("connectx-5").unwrap()).capabilities();
    assert_eq!((frwr.fence, frwr.remap), (Fence::PerKey, Remap::Impossible));
    assert!(!frwr.soft_invalidate && frwr.remote_invalidate);
}

#[test]
fn a_file_can_say_everything_by_itself() {
    let base = Preset::named("connectx-3").unwrap();
    let mut text = String::from("name = \"whole\"\nsummary = \"all of it\"\n");
    for figure in base.figures() {
        let quote = match figure.value.parse::<u64>() {
            Ok(_) => "",
            Err(_) if ["true", "false"].contains(&&*figure.value) => "",
            Err(_) => "\"",
        };
        text += &format!("{} = {quote}{}{quote}\n", figure.name, figure.value);
    }
    let whole = Preset::parse("whole.toml", &text).unwrap();
    for (ours, theirs) in whole.figures().iter().zip(base.figures()) {
        assert_eq!(ours.value, theirs.value);
        assert_eq!(ours.evidence, Evidence::Given);
    }
    for missing in Preset::FIELDS {
        let without: String = text
            .lines()
            .filter(|line| !line.starts_with(&format!("{missing} =")))
            .map(|line| format!("{line}\n"))
            .collect();
        let error = Preset::parse("part.toml", &without).unwrap_err();
        assert!(error.message.contains(missing), "{error}");
    }
}

#[test]
fn a_file_overrides_what_it_extends() {
    let text = r#"
        extends = "connectx-3"
        cache_tag = "index"
        mtt_lines = { value = 1024, evidence = "derived", source = "64-byte reads" }
    "#;
    let mine = Preset::parse("mine.toml", text).unwrap();
    assert_eq!(mine.name, "mine.toml");
    assert_eq!(mine.cache_tag.value, CacheTag::Index);
    assert_eq!(mine.cache_tag.evidence, Evidence::Given);
    assert_eq!(mine.mtt_lines.value, 1024);
    assert_eq!(mine.mtt_lines.evidence, Evidence::Derived);
    assert_eq!(mine.mtt_lines.source, "64-byte reads");
    assert_eq!(mine.sync_ns, Preset::named("connectx-3").unwrap().sync_ns);
}

#[test]
fn a_fault_in_a_file_is_pointed_at() {
    let cases = [
        (
            "extends = \"connectx-3\"\nsink_ns = 1\n",
            Some((2, 1)),
            "sink_ns",
        ),
        (
            "extends = \"connectx-3\"\nsync_ns = \"fast\"\n",
            Some((2, 11)),
            "whole number",
        ),
        (
            "extends = \"connectx-3\"\nsync_ns = -1\n",
            Some((2, 11)),
            "whole number",
        ),
        (
            "extends = \"connectx-3\"\n  fence = \"local\"\n",
            Some((2, 11)),
            "\"per-key\"",
        ),
        (
            "extends = \"connectx-3\"\nfence = true\n",
            Some((2, 9)),
            "\"per-key\"",
        ),
        ("extends = \"connectx-9\"\n", Some((1, 11)), "connectx-2008"),
        (
            "extends = \"connectx-3\"\n\nmtu_bytes = 1500\n",
            Some((3, 13)),
            "power of two",
        ),
        (
            "extends = \"connectx-3\"\nmpt_entries = 100\n",
            Some((2, 15)),
            "mpt_ways (4)",
        ),
        (
            "extends = \"connectx-3\"\nmpt_ways = 0\n",
            Some((2, 12)),
            "from 1",
        ),
        (
            "extends = \"connectx-3\"\nmax_regions = 8_388_608\n",
            Some((2, 15)),
            "8388607",
        ),
        (
            "extends = \"connectx-3\"\ntag_bits = 7\n",
            Some((2, 12)),
            "0 or 8",
        ),
        (
            "extends = \"connectx-3\"\nsync_ns = 3600000000001\n",
            Some((2, 11)),
            "3600000000000",
        ),
        (
            "extends = \"connectx-3\"\nsync_ns = { value = 1, kind = 2 }\n",
            Some((2, 11)),
            "kind",
        ),
        (
            "extends = \"connectx-3\"\nsync_ns = { source = \"x\" }\n",
            Some((2, 11)),
            "value",
        ),
        (
            "extends = \"connectx-3\"\nsync_ns = 1\nsync_ns = 2\n",
            Some((3, 1)),
            "duplicate",
        ),
        ("extends = \"connectx-3\"\nsync_ns =\n", Some((2, 10)), ""),
        ("name = \"x\"\n", None, "fence is missing"),
        ("", None, "extends"),
    ];
    for (text, place, message) in cases {
        let error = Preset::parse("bad.toml", text).unwrap_err();
        assert_eq!(error.place, place, "{text}: {error}");
        assert!(error.message.contains(message), "{text}: {error}");
        assert!(error.to_string().starts_with("bad.toml"), "{error}");
    }
    let long = "#".repeat(1 << 20);
    assert!(Preset::parse("long.toml", &long).is_err());
}

#[test]
fn a_change_is_checked_like_a_file() {
    let base = || Preset::named("connectx-2008").unwrap();
    let changed = base()
        .with(&[
            ("sync_ns", "1_000"),
            ("fence", "per-key"),
            ("soft_invalidate", "false"),
        ])
        .unwrap();
    assert_eq!(changed.sync_ns.value, 1_000);
    assert_eq!(changed.fence.value, Fence::PerKey);
    // Only together do they fit.
    assert!(base().with(&[("mpt_ways", "3")]).is_err());
    assert!(
        base()
            .with(&[("mpt_ways", "3"), ("mpt_entries", "6")])
            .is_ok()
    );
    for (field, value) in [
        ("speed", "1"),
        ("sync_ns", ""),
        ("sync_ns", "fast"),
        ("sync_ns", "1\nstall_ns = 2"),
        ("fence", "none"),
        ("name", "x"),
    ] {
        let error = base().with(&[(field, value)]).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(extends = \"connectx-3\"\n)?[a-z_]{1,12} ?= ?\\PC{0,20}\n\\PC*") {
        let _ = Preset::parse("any.toml", &text);
    }

    #[test]
    fn no_value_makes_a_device_panic(field in prop::sample::select(Preset::FIELDS), value in prop_oneof![any::<u64>(), 0..5000u64]) {
        let value = value.to_string();
        // Cache tables are allocated up front: their sizes are bounded, and large ones are slow.
        prop_assume!(!["mpt_entries", "mtt_lines"].contains(&field) || value.len() < 5);
        if let Ok(preset) = Preset::named("connectx-3").unwrap().with(&[(field, &value)]) {
            let hca = MockHca::new(&preset);
            prop_assert!(hca.alloc().is_ok());
        }
    }
}
