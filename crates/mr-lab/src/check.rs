//! The closed forms beside the simulation.

use crate::LabError;
use crate::answer::Question;
use crate::closed::{Forecast, forecast};
use crate::parallel;
use crate::row::Row;
use crate::scenario::{Load, Scenario};
use crate::sim;
use mr_mock::Preset;
use mr_policies::Policy;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::time::Duration;

/// How far a simulation may be from its closed form.
pub const TOLERANCE: f64 = 0.05;
/// A run lasts this many flushes, so that the ends count for little.
const FLUSHES: f64 = 50.0;
/// The longest that a run is made for this.
const LONGEST: Duration = Duration::from_secs(3600);

/// One policy on one preset, computed and simulated.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// The simulation.
    #[serde(flatten)]
    pub row: Row,
    /// The arithmetic; `None` if there is none.
    pub closed: Option<Forecast>,
    /// Whether they agree; `None` if there is nothing to compare with.
    pub agrees: Option<bool>,
}

/// Runs every policy that can run, and compares.
///
/// # Errors
///
/// The load is not steady, the scenario or a policy cannot hold, or a run fails.
pub fn check(
    question: &Question,
    threads: NonZeroUsize,
    begin: impl FnOnce(usize),
    done: impl Fn() + Sync,
) -> Result<Vec<Checked>, LabError> {
    let jobs = jobs(question)?;
    begin(jobs.len());
    let work = |(scenario, preset, policy): &(Scenario, &Preset, &Policy)| {
        let row = sim::run(scenario, preset, policy)?;
        let closed = forecast(scenario, preset, policy);
        let agrees = closed.map(|closed| agree(&row, &closed));
        Ok(Checked {
            row,
            closed,
            agrees,
        })
    };
    parallel::map(&jobs, threads, work, done)
        .into_iter()
        .collect()
}

type Job<'q> = (Scenario, &'q Preset, &'q Policy);

fn jobs(question: &Question) -> Result<Vec<Job<'_>>, LabError> {
    let scenario = &question.scenario;
    let mut jobs = Vec::new();
    for (preset, policy) in question.pairs()?.0 {
        let mut scenario = scenario.clone();
        if let Some(closed) = forecast(&scenario, preset, policy) {
            lengthen(&mut scenario, &closed);
        }
        jobs.push((scenario, preset, policy));
    }
    Ok(jobs)
}

/// Makes the run long enough for the flush rate to be seen.
fn lengthen(scenario: &mut Scenario, closed: &Forecast) {
    if let Load::Synthetic { duration, .. } = &mut scenario.load
        && !closed.bound
    {
        let wanted = Duration::try_from_secs_f64(FLUSHES / closed.flushes_per_s);
        *duration = wanted.unwrap_or(LONGEST).min(LONGEST).max(*duration);
    }
}

fn agree(row: &Row, closed: &Forecast) -> bool {
    let exposure = &row.exposure_s;
    if closed.bound {
        return exposure.mean <= closed.exposure_mean_s * (1.0 + TOLERANCE)
            && exposure.max <= closed.exposure_max_s * (1.0 + TOLERANCE);
    }
    [
        (row.flushes_per_s, closed.flushes_per_s),
        (row.regions_per_flush, closed.regions_per_flush),
        (exposure.mean, closed.exposure_mean_s),
        (exposure.max, closed.exposure_max_s),
    ]
    .into_iter()
    .all(|(simulated, computed)| (simulated - computed).abs() <= TOLERANCE * computed)
}

/// Whether all agree.
///
/// # Errors
///
/// [`LabError::Disagree`] if some do not.
pub fn verdict(checked: &[Checked]) -> Result<(), LabError> {
    let verdicts = checked.iter().filter_map(|checked| checked.agrees);
    let (rows, of) = verdicts.fold((0, 0), |(rows, of), agrees| {
        (rows + usize::from(!agrees), of + 1)
    });
    if rows == 0 {
        return Ok(());
    }
    Err(LabError::Disagree {
        rows,
        of,
        percent: TOLERANCE * 100.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    /// One run, held to its own figures but for one that is `factor` as large.
    fn checked(spoil: fn(&mut Forecast) -> &mut f64, factor: f64) -> Checked {
        let mut scenario = Scenario::default();
        if let Load::Synthetic { duration, .. } = &mut scenario.load {
            *duration = Duration::from_secs(2);
        }
        let preset = Preset::named("connectx-2008").unwrap();
        let policy = "threshold=99".parse().unwrap();
        let row = sim::run(&scenario, &preset, &policy).unwrap();
        let mut closed = Forecast {
            flushes_per_s: row.flushes_per_s,
            regions_per_flush: row.regions_per_flush,
            exposure_mean_s: row.exposure_s.mean,
            exposure_max_s: row.exposure_s.max,
            bound: false,
        };
        *spoil(&mut closed) *= factor;
        let agrees = Some(agree(&row, &closed));
        Checked {
            row,
            closed: Some(closed),
            agrees,
        }
    }

    #[test]
    fn each_figure_counts() {
        let figures: [fn(&mut Forecast) -> &mut f64; 4] = [
            |closed| &mut closed.flushes_per_s,
            |closed| &mut closed.regions_per_flush,
            |closed| &mut closed.exposure_mean_s,
            |closed| &mut closed.exposure_max_s,
        ];
        for figure in figures {
            for (factor, agrees) in [(0.9, false), (0.96, true), (1.04, true), (1.1, false)] {
                assert_eq!(checked(figure, factor).agrees, Some(agrees), "{factor}");
            }
        }
    }

    #[test]
    fn one_disagreement_is_enough() {
        let good = || checked(|closed| &mut closed.flushes_per_s, 1.0);
        let bad = checked(|closed| &mut closed.exposure_max_s, 2.0);
        assert!(verdict(&[good(), good()]).is_ok());
        let error = verdict(&[good(), bad]).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().starts_with("1 of 2 rows"), "{error}");
    }
}
