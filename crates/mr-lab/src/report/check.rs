//! Closed forms beside the simulation.

use super::figures::{number, time};
use super::{Format, csv, json, view::Described};
use crate::answer::Question;
use crate::check::{Checked, TOLERANCE};
use crate::closed::Forecast;
use comfy_table::{Cell, CellAlignment, Table, presets};
use std::io::{self, Write};

/// Columns of the CSV in front of those of the simulation.
const CLOSED: [&str; 6] = [
    "agrees",
    "closed_bound",
    "closed_flushes_per_s",
    "closed_regions_per_flush",
    "closed_exposure_mean_s",
    "closed_exposure_max_s",
];

/// Writes what [`check`](crate::check::check) has found.
///
/// # Errors
///
/// Of `out`.
pub fn write(
    out: &mut dyn Write,
    format: Format,
    question: &Question,
    checked: &[Checked],
) -> io::Result<()> {
    match format {
        Format::Json => json::write_rows(out, question, checked, &[]),
        Format::Csv => {
            let rows = checked
                .iter()
                .map(|checked| (fields(checked), &checked.row));
            csv::write(out, &CLOSED, rows)
        }
        Format::Table => table(out, question, checked),
    }
}

fn fields(checked: &Checked) -> Vec<String> {
    let agrees = checked.agrees.map(|agrees| agrees.to_string());
    let closed = checked.closed.map(|closed| {
        [
            closed.bound.to_string(),
            closed.flushes_per_s.to_string(),
            closed.regions_per_flush.to_string(),
            closed.exposure_mean_s.to_string(),
            closed.exposure_max_s.to_string(),
        ]
    });
    let mut fields = vec![agrees.unwrap_or_default()];
    fields.extend(closed.unwrap_or_default());
    fields
}

fn table(out: &mut dyn Write, question: &Question, checked: &[Checked]) -> io::Result<()> {
    writeln!(out, "{}\n", Described(question))?;
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "preset",
        "policy",
        "flushes/s\nsimulated",
        "\nclosed",
        "regions/flush\nsimulated",
        "\nclosed",
        "mean exposure\nsimulated",
        "\nclosed",
        "max exposure\nsimulated",
        "\nclosed",
        "within\n5 %",
    ]);
    for checked in checked {
        let cells = line(checked).into_iter().enumerate().map(|(place, text)| {
            let alignment = if place < 2 {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            };
            Cell::new(text).set_alignment(alignment)
        });
        table.add_row(cells);
    }
    for column in table.column_iter_mut() {
        column.set_padding((1, 0));
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    debug_assert!((TOLERANCE - 0.05).abs() < f64::EPSILON);
    writeln!(out, " (<: a bound; -: there is no closed form)")
}

fn line(checked: &Checked) -> Vec<String> {
    let row = &checked.row;
    let closed = |show: fn(&Forecast) -> String| {
        let text = checked.closed.as_ref().map(show);
        text.unwrap_or_else(|| "-".into())
    };
    let bounded = |show: fn(&Forecast) -> f64| {
        let text = checked.closed.as_ref().map(|closed| {
            let sign = if closed.bound { "<" } else { "" };
            format!("{sign}{}", time(show(closed)))
        });
        text.unwrap_or_else(|| "-".into())
    };
    vec![
        row.preset.clone(),
        row.policy.clone(),
        number(row.flushes_per_s),
        closed(|closed| number(closed.flushes_per_s)),
        number(row.regions_per_flush),
        closed(|closed| number(closed.regions_per_flush)),
        time(row.exposure_s.mean),
        bounded(|closed| closed.exposure_mean_s),
        time(row.exposure_s.max),
        bounded(|closed| closed.exposure_max_s),
        match checked.agrees {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        }
        .into(),
    ]
}
