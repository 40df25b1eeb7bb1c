//! Hostile policy texts: a seeded mutation of what is written in the docs. No panic, bounded
//! messages, and what is accepted is written back as itself.

use mr_policies::Policy;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const CORPUS: &[&str] = &[
    "use-n=32,threshold=4000,max-exposure=1s",
    "immediate",
    "adaptive=5key-s/1s",
    "threshold=25%,periodic=4s",
    "threshold=1GiB, use-once",
    "fmr-pool,adaptive=100key-ms",
    "srp",
];

const PIECES: &[&str] = &[
    "",
    "=",
    ",",
    "%",
    "/",
    "-",
    " ",
    "0",
    "9",
    "99999999999999999999",
    "key-",
    "ns",
    "GiB",
    "use-n",
    "\u{0}",
    "\u{1f980}",
    "\u{e9}",
    "=,=",
    "1.5",
    "0x10",
    "+1",
];

fn mutated() -> impl Strategy<Value = String> {
    let mutation = (any::<Index>(), any::<Index>(), select(PIECES));
    (select(CORPUS), prop::collection::vec(mutation, 0..6)).prop_map(|(text, mutations)| {
        let mut chars: Vec<char> = text.chars().collect();
        for (from, to, piece) in mutations {
            let (from, to) = (from.index(chars.len() + 1), to.index(chars.len() + 1));
            let end = to.clamp(from, from + 4).min(chars.len());
            chars.splice(from..end, piece.chars());
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_hostile_text_is_refused_with_its_place_or_means_what_it_says(text in mutated()) {
        match text.parse::<Policy>() {
            Ok(policy) => {
                let written = policy.to_string();
                prop_assert_eq!(written.parse::<Policy>().ok(), Some(policy));
            }
            Err(error) => {
                prop_assert!(error.offset() <= text.len());
                prop_assert!(error.to_string().len() < 4096);
            }
        }
    }
}
