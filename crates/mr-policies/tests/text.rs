//! Policies as text: what is accepted, how it is written back, and what is said about the rest.

mod forms;
mod texts;

use mr_policies::{MAX_TEXT, ParseErrorKind, Policy, syntax};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

#[test]
fn is_written_as_it_was_read() {
    for text in [
        "immediate",
        "use-once",
        "use-n=32",
        "threshold=4000",
        "threshold=25%",
        "threshold=1GiB",
        "periodic=4s",
        "max-exposure=100ms",
        "adaptive=5key-s",
        "adaptive=5key-s/1s",
        "rds",
        "rds-frmr",
        "fmr-pool",
        "srp",
        "iser",
        "ko2iblnd",
        "origin",
        "use-n=32,threshold=4000,max-exposure=1s",
        "threshold=4000,threshold=1GiB,periodic=4s,max-exposure=5s,adaptive=5key-s",
        "srp,max-exposure=1s",
    ] {
        assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
    }
}

#[test]
fn other_ways_to_write_it() {
    for (text, plain) in [
        (" use-n = 32 , threshold = 4000 ", "use-n=32,threshold=4000"),
        ("use-n=032", "use-n=32"),
        ("periodic=0.1s", "periodic=100ms"),
        ("periodic=60s", "periodic=1min"),
        ("threshold=1024MiB", "threshold=1GiB"),
        ("use-n=32,use-n=32,srp", "use-n=32,srp"),
    ] {
        assert_eq!(text.parse::<Policy>().unwrap().to_string(), plain);
    }
}

/// Text, the place of its fault in bytes, what is wrong, and what is said to be allowed.
const FAULTS: &[(&str, usize, &str, &str)] = &[
    ("", 0, "a policy is missing", "use-once"),
    ("   ", 3, "a policy is missing", "use-once"),
    ("use-once,", 9, "a policy is missing", "threshold=M"),
    (
        "use-once,,immediate",
        9,
        "a policy is missing",
        "periodic=T",
    ),
    ("use-twice", 0, "there is no such policy", "use-n=N"),
    ("use-once, Srp", 10, "there is no such policy", "srp, iser"),
    ("use-once=1", 9, "this policy takes no value", "use-once"),
    ("srp=", 4, "this policy takes no value", "srp"),
    (
        "use-n",
        5,
        "this policy needs a value",
        "use-n=N, where N is from 1 to 255",
    ),
    ("use-n=", 6, "a number is missing", "from 1 to 255"),
    ("use-n=0", 6, "the value is out of range", "from 1 to 255"),
    ("use-n=256", 6, "the value is out of range", "from 1 to 255"),
    ("use-n=-1", 6, "this is no whole number", "from 1 to 255"),
    ("use-n=3x", 7, "this is no whole number", "from 1 to 255"),
    (
        "use-n=99999999999",
        6,
        "the number is too large",
        "from 1 to 255",
    ),
    (
        "threshold=0",
        10,
        "the value is out of range",
        "regions (4000)",
    ),
    (
        "threshold=101%",
        10,
        "the value is out of range",
        "1% to 100%",
    ),
    (
        "threshold=300%",
        10,
        "the value is out of range",
        "1% to 100%",
    ),
    ("threshold=%", 10, "a number is missing", "1% to 100%"),
    (
        "threshold=1.5",
        11,
        "this is no whole number",
        "regions (4000)",
    ),
    (
        "threshold=1Gib",
        11,
        "there is no such unit",
        "bytes (1GiB)",
    ),
    (
        "threshold=0B",
        10,
        "the value is out of range",
        "bytes (1GiB)",
    ),
    ("periodic=4", 10, "a unit is missing", "a time from 1ns"),
    (
        "periodic=0s",
        9,
        "the value is out of range",
        "a time from 1ns",
    ),
    ("periodic=366d", 9, "the value is out of range", "to 365d"),
    (
        "max-exposure=1 s",
        14,
        "there is no such unit",
        "a time from 1ns",
    ),
    (
        "max-exposure=0.1ns",
        13,
        "the number is finer than",
        "a time from 1ns",
    ),
    (
        "adaptive=5s",
        10,
        "there is no such unit",
        "key-seconds (5key-s",
    ),
    (
        "adaptive=0key-s",
        9,
        "the value is out of range",
        "key-seconds (5key-s",
    ),
    (
        "adaptive=5key-s/",
        16,
        "a number is missing",
        "key-seconds (5key-s",
    ),
    (
        "adaptive=5key-s/1x",
        17,
        "there is no such unit",
        "key-seconds (5key-s",
    ),
    (
        "use-n=32,use-once",
        9,
        "use-n=32 and use-once contradict",
        "use-n=32 or use-once",
    ),
    (
        "immediate,use-n=32",
        10,
        "immediate and use-n=32 contradict",
        "immediate or",
    ),
    ("srp, iser", 5, "srp and iser contradict", "srp or iser"),
    (
        "srp,threshold=10",
        4,
        "srp and threshold=10 contradict",
        "srp or",
    ),
    (
        "periodic=1s,periodic=4s",
        12,
        "contradict",
        "periodic=1s or periodic=4s",
    ),
    ("use-n=32\n", 8, "this is no whole number", "from 1 to 255"),
    ("\u{1b}[31m", 0, "there is no such policy", "use-once"),
];

