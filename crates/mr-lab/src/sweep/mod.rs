//! The same question at every point of a grid: how much does the answer depend on a number?
//!
//! Some figures of the presets are assumptions. An axis such as `sync-latency=30us..10ms` shows
//! what they are worth.

mod axis;
mod parameter;
mod value;

pub use axis::Axis;
pub use parameter::Parameter;
pub use value::Value;

use crate::LabError;
use crate::answer::Question;
use crate::parallel;
use crate::row::{Row, mark_pareto_within};
use crate::scenario::Scenario;
use crate::sim;
use mr_mock::Preset;
use mr_policies::Policy;
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// The most points of a grid, all presets and policies counted.
const MOST_POINTS: usize = 10_000;

/// One point of the grid.
#[derive(Clone, Debug, Serialize)]
pub struct SweptRow {
    /// The place on each axis, in the axis's base unit (seconds, bytes, key-seconds, or a count).
    pub point: BTreeMap<String, f64>,
    /// The same as it was given on the command line, in the order of the axes.
    #[serde(skip)]
    pub texts: Vec<String>,
    /// What was measured there.
    #[serde(flatten)]
    pub row: Row,
}

/// One run.
struct Job {
    at: Vec<Value>,
    scenario: Scenario,
    preset: Preset,
    policy: Policy,
}

/// Runs every policy on every preset of `question` at every point of the grid of `axes`.
///
/// # Errors
///
/// Something cannot hold at one of the points, or a run fails.
pub fn sweep(
    question: &Question,
    axes: &[Axis],
    threads: NonZeroUsize,
    begin: impl FnOnce(usize),
    done: impl Fn() + Sync,
) -> Result<Vec<SweptRow>, LabError> {
    let jobs = jobs(question, axes)?;
    begin(jobs.len());
    let run = |job: &Job| sim::run(&job.scenario, &job.preset, &job.policy);
    let rows = parallel::map(&jobs, threads, run, done);
    let mut swept = Vec::new();
    for (job, row) in jobs.into_iter().zip(rows) {
        let names = axes.iter().map(|axis| axis.parameter.name().to_owned());
        swept.push(SweptRow {
            point: names.zip(job.at.iter().map(Value::in_base_units)).collect(),
            texts: job.at.iter().map(ToString::to_string).collect(),
            row: row?,
        });
    }
    mark(&mut swept, axes);
    Ok(swept)
}

/// Policies compete where everything else is the same.
fn mark(swept: &mut [SweptRow], axes: &[Axis]) {
    let others: Vec<usize> = (0..axes.len())
        .filter(|&axis| !axes[axis].parameter.is_of_policy())
        .collect();
    let keys: Vec<Vec<String>> = swept
        .iter()
        .map(|row| {
            let place = others.iter().map(|&axis| row.texts[axis].clone());
            place.chain([row.row.preset.clone()]).collect()
        })
        .collect();
    let mut rows: Vec<&mut Row> = swept.iter_mut().map(|swept| &mut swept.row).collect();
    mark_pareto_within(&mut rows, &keys);
}

fn jobs(question: &Question, axes: &[Axis]) -> Result<Vec<Job>, LabError> {
    let start = question.presets.len() * question.policies.len();
    let points = axes
        .iter()
        .try_fold(start, |points, axis| points.checked_mul(axis.values.len()))
        .filter(|&points| points <= MOST_POINTS);
    if points.is_none() {
        let message = format!("the grid has more than {MOST_POINTS} points: lower --points");
        return Err(LabError::Sweep(message));
    }
    let mut jobs = Vec::new();
    for preset in &question.presets {
        for policy in &question.policies {
            jobs.push(Job {
                at: Vec::new(),
                scenario: question.scenario.clone(),
                preset: preset.clone(),
                policy: policy.clone(),
            });
        }
    }
    for axis in axes {
        let moved = jobs
            .iter()
            .flat_map(|job| axis.values.iter().map(|value| job.moved(axis, value)));
        jobs = moved.collect::<Result<_, _>>()?;
    }
    jobs.iter().try_for_each(Job::check)?;
    Ok(jobs)
}

impl Job {
    fn moved(&self, axis: &Axis, value: &Value) -> Result<Self, LabError> {
        let (mut scenario, mut preset) = (self.scenario.clone(), self.preset.clone());
        let mut policy = self.policy.clone();
        axis.parameter
            .set(value, &mut scenario, &mut preset, &mut policy)?;
        let mut at = self.at.clone();
        at.push(value.clone());
        Ok(Self {
            at,
            scenario,
            preset,
            policy,
        })
    }

    fn check(&self) -> Result<(), LabError> {
        let question = Question {
            scenario: self.scenario.clone(),
            presets: vec![self.preset.clone()],
            changes: Vec::new(),
            policies: vec![self.policy.clone()],
            asked_for: true,
        };
        question.pairs().map(|_| ())
    }
}
