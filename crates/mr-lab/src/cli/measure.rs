//! `mr-lab measure`.

use super::args::MeasureArgs;
use super::output::deliver;
use crate::measure::{Plan, measure};
use crate::{LabError, report};
use std::io::Write;

/// Some of each kind that holds in the default pool.
const POLICIES: [&str; 5] = [
    "immediate",
    "threshold=64",
    "use-once",
    "periodic=100ms",
    "max-exposure=100ms",
];

/// `mr-lab measure`.
pub(super) fn run(args: &MeasureArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let plan = plan(args)?;
    let measured = measure(&plan)?;
    let mut text = Vec::new();
    report::measure::write(&mut text, args.format, &measured)
        .map_err(|source| LabError::Output { path: None, source })?;
    deliver(&text, args.output.as_deref(), out)
}

fn plan(args: &MeasureArgs) -> Result<Plan, LabError> {
    let mut policies = args.policy.clone();
    if policies.is_empty() && !args.alone {
        for text in POLICIES {
            policies.push(text.parse()?);
        }
    }
    Ok(Plan {
        device: args.device.clone(),
        backend: args.backend,
        chained: args.chained,
        policies,
        size: args.size,
        ios: args.ios,
        rate: args.rate,
        regions: args.regions,
        batch: args.batch,
        depth: args.depth,
        rounds: args.rounds,
    })
}
