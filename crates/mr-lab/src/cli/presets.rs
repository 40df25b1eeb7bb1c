//! `mr-lab presets`, and how presets are found.

use super::args::PresetsArgs;
use super::output::deliver;
use crate::LabError;
use mr_mock::Preset;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// More than any preset file has; the parser says that it is too long.
const MOST_BYTES: u64 = 128 * 1024;

/// Lists the shipped presets, or shows the figures of those named.
pub(super) fn run(args: &PresetsArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let mut text = String::new();
    if args.preset.is_empty() {
        for name in Preset::names() {
            let preset = Preset::named(name)?;
            let _ = writeln!(text, "{:<24} {}", preset.name, preset.summary);
        }
    }
    for name in &args.preset {
        show(&mut text, &load(name)?);
    }
    deliver(text.as_bytes(), None, out)
}

fn show(text: &mut String, preset: &Preset) {
    let _ = writeln!(text, "{}: {}", preset.name, preset.summary);
    for figure in preset.figures() {
        let source = if figure.source.is_empty() {
            "-"
        } else {
            figure.source
        };
        let _ = writeln!(
            text,
            "  {:<25} {:>18}  {:<8}  {source}\n{:59}({})",
            figure.name,
            figure.value,
            figure.evidence.to_string(),
            "",
            figure.meaning.trim_end_matches('.'),
        );
    }
}

/// The preset of this name, or in this file.
pub(super) fn load(name: &str) -> Result<Preset, LabError> {
    if !name.ends_with(".toml") {
        return Ok(Preset::named(name)?);
    }
    let path = Path::new(name);
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text))
        .map_err(|source| LabError::File {
            path: path.to_owned(),
            source,
        })?;
    Ok(Preset::parse(name, &text)?)
}

/// Sets every `FIGURE=VALUE` in `preset`, all at once: one may be wrong without another.
pub(super) fn set(preset: Preset, assignments: &[&str]) -> Result<Preset, LabError> {
    let assignments: Vec<_> = assignments
        .iter()
        .map(|assignment| match assignment.split_once('=') {
            Some((figure, value)) => Ok((figure.trim(), value.trim())),
            None => Err(LabError::Usage(format!(
                "--set {assignment}: write FIGURE=VALUE, such as sync_ns=1000000"
            ))),
        })
        .collect::<Result<_, _>>()?;
    Ok(preset.with(&assignments)?)
}
