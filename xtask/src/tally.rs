//! Adding up what the test runners report in their closing lines.

use std::fmt;

/// Tests that passed and failed, over several runners.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// Whose closing lines to look for: a runner may show the output of another inside its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    Libtest,
    Nextest,
}

impl Tally {
    /// Counts what another has counted.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Counts a line if it is a closing line of this runner.
    pub(crate) fn look(&mut self, runner: Runner, line: &str) {
        let counts = match runner {
            Runner::Libtest => libtest_counts(line),
            Runner::Nextest => nextest_counts(line),
        };
        for (number, what) in counts.into_iter().flat_map(counted_words) {
            match what {
                "passed" => self.passed += number,
                // A runner that kills or cannot start a test says so in words of its own.
                "failed" | "timed" | "exec" => self.failed += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// `test result: ok. 3 passed; 0 failed; …` → from the first count on.
fn libtest_counts(line: &str) -> Option<&str> {
    let result = line.strip_prefix("test result: ")?;
    result.split_once(". ").map(|(_, counts)| counts)
}

/// `     Summary [   0.010s] 3 tests run: 2 passed, 1 failed, 0 skipped` → from the first count on.
fn nextest_counts(line: &str) -> Option<&str> {
    let summary = line.trim_start().strip_prefix("Summary [")?;
    summary.split_once(" run: ").map(|(_, counts)| counts)
}

/// The pairs of a number and the word after it.
fn counted_words(counts: &str) -> impl Iterator<Item = (u64, &str)> {
    let words = counts
        .split([' ', ',', ';', '(', ')'])
        .filter(|word| !word.is_empty());
    let next = words.clone().skip(1);
    words
        .zip(next)
        .filter_map(|(number, word)| Some((number.parse().ok()?, word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(runner: Runner, lines: &[&str]) -> (u64, u64) {
        let mut tally = Tally::default();
        for line in lines {
            tally.look(runner, line);
        }
        (tally.passed, tally.failed)
    }

    const LIBTEST: &[&str] = &[
        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s",
        "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
    ];

    const NEXTEST: &[&str] = &[
        "     Summary [   0.010s] 3 tests run: 3 passed (1 slow), 0 skipped",
        "     Summary [   9.010s] 4/7 tests run: 1 passed, 1 failed, 1 timed out, 1 exec failed, 3 skipped",
    ];

    #[test]
    fn closing_lines_add_up() {
        assert_eq!(tally(Runner::Libtest, LIBTEST), (13, 2));
        // "1 exec failed" counts once: its number is followed by "exec".
        assert_eq!(tally(Runner::Nextest, NEXTEST), (4, 3));
    }

    #[test]
    fn the_output_of_a_test_does_not_count() {
        assert_eq!(tally(Runner::Nextest, LIBTEST), (0, 0));
        assert_eq!(tally(Runner::Libtest, NEXTEST), (0, 0));
    }

    #[test]
    fn other_lines_do_not_count() {
        let lines = [
            "5 passed",
            "test a::b ... ok",
            "Summary of 3 passed",
            "test result: ",
            "",
        ];
        assert_eq!(tally(Runner::Libtest, &lines), (0, 0));
        assert_eq!(tally(Runner::Nextest, &lines), (0, 0));
    }
}
