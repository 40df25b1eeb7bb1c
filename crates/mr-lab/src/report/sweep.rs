//! A row per point of a grid.

use super::{Format, csv, json, table, view::Described};
use crate::answer::Question;
use crate::sweep::{Axis, SweptRow};
use std::io::{self, Write};

/// Writes what [`sweep`](crate::sweep::sweep) has found.
///
/// # Errors
///
/// Of `out`.
pub fn write(
    out: &mut dyn Write,
    format: Format,
    question: &Question,
    axes: &[Axis],
    rows: &[SweptRow],
) -> io::Result<()> {
    match format {
        Format::Json => json::write_rows(out, question, rows, &[]),
        Format::Csv => {
            let names: Vec<_> = axes.iter().map(|axis| axis.parameter.name()).collect();
            let rows = rows.iter().map(|swept| {
                let point = axes.iter().map(|axis| swept.point[axis.parameter.name()]);
                (point.map(|value| value.to_string()).collect(), &swept.row)
            });
            csv::write(out, &names, rows)
        }
        Format::Table => {
            writeln!(out, "{}\n", Described(question))?;
            let named: Vec<_> = rows
                .iter()
                .map(|swept| (name(axes, swept), &swept.row))
                .collect();
            table::write_named(out, "point", &named)?;
            writeln!(
                out,
                " (Pareto: among the policies at one point of all other numbers)"
            )
        }
    }
}

fn name(axes: &[Axis], swept: &SweptRow) -> String {
    let others = axes
        .iter()
        .zip(&swept.texts)
        .filter(|(axis, _)| !axis.parameter.is_of_policy())
        .map(|(axis, text)| format!(" {}={text}", axis.parameter.name()));
    let others: String = others.collect();
    format!("{} {}{others}", swept.row.preset, swept.row.policy)
}
