//! The lines that are printed.

use crate::kernel::Transport;
use std::fmt;
use std::time::Duration;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed, with a remark.
    Passed(String),
    /// It failed.
    Failed(String),
    /// It cannot be run with this setup.
    Skipped,
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct Row {
    /// What carried RDS.
    pub transport: Transport,
    /// Who connects.
    pub connects: &'static str,
    /// From whom to whom.
    pub direction: String,
    /// What was done.
    pub case: String,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

impl Row {
    /// The line above the first row.
    #[must_use]
    pub fn header() -> String {
        format!(
            "{:<7} {:<9} {:<9} {:<20} {:<24} {:>7}  {}",
            "", "transport", "connects", "direction", "operation", "seconds", ""
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, remark) = match &self.outcome {
            Outcome::Passed(remark) => ("ok", remark.as_str()),
            Outcome::Failed(why) => ("FAILED", why.as_str()),
            Outcome::Skipped => ("skipped", ""),
        };
        let line = format!(
            "{verdict:<7} {:<9} {:<9} {:<20} {:<24} {:>7.1}  {remark}",
            self.transport.to_string(),
            self.connects,
            self.direction,
            self.case,
            self.took.as_secs_f64(),
        );
        f.write_str(line.trim_end())
    }
}
