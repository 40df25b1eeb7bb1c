//! Hostile policy texts: no panic, bounded memory and messages, and what is accepted is written back as
//! itself.

use mr_fuzz::Fuzz;
use mr_policies::Policy;

const FUZZ: Fuzz<'_> = Fuzz {
    name: "policy texts",
    corpus: &[concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/corpus/policies"
    )],
    words: &[
        "=",
        ",",
        "%",
        "/",
        "-",
        " ",
        "+1",
        "1.5",
        "0x10",
        "=,=",
        "key-",
        "ns",
        "us",
        "ms",
        "s",
        "kB",
        "GiB",
        "TiB",
        "use-n",
        "use-once",
        "immediate",
        "threshold",
        "periodic",
        "max-exposure",
        "adaptive",
        "rds",
        "origin",
        "\u{0}",
        "\u{e9}",
        "\u{1f980}",
    ],
    longest: 1024,
    cost: 1,
    most_bytes: |len| 16 * 1024 + 64 * len,
};

#[test]
fn a_hostile_text_is_refused_with_its_place_or_means_what_it_says() {
    FUZZ.run(|input| {
        let text = String::from_utf8_lossy(input);
        match text.parse::<Policy>() {
            Ok(policy) => {
                let written = policy.to_string();
                assert_eq!(written.parse::<Policy>().ok(), Some(policy));
            }
            Err(error) => {
                assert!(error.offset() <= text.len() && text.is_char_boundary(error.offset()));
                assert!(error.to_string().len() < 4096);
            }
        }
    });
}
