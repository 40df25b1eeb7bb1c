//! Running one check, and counting.

use super::trial::Verdict;
use super::{Harness, trial::Trial};
use std::env;
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the checks of one backend.
#[derive(Debug)]
pub struct Tally {
    total: usize,
    over: AtomicUsize,
    ran: AtomicUsize,
    ruled_out: AtomicUsize,
    defects: AtomicUsize,
    skipped: AtomicUsize,
}

impl Tally {
    /// For `total` checks.
    pub const fn new(total: usize) -> Self {
        Self {
            total,
            over: AtomicUsize::new(0),
            ran: AtomicUsize::new(0),
            ruled_out: AtomicUsize::new(0),
            defects: AtomicUsize::new(0),
            skipped: AtomicUsize::new(0),
        }
    }

    /// Counts one; the last one says how it went.
    fn count(&self, suite: &str, of: &AtomicUsize) {
        of.fetch_add(1, Ordering::SeqCst);
        if self.over.fetch_add(1, Ordering::SeqCst) + 1 < self.total {
            return;
        }
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        say(&format!(
            "conformance of {suite}: {} checks ran, {} ruled out by its capabilities, {} left out for defects of the device, {} skipped",
            count(&self.ran),
            count(&self.ruled_out),
            count(&self.defects),
            count(&self.skipped)
        ));
    }
}

/// Runs one check on a fresh harness.
pub fn run<H: Harness>(
    tally: &Tally,
    suite: &str,
    name: &str,
    make: impl FnOnce() -> Result<H, String>,
    check: impl FnOnce(&Trial<H>) -> Verdict,
) {
    match make() {
        Ok(harness) => {
            if let Some(defect) = harness.known_defect(name) {
                say(&format!(
                    "{suite}::{name}: LEFT OUT for a defect of the device: {defect}"
                ));
                return tally.count(suite, &tally.defects);
            }
            match check(&Trial::new(harness)) {
                Verdict::Holds => tally.count(suite, &tally.ran),
                Verdict::RuledOut(why) => {
                    say(&format!("{suite}::{name}: ruled out, {why}"));
                    tally.count(suite, &tally.ruled_out);
                }
            }
        }
        Err(why) => {
            let required = H::REQUIRED_BY.filter(|name| env::var_os(name).is_some());
            if let Some(variable) = required {
                panic!("{variable} is set, and yet: {why}");
            }
            say(&format!("{suite}::{name}: SKIPPED, {why}"));
            tally.count(suite, &tally.skipped);
        }
    }
}

/// Past the test runner, which keeps what successful tests print to itself.
fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}
