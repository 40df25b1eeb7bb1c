//! Answers as JSON: an object with `scenario`, `rows` and `skipped`.

use super::view::ScenarioView;
use crate::answer::{Answer, Question, Skipped};
use crate::row::Row;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Document<'a, R: Serialize> {
    scenario: ScenarioView,
    rows: &'a [R],
    skipped: &'a [Skipped],
}

/// Writes an answer.
pub(super) fn write(out: &mut dyn Write, question: &Question, answer: &Answer) -> io::Result<()> {
    write_rows(out, question, &answer.rows as &[Row], &answer.skipped)
}

/// Writes rows of any shape.
pub(super) fn write_rows<R: Serialize>(
    out: &mut dyn Write,
    question: &Question,
    rows: &[R],
    skipped: &[Skipped],
) -> io::Result<()> {
    let scenario = ScenarioView::of(question);
    let document = Document {
        scenario,
        rows,
        skipped,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