#[test]
fn a_fault_is_pointed_at_and_what_is_allowed_is_said() {
    for (text, offset, wrong, allowed) in FAULTS {
        let error = text.parse::<Policy>().unwrap_err();
        assert_eq!(error.offset(), *offset, "{text:?}: {error}");
        assert!(
            error.kind().to_string().contains(wrong),
            "{text:?}: {error}"
        );
        assert!(error.allowed().contains(allowed), "{text:?}: {error}");
    }
}

#[test]
fn the_caret_stands_under_the_fault() {
    let error = "use-once,\t\u{e4}=1,srp".parse::<Policy>().unwrap_err();
    let message = error.to_string();
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines[0], "column 10: there is no such policy");
    assert_eq!(lines[1], "  use-once,\\t\\u{e4}=1,srp");
    assert_eq!(lines[2], "           ^");
}

#[test]
fn length_is_bounded_and_so_is_what_is_echoed() {
    let longest = format!("{:<MAX_TEXT$}", "srp");
    assert!(longest.parse::<Policy>().is_ok());

    let huge = format!("srp,{}", "\u{e4}".repeat(1 << 20));
    let error = huge.parse::<Policy>().unwrap_err();
    assert_eq!(error.kind(), &ParseErrorKind::TooLong);
    assert!(error.offset() <= MAX_TEXT);
    assert!(error.to_string().len() < 10 * MAX_TEXT);
}

#[test]
fn the_syntax_names_every_policy() {
    let syntax = syntax().to_string();
    for name in [
        "immediate",
        "use-once",
        "use-n=N",
        "threshold=M",
        "periodic=T",
    ] {
        assert!(
            syntax.lines().any(|line| line.starts_with(name)),
            "{syntax}"
        );
    }
    for named in mr_policies::Named::ALL {
        assert!(syntax.contains(named.name()), "{syntax}");
    }
}

/// What is drawn for the tests over all policies has every form; a new one must not go untested.
#[test]
fn every_form_is_drawn() {
    let mut runner = TestRunner::deterministic();
    let mut draw = || texts::clauses().new_tree(&mut runner).unwrap().current();
    let drawn: Vec<String> = std::iter::repeat_with(&mut draw).take(1000).collect();
    for form in forms::forms() {
        let has_it = drawn.iter().any(|text| forms::is_of(text, &form));
        assert!(has_it, "add {form} to the texts in tests/texts");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(policy in texts::policies()) {
        let text = policy.to_string();
        prop_assert_eq!(&text.parse::<Policy>()?, &policy);
        prop_assert_eq!(text.parse::<Policy>()?.to_string(), text);
    }

    #[test]
    fn each_is_accepted_alone(clause in texts::clauses()) {
        prop_assert!(clause.parse::<Policy>().is_ok(), "{}", clause);
    }

    #[test]
    fn any_text_gets_an_answer(text in ".{0,80}") {
        answers(&text)?;
    }

    #[test]
    fn nearly_right_text_gets_an_answer(
        clauses in prop::collection::vec(texts::clauses(), 0..12),
        cut in any::<prop::sample::Index>(),
        inserted in "[-,=/%. 0-9a-zGiB\\PC]{0,6}",
    ) {
        let text = clauses.join(",");
        let cut = cut.index(text.len() + 1);
        answers(&format!("{}{inserted}{}", &text[..cut], &text[cut..]))?;
        answers(&text[cut..])?;
    }
}

/// Either a policy that reads back, or an error with a place in the text and a safe message.
fn answers(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<Policy>() {
        Ok(policy) => prop_assert_eq!(&policy.to_string().parse::<Policy>()?, &policy),
        Err(error) => {
            prop_assert!(text.is_char_boundary(error.offset()));
            prop_assert!(!error.allowed().is_empty());
            let safe = |c: char| c == '\n' || c == ' ' || c.is_ascii_graphic();
            prop_assert!(error.to_string().chars().all(safe), "{}", error);
        }
    }
    Ok(())
}
