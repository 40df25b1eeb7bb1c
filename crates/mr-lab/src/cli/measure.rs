//! `mr-lab measure`.

use super::args::MeasureArgs;
use super::output::deliver;
use crate::measure::{Mechanism, Plan, figures, measure};
use crate::{LabError, report};
use mr_mock::Preset;
use std::io::Write;

/// Some of each kind that holds in the default pool.
const POLICIES: [&str; 5] = [
    "immediate",
    "threshold=64",
    "use-once",
    "periodic=100ms",
    "max-exposure=100ms",
];

/// The load of a preset's figures, in I/Os per second: far below what any device carries, so that
/// each I/O finds the processor's caches full of other things.
const PRESET_RATE: f64 = 200.0;

/// The preset whose figures `--preset` measures.
const PRESET: &str = "soft-roce";

/// `mr-lab measure`.
pub(super) fn run(args: &MeasureArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let plan = plan(args)?;
    let measured = measure(&plan)?;
    let mut text = Vec::new();
    let written = if args.preset {
        let packet = Preset::named(PRESET)?.mtu_bytes.value;
        report::measure::write_figures(&mut text, &measured, &figures(&measured, packet))
    } else {
        report::measure::write(&mut text, args.format, &measured)
    };
    written.map_err(|source| LabError::Output { path: None, source })?;
    deliver(&text, args.output.as_deref(), out)
}

fn plan(args: &MeasureArgs) -> Result<Plan, LabError> {
    let mut policies = args.policy.clone();
    if policies.is_empty() && !args.alone {
        for text in POLICIES {
            policies.push(text.parse()?);
        }
    }
    if args.preset && args.backend != Mechanism::Mw2 {
        let message = "--preset needs --backend mw2: its figures are of binds and LOCAL_INV";
        return Err(LabError::Usage(message.into()));
    }
    Ok(Plan {
        device: args.device.clone(),
        backend: args.backend,
        chained: args.chained || args.preset,
        policies,
        size: args.size,
        ios: args.ios,
        rate: args.rate.or(args.preset.then_some(PRESET_RATE)),
        regions: args.regions,
        batch: args.batch,
        depth: if args.preset { args.batch } else { args.depth },
        rounds: args.rounds,
    })
}
