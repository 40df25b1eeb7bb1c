//! The table, and the same as JSON.

use std::fmt;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::rounds::Spread;

/// One line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    what: String,
    unit: &'static str,
    measured: Spread,
    against: Option<Against>,
    wanted: Option<Wanted>,
}

/// What a line is measured against.
#[derive(Debug, Serialize)]
struct Against {
    what: String,
    figure: Spread,
    /// Of neighbouring rounds, measured over this.
    ratio: Spread,
}

/// The goal for the ratio, or for the figure itself where there is nothing to measure it against.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Wanted {
    AtMost(f64),
    AtLeast(f64),
}

impl Line {
    /// A figure on its own.
    pub(crate) fn alone(what: impl Into<String>, unit: &'static str, measured: &[f64]) -> Self {
        Self {
            what: what.into(),
            unit,
            measured: Spread::of(measured),
            against: None,
            wanted: None,
        }
    }

    /// A figure against another one, round by round.
    pub(crate) fn ratio(
        what: impl Into<String>,
        measured: &[f64],
        against: impl Into<String>,
        figures: &[f64],
    ) -> Self {
        Self {
            against: Some(Against {
                what: against.into(),
                figure: Spread::of(figures),
                ratio: Spread::of_ratios(measured, figures),
            }),
            ..Self::alone(what, "ns", measured)
        }
    }

    pub(crate) fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    pub(crate) fn wanted(self, wanted: Wanted) -> Self {
        Self {
            wanted: Some(wanted),
            ..self
        }
    }

    /// The figure that the goal is about.
    fn judged(&self) -> &Spread {
        let ratio = self.against.as_ref().map(|against| &against.ratio);
        ratio.unwrap_or(&self.measured)
    }

    fn verdict(&self) -> &'static str {
        let median = self.judged().median;
        match self.wanted {
            None => "",
            Some(Wanted::AtMost(most)) if median <= most => "yes",
            Some(Wanted::AtLeast(least)) if median >= least => "yes",
            Some(_) => "NO",
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::AtLeast(least) => write!(f, ">= {least}"),
        }
    }
}

/// All lines that were measured, in groups.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    quick: bool,
    processors: usize,
    groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
struct Group {
    name: &'static str,
    lines: Vec<Line>,
}

impl Report {
    pub(crate) fn new(quick: bool) -> Self {
        Self {
            quick,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            groups: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, name: &'static str, lines: Vec<Line>) {
        self.groups.push(Group { name, lines });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN).set_header([
            "what", "against", "unit", "what", "against", "ratio", "p10..p90", "wanted", "met",
        ]);
        for line in self.groups.iter().flat_map(|group| &group.lines) {
            let against = line.against.as_ref();
            let judged = line.judged();
            table.add_row([
                line.what.clone(),
                against.map_or_else(String::new, |against| against.what.clone()),
                line.unit.to_owned(),
                short(line.measured.median),
                against.map_or_else(String::new, |against| short(against.figure.median)),
                against.map_or_else(String::new, |against| short(against.ratio.median)),
                format!("{}..{}", short(judged.p10), short(judged.p90)),
                line.wanted
                    .map_or_else(String::new, |wanted| wanted.to_string()),
                line.verdict().to_owned(),
            ]);
        }
        for column in 3..=6 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        write!(
            f,
            "{table}\n{} processors; medians over interleaved rounds; p10..p90 of the ratio, or of the figure if it stands alone",
            self.processors
        )?;
        if self.quick {
            write!(f, "; --quick: few rounds")?;
        }
        Ok(())
    }
}

/// Three digits or so.
fn short(figure: f64) -> String {
    match figure.abs() {
        0.0..1.0 => format!("{figure:.3}"),
        1.0..10.0 => format!("{figure:.2}"),
        10.0..100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_held_against_the_ratio_where_there_is_one() {
        let line = Line::ratio("a", &[30.0], "b", &[10.0]);
        assert_eq!(line.wanted(Wanted::AtMost(3.0)).verdict(), "yes");
        let line = Line::ratio("a", &[30.1], "b", &[10.0]);
        assert_eq!(line.wanted(Wanted::AtMost(3.0)).verdict(), "NO");
        let line = Line::alone("a", "M/s", &[1.9]);
        assert_eq!(line.wanted(Wanted::AtLeast(2.0)).verdict(), "NO");
    }
}
