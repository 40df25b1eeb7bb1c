//! The commands that simulate.

use super::args::{CommonArgs, CompareArgs, ReplayArgs};
use super::output::deliver;
use super::presets;
use super::progress::Progress;
use crate::LabError;
use crate::answer::{Answer, Question};
use crate::recording::Recording;
use crate::scenario::Load;
use crate::trace::Options;
use crate::{all_cores, policies, report};
use mr_mock::Preset;
use std::io::Write;

/// The HCA of the mail's day, and a modern one.
const PRESETS: [&str; 2] = ["connectx-2008", "connectx-5"];

/// `mr-lab compare`.
pub(super) fn compare(
    args: &CompareArgs,
    out: &mut dyn Write,
    _err: &mut dyn Write,
) -> Result<(), LabError> {
    let question = question(&args.common, args.load.load(), &PRESETS)?;
    answer(&args.common, &question, out)
}

/// `mr-lab replay`.
pub(super) fn replay(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let options = Options {
        rate: args.rate,
        ..Options::default()
    };
    let recording = Recording::open(&args.file, options, args.speed)?;
    let question = question(&args.common, Load::Recorded(recording), &PRESETS)?;
    answer(&args.common, &question, out)
}

fn question(
    common: &CommonArgs,
    load: Load,
    default_presets: &[&str],
) -> Result<Question, LabError> {
    let asked_for = !common.policy.is_empty();
    Ok(Question {
        scenario: common.scenario(load),
        presets: load_presets(common, default_presets)?,
        policies: if asked_for {
            common.policy.clone()
        } else {
            policies::compared()?
        },
        asked_for,
    })
}

/// The presets named, with the figures changed that were.
fn load_presets(common: &CommonArgs, defaults: &[&str]) -> Result<Vec<Preset>, LabError> {
    let hca = &common.hca;
    let names: Vec<&str> = if hca.preset.is_empty() {
        defaults.to_vec()
    } else {
        hca.preset.iter().map(String::as_str).collect()
    };
    let mtu = hca.mtu.map(|mtu| format!("mtu_bytes={mtu}"));
    let changes: Vec<&str> = hca.figures.iter().chain(&mtu).map(String::as_str).collect();
    names
        .into_iter()
        .map(|name| presets::set(presets::load(name)?, &changes))
        .collect()
}

fn answer(common: &CommonArgs, question: &Question, out: &mut dyn Write) -> Result<(), LabError> {
    let answer = simulate(common, question)?;
    let output = &common.output;
    let mut text = Vec::new();
    report::write(&mut text, output.format, question, &answer)
        .map_err(|source| LabError::Output { path: None, source })?;
    deliver(&text, output.output.as_deref(), out)
}

fn simulate(common: &CommonArgs, question: &Question) -> Result<Answer, LabError> {
    let progress = Progress::new();
    question.answer(
        common.output.jobs.unwrap_or_else(all_cores),
        |runs| progress.expect(runs),
        || progress.one_done(),
    )
}
