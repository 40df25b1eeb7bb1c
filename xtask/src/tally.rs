//! Adding up what the test runners report in their closing lines, and keeping what they say of failures.

use std::fmt;

/// Failures that are kept for the end; more are counted only.
const KEPT_FAILURES: usize = 40;

/// Tests that passed and failed, over several runners.
///
/// Shown, it names the tests that failed, and then the sum: half an hour of output may be between them and the end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    failures: Vec<String>,
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
        for failure in other.failures {
            self.keep(failure);
        }
    }

    /// Counts a line if it is a closing line of this runner, and keeps it if it names a test that failed.
    pub(crate) fn look(&mut self, runner: Runner, line: &str) {
        let failure = match runner {
            Runner::Libtest => libtest_failure(line),
            Runner::Nextest => nextest_failure(line),
        };
        if let Some(failure) = failure {
            self.keep(failure.to_owned());
        }
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

    /// Keeps a failure, once: some runners name it again in their closing lines.
    fn keep(&mut self, failure: String) {
        if self.failures.len() < KEPT_FAILURES && !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// `test result: ok. 3 passed; 0 failed; …` → from the first count on.
fn libtest_counts(line: &str) -> Option<&str> {
    let result = line.strip_prefix("test result: ")?;
    result.split_once(". ").map(|(_, counts)| counts)
}

/// `test a::b ... FAILED`, or `FAILED` and a row of a matrix with its reason.
fn libtest_failure(line: &str) -> Option<&str> {
    let test = line
        .strip_prefix("test ")
        .and_then(|test| test.strip_suffix(" ... FAILED"));
    let row = line.strip_prefix("FAILED ").map(str::trim_start);
    test.or(row)
}

/// `        FAIL [   0.010s] (3/7) mr-core a::b` → from the name on; it may be `TIMEOUT`, or a signal, as well.
fn nextest_failure(line: &str) -> Option<&str> {
    let (verdict, rest) = line.trim_start().split_once(" [")?;
    let failed = ["FAIL", "TIMEOUT"].contains(&verdict) || verdict.starts_with("SIG");
    let (_, name) = rest.split_once("] ").filter(|_| failed)?;
    let name = name.trim_start();
    let counted = name.strip_prefix('(').and_then(|name| name.split_once(')'));
    Some(counted.map_or(name, |(_, name)| name.trim_start()))
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
    fn failures_are_named_once_before_the_sum() {
        let mut all = Tally::default();
        let mut tally = Tally::default();
        for line in [
            "test a::b ... FAILED",
            "test c ... ok",
            "FAILED  verbs  kernel  ping  why",
        ] {
            tally.look(Runner::Libtest, line);
            tally.look(Runner::Libtest, LIBTEST[1]);
        }
        let lines = [
            "        FAIL [   0.010s] (3/7) mr-core a::c",
            "        FAIL [   0.010s] (──) mr-core a::c",
            "     SIGSEGV [   0.010s] mr-core d",
            "        PASS [   0.010s] (4/7) mr-core e",
            NEXTEST[1],
        ];
        for line in lines {
            tally.look(Runner::Nextest, line);
        }
        all.add(tally);
        let shown = "failed: a::b\nfailed: verbs  kernel  ping  why\nfailed: mr-core a::c\nfailed: mr-core d\n\
                     4 passed, 9 failed";
        assert_eq!(all.to_string(), shown);
    }

    #[test]
    fn failures_that_are_kept_are_bounded() {
        let mut tally = Tally::default();
        for number in 0..2 * KEPT_FAILURES {
            tally.look(Runner::Libtest, &format!("test a{number} ... FAILED"));
        }
        assert_eq!(tally.failures.len(), KEPT_FAILURES);
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
