//! Inputs that are nearly right.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::ops::Range;

/// Numbers at which arithmetic goes wrong.
const EDGES: [u64; 13] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x10_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// The most changes to one input.
const MOST_CHANGES: usize = 6;

/// Draws inputs from a corpus and changes them, by a seed.
pub(crate) struct Mutator<'a> {
    random: ChaCha8Rng,
    corpus: &'a [Vec<u8>],
    words: &'a [&'a str],
    longest: usize,
}

impl<'a> Mutator<'a> {
    pub(crate) fn new(
        seed: u64,
        corpus: &'a [Vec<u8>],
        words: &'a [&'a str],
        longest: usize,
    ) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            corpus,
            words,
            longest,
        }
    }

    /// The next input.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut input = self.piece_of_the_corpus();
        for _ in 0..=self.below(MOST_CHANGES) {
            self.change(&mut input);
        }
        input.truncate(self.longest);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.below(10) {
            0 => self.set(input, |byte, random| byte ^ (1 << (random % 8))),
            1 => self.set(input, |_, random| random as u8),
            2 => {
                let edge = self.edge();
                overwrite(input, at, &edge);
            }
            3 => {
                let word = self.word();
                input.splice(at..at, word);
            }
            4 => {
                let (range, word) = (self.range(input.len()), self.word());
                input.splice(range, word);
            }
            5 => drop(input.drain(self.range(input.len()))),
            6 => {
                let copy = input[self.range(input.len())].to_vec();
                input.splice(at..at, copy);
            }
            7 => self.set_number(input),
            8 => {
                // The beginning of one with the end of another.
                let other = self.piece_of_the_corpus();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend(&other[from..]);
            }
            _ => input.truncate(at),
        }
    }

    /// An input, as far as it is of the greatest length.
    fn piece_of_the_corpus(&mut self) -> Vec<u8> {
        let whole = &self.corpus[self.below(self.corpus.len())];
        whole[..whole.len().min(self.longest)].to_vec()
    }

    /// Changes one byte.
    fn set(&mut self, input: &mut [u8], change: impl Fn(u8, u32) -> u8) {
        if !input.is_empty() {
            let at = self.below(input.len());
            input[at] = change(input[at], self.random.next_u32());
        }
    }

    /// An edge in binary, of any width and either order.
    fn edge(&mut self) -> Vec<u8> {
        let edge = EDGES[self.below(EDGES.len())];
        let width = 1 << self.below(4);
        if self.below(2) == 0 {
            edge.to_le_bytes()[..width].to_vec()
        } else {
            edge.to_be_bytes()[8 - width..].to_vec()
        }
    }

    /// Replaces a number in decimal digits by an edge.
    fn set_number(&mut self, input: &mut Vec<u8>) {
        let from = self.below(input.len() + 1);
        let Some(start) = input[from..].iter().position(u8::is_ascii_digit) else {
            return;
        };
        let start = from + start;
        let digits = input[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        let end = start + digits.count();
        let edge = EDGES[self.below(EDGES.len())].wrapping_add(self.below(2) as u64);
        input.splice(start..end, edge.to_string().into_bytes());
    }

    /// A word of the format, or an edge in digits.
    fn word(&mut self) -> Vec<u8> {
        match self.below(self.words.len() + 1) {
            0 => EDGES[self.below(EDGES.len())].to_string().into_bytes(),
            word => self.words[word - 1].as_bytes().to_vec(),
        }
    }

    /// A range within `len`, more often a short one.
    fn range(&mut self, len: usize) -> Range<usize> {
        let start = self.below(len + 1);
        let bits = self.below(12);
        let most = self.below(1 << bits) + 1;
        start..(start + most).min(len)
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.random.next_u64() % end as u64) as usize
    }
}

/// Writes over what is at `at`, as far as there is something.
fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in input[at..].iter_mut().zip(bytes) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutations(seed: u64) -> Vec<Vec<u8>> {
        let corpus = [b"size = 4096\n".to_vec(), vec![0; 100], Vec::new()];
        let mut mutator = Mutator::new(seed, &corpus, &["word"], 120);
        (0..5000).map(|_| mutator.next()).collect()
    }

    #[test]
    fn a_seed_says_it_all() {
        assert_eq!(mutations(1), mutations(1));
        assert_ne!(mutations(1), mutations(2));
    }

    #[test]
    fn every_kind_of_change_comes_and_none_is_too_long() {
        let all = mutations(3);
        assert!(all.iter().all(|input| input.len() <= 120));
        let has = |part: &[u8]| {
            let mut inputs = all.iter();
            inputs.any(|input| input.windows(part.len()).any(|window| window == part))
        };
        assert!(has(b"size = 18446744073709551615"), "a number in digits");
        assert!(has(b"word"), "a word");
        assert!(has(&[0, 0xff, 0xff, 0xff, 0xff, 0]), "a number in binary");
        assert!(has(b"size = \0\0\0"), "the end of another");
        assert!(all.iter().any(Vec::is_empty), "nothing at all");
    }
}
