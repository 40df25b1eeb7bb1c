//! Rows as comma-separated values (RFC 4180): a header, and a line per row.

use crate::row::Row;
use std::io::{self, Write};

/// A name, and how its value is had from a row.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 26] = [
    ("preset", |row| quoted(&row.preset)),
    ("policy", |row| quoted(&row.policy)),
    ("ios", |row| row.ios.to_string()),
    ("elapsed_s", |row| row.elapsed_s.to_string()),
    ("flushes", |row| row.flushes.to_string()),
    ("flushes_per_s", |row| row.flushes_per_s.to_string()),
    ("regions_per_flush", |row| row.regions_per_flush.to_string()),
    ("tpt_misses_per_io", |row| row.tpt_misses_per_io.to_string()),
    ("hca_us_per_io", |row| row.hca_us_per_io.to_string()),
    ("cpu_us_per_io", |row| row.cpu_us_per_io.to_string()),
    ("command_us_per_io", |row| row.command_us_per_io.to_string()),
    ("cost_us_per_io", |row| row.cost_us_per_io.to_string()),
    ("flush_load", |row| row.flush_load.to_string()),
    ("throughput_mb_s", |row| row.throughput_mb_s.to_string()),
    ("latency_us_p50", |row| row.latency_us.p50.to_string()),
    ("latency_us_p99", |row| row.latency_us.p99.to_string()),
    ("latency_us_p999", |row| row.latency_us.p999.to_string()),
    ("waits", |row| row.waits.to_string()),
    ("stale_keys_mean", |row| row.stale_keys.mean.to_string()),
    ("stale_keys_max", |row| row.stale_keys.max.to_string()),
    ("exposure_s_mean", |row| row.exposure_s.mean.to_string()),
    ("exposure_s_max", |row| row.exposure_s.max.to_string()),
    ("key_seconds", |row| row.key_seconds.to_string()),
    ("byte_seconds", |row| row.byte_seconds.to_string()),
    ("pinned_bytes_peak", |row| row.pinned_bytes_peak.to_string()),
    ("pareto", |row| row.pareto.to_string()),
];

/// Writes rows; with names of more columns in front, and their values for each row.
pub(super) fn write<'a>(
    out: &mut dyn Write,
    more: &[&str],
    rows: impl Iterator<Item = (Vec<String>, &'a Row)>,
) -> io::Result<()> {
    let names = more.iter().copied();
    let names: Vec<_> = names.chain(COLUMNS.iter().map(|(name, _)| *name)).collect();
    writeln!(out, "{}", names.join(","))?;
    for (values, row) in rows {
        let columns = COLUMNS.iter().map(|(_, show)| show(row));
        let line: Vec<_> = values.into_iter().chain(columns).collect();
        writeln!(out, "{}", line.join(","))?;
    }
    Ok(())
}

/// Text as a field of its own, whatever is in it.
pub(super) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_needs_it() {
        assert_eq!(quoted("srp"), "srp");
        assert_eq!(quoted("use-n=32,threshold=4"), "\"use-n=32,threshold=4\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
