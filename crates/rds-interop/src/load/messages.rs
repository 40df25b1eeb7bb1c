//! Messages whose content is known from a seed.

use rds_lite::wire::MAX_MESSAGE;
use serde::{Deserialize, Serialize};

/// A run of numbered messages. Both ends know them by these few values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// What the content is made from.
    pub seed: u64,
    /// The number of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// How long they are.
    pub sizes: Sizes,
}

/// How long messages are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// These lengths, over and over.
    Cycle(Vec<usize>),
    /// Most are short, some are long, none is longer than this or shorter than a number.
    Mixed(usize),
}

/// A number at the begin of a message, where it has room for one.
const NUMBER: usize = size_of::<u64>();

impl Messages {
    /// The number behind the last.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// Messages of the same kind from `first` on.
    #[must_use]
    pub fn from(&self, first: u64, count: u64) -> Self {
        Self {
            first,
            count,
            ..self.clone()
        }
    }

    /// Writes message `number` to `into`.
    pub fn write(&self, number: u64, into: &mut Vec<u8>) {
        let mut random = Random(self.seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        let len = self.length(number, random.next());
        into.clear();
        into.reserve(len + NUMBER);
        while into.len() < len {
            into.extend_from_slice(&random.next().to_le_bytes());
        }
        into.truncate(len);
        if let Some(begin) = into.first_chunk_mut() {
            *begin = number.to_be_bytes();
        }
    }

    /// The number that a message says it has.
    #[must_use]
    pub fn number_of(message: &[u8]) -> Option<u64> {
        message
            .first_chunk()
            .map(|begin| u64::from_be_bytes(*begin))
    }

    fn length(&self, number: u64, random: u64) -> usize {
        match &self.sizes {
            Sizes::Cycle(lengths) => {
                let at = number.checked_rem(lengths.len() as u64).unwrap_or(0);
                lengths
                    .get(at as usize)
                    .copied()
                    .unwrap_or(0)
                    .min(MAX_MESSAGE)
            }
            Sizes::Mixed(longest) => {
                // Of a hundred, how many are below which length.
                let limit = match random % 100 {
                    0..75 => 512,
                    75..97 => 8192,
                    _ => 65_536,
                };
                let limit = limit.min(*longest).max(NUMBER + 1);
                let span = (limit - NUMBER) as u64;
                NUMBER + (random / 100 % span) as usize
            }
        }
    }
}

/// A fast generator (SplitMix64): whatever is behind it need not be unpredictable.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(messages: &Messages, number: u64) -> Vec<u8> {
        let mut message = Vec::new();
        messages.write(number, &mut message);
        message
    }

    #[test]
    fn a_message_depends_on_seed_and_number_alone() {
        let messages = Messages {
            seed: 5,
            first: 0,
            count: 10,
            sizes: Sizes::Cycle(vec![0, 1, 7, 8, 100_000]),
        };
        for number in 0..10 {
            let expected = [0, 1, 7, 8, 100_000][number as usize % 5];
            assert_eq!(message(&messages, number).len(), expected);
            assert_eq!(
                message(&messages, number),
                message(&messages.from(3, 1), number)
            );
        }
        let other = Messages {
            seed: 6,
            ..messages.clone()
        };
        assert_ne!(message(&messages, 4)[8..], message(&other, 4)[8..]);
        assert_ne!(message(&messages, 4)[8..], message(&messages, 9)[8..]);
        assert_eq!(Messages::number_of(&message(&messages, 9)), Some(9));
        assert_eq!(Messages::number_of(&message(&messages, 2)), None);
    }

    #[test]
    fn mixed_lengths_are_mixed_and_bounded() {
        let messages = Messages {
            seed: 1,
            first: 0,
            count: 0,
            sizes: Sizes::Mixed(10_000),
        };
        let lengths: Vec<usize> = (0..1000)
            .map(|number| message(&messages, number).len())
            .collect();
        assert!(lengths.iter().all(|len| (8..10_000).contains(len)));
        assert!(lengths.iter().filter(|&&len| len < 512).count() > 600);
        assert!(lengths.iter().any(|&len| len > 8192));
    }
}
