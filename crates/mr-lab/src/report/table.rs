//! Rows as a table for people.

use super::figures::{bytes, count, number, time};
use crate::answer::Skipped;
use crate::row::Row;
use comfy_table::{Cell, CellAlignment, Table, presets};
use std::io::{self, Write};

/// Two lines of a heading, and what stands below.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 18] = [
    ("flushes\nper s", |row| number(row.flushes_per_s)),
    ("regions\n/flush", |row| number(row.regions_per_flush)),
    ("misses\nper I/O", |row| number(row.tpt_misses_per_io)),
    ("HCA us\nper I/O", |row| number(row.hca_us_per_io)),
    ("CPU us\nper I/O", |row| number(row.cpu_us_per_io)),
    ("cmd us\nper I/O", |row| number(row.command_us_per_io)),
    ("MB/s", |row| number(row.throughput_mb_s)),
    ("latency\np50", |row| time(row.latency_us.p50 / 1e6)),
    ("\np99", |row| time(row.latency_us.p99 / 1e6)),
    ("\np99.9", |row| time(row.latency_us.p999 / 1e6)),
    ("waits", |row| row.waits.to_string()),
    ("stale keys\nmean", |row| count(row.stale_keys.mean)),
    ("\nmax", |row| count(row.stale_keys.max)),
    ("exposure\nmean", |row| time(row.exposure_s.mean)),
    ("\nmax", |row| time(row.exposure_s.max)),
    ("key-\nseconds", |row| count(row.key_seconds)),
    ("pinned\npeak", |row| bytes(row.pinned_bytes_peak as f64)),
    ("Pareto", |row| if row.pareto { "*" } else { "" }.into()),
];

/// Writes rows, and below them what could not be run, with the reason.
pub(super) fn write<'a>(
    out: &mut dyn Write,
    rows: &[&Row],
    skipped: impl Iterator<Item = &'a Skipped>,
) -> io::Result<()> {
    let named: Vec<_> = rows.iter().map(|row| (row.policy.clone(), *row)).collect();
    write_named(out, "policy", &named)?;
    for Skipped { policy, reason, .. } in skipped {
        // The reason starts with the policy.
        let reason = reason.strip_prefix(policy.as_str()).unwrap_or(reason);
        writeln!(
            out,
            " {policy}: n/a{reason}",
            reason = reason.replacen(':', ",", 1)
        )?;
    }
    Ok(())
}

/// Writes rows under names of their own.
pub(super) fn write_named(
    out: &mut dyn Write,
    heading: &str,
    rows: &[(String, &Row)],
) -> io::Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let headings = COLUMNS.iter().map(|(heading, _)| *heading);
    table.set_header(std::iter::once(heading).chain(headings));
    for (name, row) in rows {
        let cells = COLUMNS
            .iter()
            .map(|(_, show)| Cell::new(show(row)).set_alignment(CellAlignment::Right));
        table.add_row(std::iter::once(Cell::new(name)).chain(cells));
    }
    for column in table.column_iter_mut() {
        column.set_padding((1, 0));
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
