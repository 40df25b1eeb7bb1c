//! How long I/Os are.

use crate::units::{parse_bytes, show_bytes};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use std::fmt;
use std::str::FromStr;

/// The most different lengths that a mix names.
const MOST: usize = 64;

/// A distribution of lengths.
///
/// Text: one length (`1MiB`), a range in which each octave is as likely as another
/// (`4KiB..1MiB`, drawn in whole sectors of 512 bytes where it spans some), or a mix of lengths
/// with weights (`4KiB:70,64KiB:25,1MiB:5`).
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Fixed(u64),
    /// From the first to the second.
    Range(u64, u64),
    /// Each length with its weight.
    Mix(Vec<(u64, u32)>),
}

const SECTOR: u64 = 512;

impl Sizes {
    /// The shortest length.
    pub fn smallest(&self) -> u64 {
        match self {
            Self::Fixed(bytes) | Self::Range(bytes, _) => *bytes,
            Self::Mix(mix) => mix.iter().map(|&(bytes, _)| bytes).min().unwrap_or(0),
        }
    }

    /// The greatest length.
    pub fn largest(&self) -> u64 {
        match self {
            Self::Fixed(bytes) | Self::Range(_, bytes) => *bytes,
            Self::Mix(mix) => mix.iter().map(|&(bytes, _)| bytes).max().unwrap_or(0),
        }
    }

    /// The only length, if there is only one.
    pub fn fixed(&self) -> Option<u64> {
        (self.smallest() == self.largest()).then_some(self.largest())
    }

    pub(crate) fn draw(&self, random: &mut ChaCha8Rng) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Range(low, high) => {
                let octaves = (*high as f64 / *low as f64).ln();
                let bytes = (*low as f64 * (octaves * unit(random)).exp()) as u64;
                let whole = if high - low >= SECTOR {
                    bytes.next_multiple_of(SECTOR)
                } else {
                    bytes
                };
                whole.clamp(*low, *high)
            }
            Self::Mix(mix) => {
                let total: u64 = mix.iter().map(|&(_, weight)| u64::from(weight)).sum();
                let mut place = (unit(random) * total as f64) as u64;
                for &(bytes, weight) in mix {
                    match place.checked_sub(weight.into()) {
                        Some(rest) => place = rest,
                        None => return bytes,
                    }
                }
                self.largest()
            }
        }
    }
}

/// A number from 0 up to, but not including, 1.
pub(crate) fn unit(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes = if let Some((low, high)) = text.split_once("..") {
            Self::Range(parse_bytes(low)?, parse_bytes(high)?)
        } else if text.contains(':') {
            Self::Mix(text.split(',').map(weighted).collect::<Result<_, _>>()?)
        } else {
            Self::Fixed(parse_bytes(text)?)
        };
        if sizes.smallest() == 0 {
            return Err("an I/O has at least 1 byte".into());
        }
        match &sizes {
            Self::Range(low, high) if low > high => {
                Err(format!("{text:?}: the range ends before it starts"))
            }
            Self::Mix(mix) if mix.len() > MOST => Err(format!("at most {MOST} lengths in a mix")),
            _ => Ok(sizes),
        }
    }
}

fn weighted(text: &str) -> Result<(u64, u32), String> {
    let (bytes, weight) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?}: a weight is missing; write 4KiB:70"))?;
    match weight.parse() {
        Ok(weight @ 1..) => Ok((parse_bytes(bytes)?, weight)),
        _ => Err(format!("{text:?}: a weight is a whole number from 1")),
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => f.write_str(&show_bytes(*bytes)),
            Self::Range(low, high) => write!(f, "{}..{}", show_bytes(*low), show_bytes(*high)),
            Self::Mix(mix) => {
                for (place, (bytes, weight)) in mix.iter().enumerate() {
                    let comma = if place == 0 { "" } else { "," };
                    write!(f, "{comma}{}:{weight}", show_bytes(*bytes))?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn reads_what_it_writes() {
        for text in ["1MiB", "4KiB..1MiB", "4KiB:70,64KiB:25,1MiB:5"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_what_cannot_be() {
        for text in [
            "0",
            "0..4KiB",
            "8KiB..4KiB",
            "4KiB:0",
            "4KiB:1,0:1",
            "4KiB,8KiB:1",
            "",
        ] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_mix_keeps_its_weights() {
        let sizes: Sizes = "4KiB:70,64KiB:25,1MiB:5".parse().unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let draws: Vec<_> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
        for (bytes, share) in [(4096, 0.7), (65_536, 0.25), (1 << 20, 0.05)] {
            let got = draws.iter().filter(|&&draw| draw == bytes).count() as f64 / 1e5;
            assert!((got - share).abs() < 0.01, "{bytes}: {got}");
        }
    }

    proptest! {
        #[test]
        fn draws_stay_within(low in 1..1_000_000_u64, more in 0..1_000_000_u64, seed: u64) {
            let sizes = Sizes::Range(low, low + more);
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            for _ in 0..100 {
                let bytes = sizes.draw(&mut random);
                prop_assert!((low..=low + more).contains(&bytes));
            }
        }
    }
}
