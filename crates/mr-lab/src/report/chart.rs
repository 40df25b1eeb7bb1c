//! The two numbers that matter as bars: what a policy costs, and how long it leaves keys alive.

use super::figures::{number, time};
use crate::row::Row;
use std::io::{self, Write};

/// Characters of the longest bar.
const WIDTH: usize = 28;

/// Writes a line per row, from the shortest exposure to the longest. Costs are on a linear scale
/// from the cheapest row on; exposures on a logarithmic one, since they span seven decades.
pub(super) fn write(out: &mut dyn Write, rows: &[&Row]) -> io::Result<()> {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| a.exposure_s.mean.total_cmp(&b.exposure_s.mean));
    let cheapest = least(rows.iter().map(|row| row.cost_us_per_io));
    let dearest = greatest(rows.iter().map(|row| row.cost_us_per_io - cheapest));
    let shortest = least(rows.iter().map(|row| exposure(row)));
    let decades = greatest(rows.iter().map(|row| (exposure(row) / shortest).log10()));
    let names = rows.iter().map(|row| row.policy.len()).max().unwrap_or(0);
    let title = format!("cost, us per I/O over the cheapest ({})", number(cheapest));
    writeln!(
        out,
        "\n   {:names$}  {title:<cost$}  exposure, mean (log scale)",
        "",
        cost = 10 + 2 + WIDTH,
    )?;
    for row in rows {
        let over = row.cost_us_per_io - cheapest;
        let mark = if row.pareto { '*' } else { ' ' };
        let line = format!(
            " {mark} {:names$}  {:>10}  {}  {:>8}  {}",
            row.policy,
            format!("+{}", number(over)),
            bar(over / dearest),
            time(row.exposure_s.mean),
            // Also the shortest one is seen: it starts a decade below.
            bar(((exposure(row) / shortest).log10() + 1.0) / (decades + 1.0)),
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(
        out,
        "   (*: no other policy here is both cheaper and shorter)"
    )
}

/// Logarithms need more than nothing.
fn exposure(row: &Row) -> f64 {
    row.exposure_s.mean.max(1e-9)
}

/// A bar of this share of the whole width, in eighths of a character.
fn bar(share: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let eighths = (share * WIDTH as f64 * 8.0).round() as usize;
    let bar = "█".repeat(eighths / 8) + PARTS[eighths % 8];
    format!("{bar:WIDTH$}")
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn greatest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_one_width() {
        for share in [
            -1.0,
            0.0,
            0.001,
            0.5,
            0.999,
            1.0,
            7.0,
            f64::NAN,
            f64::INFINITY,
        ] {
            assert_eq!(bar(share).chars().count(), WIDTH, "{share}");
        }
        assert_eq!(bar(0.5).trim_end().chars().count(), WIDTH / 2);
        assert_eq!(bar(1.0).trim_end().chars().count(), WIDTH);
    }
}
