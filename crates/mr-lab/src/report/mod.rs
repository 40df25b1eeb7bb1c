//! Answers in the shapes that people and programs read.

mod chart;
pub mod check;
mod csv;
mod figures;
mod json;
pub mod measure;
pub mod sweep;
mod table;
mod view;

use crate::answer::{Answer, Question};
use crate::row::Row;
use std::io::{self, Write};
use view::Described;

/// The shape of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people, with a bar chart.
    #[default]
    Table,
    /// An object with `scenario`, `rows` and `skipped`.
    Json,
    /// A header and a line per row.
    Csv,
}

/// Writes an answer with the question that it answers.
///
/// # Errors
///
/// Of `out`.
pub fn write(
    out: &mut dyn Write,
    format: Format,
    question: &Question,
    answer: &Answer,
) -> io::Result<()> {
    match format {
        Format::Json => json::write(out, question, answer),
        Format::Csv => {
            let rows = answer.rows.iter().map(|row| (Vec::new(), row));
            csv::write(out, &[], rows)
        }
        Format::Table => {
            writeln!(out, "{}", Described(question))?;
            for preset in &question.presets {
                let rows: Vec<&Row> = answer
                    .rows
                    .iter()
                    .filter(|row| row.preset == preset.name)
                    .collect();
                let skipped = answer
                    .skipped
                    .iter()
                    .filter(|skipped| skipped.preset == preset.name);
                writeln!(out, "\n{}: {}", preset.name, preset.summary)?;
                table::write(out, &rows, skipped)?;
                chart::write(out, &rows)?;
            }
            Ok(())
        }
    }
}
