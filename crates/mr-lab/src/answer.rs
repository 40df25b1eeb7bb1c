//! An answer: rows for every preset and policy, and what could not be run.

use crate::LabError;
use crate::parallel;
use crate::row::{Row, mark_pareto};
use crate::scenario::Scenario;
use crate::sim;
use mr_core::{InvalidationPolicy, PolicyError, PoolLimits};
use mr_mock::Preset;
use mr_policies::Policy;
use serde::Serialize;
use std::num::NonZeroUsize;

/// The rows of one question.
#[derive(Debug, Default)]
pub struct Answer {
    /// Preset by preset, and for each in the order of the policies.
    pub rows: Vec<Row>,
    /// What could not be run.
    pub skipped: Vec<Skipped>,
}

/// A policy that makes no sense on a preset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The preset.
    pub preset: String,
    /// The policy.
    pub policy: String,
    /// Why not.
    pub reason: String,
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Question {
    /// The load, the pool and the machine.
    pub scenario: Scenario,
    /// The HCAs.
    pub presets: Vec<Preset>,
    /// Figures of theirs that were set otherwise for this question, as `FIGURE=VALUE`.
    pub changes: Vec<String>,
    /// The policies.
    pub policies: Vec<Policy>,
    /// Somebody asked for these policies: that one cannot hold is then an error rather than a row
    /// without numbers. What an HCA cannot do at all is an error only if no preset can.
    pub asked_for: bool,
}

/// A policy on a preset.
pub type Pair<'q> = (&'q Preset, &'q Policy);

impl Question {
    /// Runs every policy on every preset. `begin` is told how many runs there are, `done` is
    /// called after each, from any thread.
    ///
    /// # Errors
    ///
    /// The scenario or a policy that was asked for cannot hold, or a run fails.
    pub fn answer(
        &self,
        threads: NonZeroUsize,
        begin: impl FnOnce(usize),
        done: impl Fn() + Sync,
    ) -> Result<Answer, LabError> {
        let (pairs, skipped) = self.pairs()?;
        begin(pairs.len());
        let run = |(preset, policy): &Pair<'_>| sim::run(&self.scenario, preset, policy);
        let rows = parallel::map(&pairs, threads, run, done);
        let mut rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
        mark_pareto(&mut rows);
        Ok(Answer { rows, skipped })
    }

    /// Every policy with every preset that it can run on, and what cannot be run.
    ///
    /// # Errors
    ///
    /// The scenario or a policy that was asked for cannot hold.
    pub fn pairs(&self) -> Result<(Vec<Pair<'_>>, Vec<Skipped>), LabError> {
        self.scenario.check()?;
        let (mut pairs, mut skipped) = (Vec::new(), Vec::new());
        for preset in &self.presets {
            let capabilities = self.scenario.check_on(preset)?;
            let limits = PoolLimits::new(self.scenario.regions, &capabilities);
            for policy in &self.policies {
                match policy.check(&limits) {
                    Ok(()) => pairs.push((preset, policy)),
                    Err(reason) if self.is_fault(&reason) => {
                        let preset = preset.name.clone();
                        return Err(LabError::PolicyCannotHold { preset, reason });
                    }
                    Err(reason) => skipped.push(Skipped {
                        preset: preset.name.clone(),
                        policy: policy.to_string(),
                        reason: reason.to_string(),
                    }),
                }
            }
        }
        self.refuse_what_never_runs(&skipped)?;
        Ok((pairs, skipped))
    }

    fn is_fault(&self, reason: &PolicyError) -> bool {
        self.asked_for && !matches!(reason, PolicyError::Unsupported { .. })
    }

    fn refuse_what_never_runs(&self, skipped: &[Skipped]) -> Result<(), LabError> {
        for policy in self.policies.iter().filter(|_| self.asked_for) {
            let text = policy.to_string();
            let mut reasons = skipped.iter().filter(|skipped| skipped.policy == text);
            if let Some(first) = reasons.next()
                && reasons.count() + 1 == self.presets.len()
            {
                return Err(LabError::Usage(format!(
                    "{}, on no preset here",
                    first.reason
                )));
            }
        }
        Ok(())
    }
}
