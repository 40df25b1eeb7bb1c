//! The commands that simulate.

use super::args::{CommonArgs, CompareArgs, ReplayArgs, SweepArgs};
use super::output::deliver;
use super::presets;
use super::progress::Progress;
use crate::answer::Question;
use crate::recording::Recording;
use crate::report::Format;
use crate::scenario::Load;
use crate::sweep::Axis;
use crate::trace::Options;
use crate::{LabError, all_cores, check, policies, report, sweep};
use mr_mock::Preset;
use mr_policies::Policy;
use std::io::{self, Write};
use std::num::NonZeroUsize;

/// The HCA of the mail's day, and a modern one.
const PRESETS: [&str; 2] = ["connectx-2008", "connectx-5"];

/// `mr-lab compare`.
pub(super) fn compare(args: &CompareArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let question = question(
        &args.common,
        args.load.load(),
        &PRESETS,
        policies::compared()?,
    )?;
    if args.check {
        check(&args.common, &question, out)
    } else {
        answer(&args.common, &question, out)
    }
}

fn check(common: &CommonArgs, question: &Question, out: &mut dyn Write) -> Result<(), LabError> {
    if !question.scenario.load.is_steady() {
        let message = "--check needs --arrival steady and one --size: closed forms are about those";
        return Err(LabError::Usage(message.into()));
    }
    let progress = Progress::new();
    let checked = check::check(
        question,
        threads(common),
        |runs| progress.expect(runs),
        || progress.one_done(),
    )?;
    drop(progress);
    write(common, out, |text, format| {
        report::check::write(text, format, question, &checked)
    })?;
    check::verdict(&checked)
}

/// `mr-lab replay`.
pub(super) fn replay(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let options = Options {
        rate: args.rate,
        ..Options::default()
    };
    let recording = Recording::open(&args.file, options, args.speed)?;
    let question = question(
        &args.common,
        Load::Recorded(recording),
        &PRESETS,
        policies::compared()?,
    )?;
    answer(&args.common, &question, out)
}

/// `mr-lab sweep`.
pub(super) fn sweep(args: &SweepArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let policies = vec!["threshold=4000".parse()?];
    let question = question(&args.common, args.load.load(), &PRESETS[..1], policies)?;
    let axes = args
        .over
        .iter()
        .map(|text| Axis::parse(text, args.points))
        .collect::<Result<Vec<_>, _>>()?;
    let progress = Progress::new();
    let rows = sweep::sweep(
        &question,
        &axes,
        threads(&args.common),
        |runs| progress.expect(runs),
        || progress.one_done(),
    )?;
    drop(progress);
    write(&args.common, out, |text, format| {
        report::sweep::write(text, format, &question, &axes, &rows)
    })
}

fn question(
    common: &CommonArgs,
    load: Load,
    default_presets: &[&str],
    default_policies: Vec<Policy>,
) -> Result<Question, LabError> {
    let asked_for = !common.policy.is_empty();
    let mtu = common.hca.mtu.map(|mtu| format!("mtu_bytes={mtu}"));
    let changes: Vec<String> = common.hca.figures.iter().cloned().chain(mtu).collect();
    Ok(Question {
        scenario: common.scenario(load),
        presets: load_presets(common, default_presets, &changes)?,
        changes,
        policies: if asked_for {
            common.policy.clone()
        } else {
            default_policies
        },
        asked_for,
    })
}

/// The presets named, with the figures changed that were.
fn load_presets(
    common: &CommonArgs,
    defaults: &[&str],
    changes: &[String],
) -> Result<Vec<Preset>, LabError> {
    let named: Vec<&str> = common.hca.preset.iter().map(String::as_str).collect();
    let names = if named.is_empty() { defaults } else { &named };
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let presets = names
        .iter()
        .map(|name| presets::set(presets::load(name)?, &changes))
        .collect::<Result<Vec<_>, _>>()?;
    let twice = presets.iter().enumerate().find(|(place, preset)| {
        let before = presets.iter().take(*place);
        before.into_iter().any(|other| other.name == preset.name)
    });
    match twice {
        None => Ok(presets),
        Some((_, preset)) => Err(LabError::Usage(format!(
            "two presets are called {}: give one of them another name",
            preset.name
        ))),
    }
}

fn answer(common: &CommonArgs, question: &Question, out: &mut dyn Write) -> Result<(), LabError> {
    let progress = Progress::new();
    let answer = question.answer(
        threads(common),
        |runs| progress.expect(runs),
        || progress.one_done(),
    )?;
    drop(progress);
    write(common, out, |text, format| {
        report::write(text, format, question, &answer)
    })
}

fn threads(common: &CommonArgs) -> NonZeroUsize {
    common.output.jobs.unwrap_or_else(all_cores)
}

/// Writes a whole answer, and then delivers it.
fn write(
    common: &CommonArgs,
    out: &mut dyn Write,
    report: impl FnOnce(&mut Vec<u8>, Format) -> io::Result<()>,
) -> Result<(), LabError> {
    let mut text = Vec::new();
    report(&mut text, common.output.format)
        .map_err(|source| LabError::Output { path: None, source })?;
    deliver(&text, common.output.output.as_deref(), out)
}
