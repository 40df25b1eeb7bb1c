//! What was measured on a device, in the shapes that people and programs read.

use super::Format;
use super::csv::quoted;
use super::figures::{count, number, time};
use crate::measure::{Figure, Measured, Measurement, Ratios};
use crate::units::show_bytes;
use comfy_table::{Cell, CellAlignment, Table, presets};
use std::io::{self, Write};

/// A name, and how its value is had from a row.
type Column = (&'static str, fn(&Measured) -> String);

const TABLE: [Column; 17] = [
    ("flushes\nper s", |row| number(row.flushes_per_s)),
    ("regions\n/flush", |row| number(row.regions_per_flush)),
    ("CPU us\nper I/O", |row| number(row.cpu_us_per_io)),
    ("\nquartiles", |row| number(row.cpu_us_quartile_low)),
    ("", |row| number(row.cpu_us_quartile_high)),
    ("in all", |row| number(row.process_cpu_us_per_io)),
    ("caller us\nper I/O", |row| number(row.caller_us_per_io)),
    ("MB/s", |row| number(row.throughput_mb_s)),
    ("latency\np50", |row| time(row.latency_us.p50 / 1e6)),
    ("\np99", |row| time(row.latency_us.p99 / 1e6)),
    ("\np99.9", |row| time(row.latency_us.p999 / 1e6)),
    ("waits", |row| number(row.waits)),
    ("exposure\nmean", |row| time(row.exposure_s.mean)),
    ("\nmax", |row| time(row.exposure_s.max)),
    ("key-\nseconds", |row| count(row.key_seconds)),
    ("flushes", |row| number(row.flushes)),
    ("cheaper\nby", |row| {
        row.registration_ratio.map_or_else(String::new, number)
    }),
];

const CSV: [Column; 21] = [
    ("backend", |row| quoted(&row.backend)),
    ("policy", |row| quoted(&row.policy)),
    ("ios", |row| row.ios.to_string()),
    ("elapsed_s", |row| row.elapsed_s.to_string()),
    ("flushes", |row| row.flushes.to_string()),
    ("flushes_per_s", |row| row.flushes_per_s.to_string()),
    ("regions_per_flush", |row| row.regions_per_flush.to_string()),
    ("cpu_us_per_io", |row| row.cpu_us_per_io.to_string()),
    ("cpu_us_quartile_low", |row| {
        row.cpu_us_quartile_low.to_string()
    }),
    ("cpu_us_quartile_high", |row| {
        row.cpu_us_quartile_high.to_string()
    }),
    ("process_cpu_us_per_io", |row| {
        row.process_cpu_us_per_io.to_string()
    }),
    ("caller_us_per_io", |row| row.caller_us_per_io.to_string()),
    ("throughput_mb_s", |row| row.throughput_mb_s.to_string()),
    ("latency_us_p50", |row| row.latency_us.p50.to_string()),
    ("latency_us_p99", |row| row.latency_us.p99.to_string()),
    ("latency_us_p999", |row| row.latency_us.p999.to_string()),
    ("waits", |row| row.waits.to_string()),
    ("exposure_s_mean", |row| row.exposure_s.mean.to_string()),
    ("exposure_s_max", |row| row.exposure_s.max.to_string()),
    ("key_seconds", |row| row.key_seconds.to_string()),
    ("registration_ratio", |row| {
        let ratio = row.registration_ratio;
        ratio.map_or_else(String::new, |ratio| ratio.to_string())
    }),
];

/// What of the ratios is said of which.
type Line = (&'static str, fn(&Ratios) -> Option<f64>);

const CHEAPER: [Line; 9] = [
    ("one by one", |ratios| ratios.one_by_one),
    ("maps waited for, in batches", |ratios| ratios.waited),
    ("the same through the pool", |ratios| ratios.pool_waited),
    ("chains of maps, in batches", |ratios| ratios.chains),
    ("that through the pool", |ratios| ratios.pool_chains),
    ("chained, in batches, without the request", |ratios| {
        ratios.chained
    }),
    ("that through the pool", |ratios| ratios.pool_chained),
    (
        "chains with requests, in batches, without the requests",
        |ratios| ratios.batched,
    ),
    ("that through the pool", |ratios| ratios.pool_batched),
];

const SHARES: [Line; 6] = [
    ("on the bare calls, maps waited for", |ratios| {
        ratios.pool_share_waited
    }),
    ("on bare chains of maps", |ratios| ratios.pool_share_chains),
    (
        "on the bare calls: bind with request, invalidation",
        |ratios| ratios.pool_share_chained,
    ),
    ("on that without the request", |ratios| {
        ratios.pool_share_chained_alone
    }),
    (
        "on the bare chains: binds with requests, invalidations",
        |ratios| ratios.pool_share_batched,
    ),
    ("on that without the requests", |ratios| {
        ratios.pool_share_batched_alone
    }),
];

/// Writes what was measured. CSV has the rows of the load alone.
///
/// # Errors
///
/// Of `out`.
pub fn write(out: &mut dyn Write, format: Format, measured: &Measurement) -> io::Result<()> {
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, measured)?;
            writeln!(out)
        }
        Format::Csv => write_csv(out, &measured.rows),
        Format::Table => write_table(out, measured),
    }
}

/// Writes figures as lines of a preset's file. One that is lost in noise is a comment.
///
/// # Errors
///
/// Of `out`.
pub fn write_figures(
    out: &mut dyn Write,
    measured: &Measurement,
    figures: &[Figure],
) -> io::Result<()> {
    let plan = &measured.plan;
    writeln!(
        out,
        "# {}: I/Os of {}, batches of {}, {} rounds",
        measured.device,
        show_bytes(plan.size),
        plan.batch,
        plan.rounds
    )?;
    for Figure {
        name,
        nanos,
        evidence,
        how,
    } in figures
    {
        if *nanos > 0.0 {
            // More digits than are repeatable would only look precise.
            let digits = 10_f64.powf((nanos.log10().floor() - 1.0).max(0.0));
            let value = ((nanos / digits).round() * digits) as u64;
            writeln!(
                out,
                "{name} = {{ value = {value}, evidence = \"{evidence}\", source = \"{how}; cargo xtask hw -- mr-lab measure --preset\" }}"
            )?;
        } else {
            writeln!(
                out,
                "# {name}: lost in noise ({nanos:.0} ns); measure again"
            )?;
        }
    }
    Ok(())
}

fn write_csv(out: &mut dyn Write, rows: &[Measured]) -> io::Result<()> {
    let names: Vec<_> = CSV.iter().map(|(name, _)| *name).collect();
    writeln!(out, "{}", names.join(","))?;
    for row in rows {
        let line: Vec<_> = CSV.iter().map(|(_, show)| show(row)).collect();
        writeln!(out, "{}", line.join(","))?;
    }
    Ok(())
}

fn write_table(out: &mut dyn Write, measured: &Measurement) -> io::Result<()> {
    let plan = &measured.plan;
    let kind = if measured.software {
        ", in software"
    } else {
        ""
    };
    writeln!(
        out,
        "{}{kind}: I/Os of {}, batches of {}, chains of {}, medians of {} rounds",
        measured.device,
        show_bytes(plan.size),
        plan.batch,
        plan.depth,
        plan.rounds
    )?;
    writeln!(out, "\nMemory management alone, us per I/O:")?;
    write_alone(out, measured)?;
    writeln!(
        out,
        "\nRegistration + deregistration per I/O takes so many times as long:"
    )?;
    write_lines(out, &CHEAPER, &measured.ratios, |ratio| {
        format!("{}x", number(ratio))
    })?;
    writeln!(out, "\nThe pool's own time:")?;
    write_lines(out, &SHARES, &measured.ratios, |share| {
        format!("{:+.1} %", 100.0 * share)
    })?;
    if measured.rows.is_empty() {
        return Ok(());
    }
    let pace = match plan.rate {
        Some(rate) => format!("{} a second", number(rate)),
        None => "one after the other".to_owned(),
    };
    writeln!(
        out,
        "\nUnder load: {} I/Os with an RDMA write each, {pace}, {} regions:",
        plan.ios, plan.regions
    )?;
    write_rows(out, &measured.rows)?;
    match measured.request_cpu_us {
        Some(request) => writeln!(
            out,
            "\nA request alone takes {} us of the CPU under this load, which is not counted.",
            number(request)
        ),
        None => Ok(()),
    }
}

fn write_alone(out: &mut dyn Write, measured: &Measurement) -> io::Result<()> {
    let mut table = new_table(["", "wall", "quartiles", "", "maps", "invalidations", "CPU"]);
    for alone in &measured.alone {
        let values = [
            alone.wall_us_per_io,
            alone.wall_us_quartile_low,
            alone.wall_us_quartile_high,
            alone.map_us_per_io,
            alone.invalidate_us_per_io,
            alone.cpu_us_per_io,
        ];
        add_row(&mut table, alone.step.title(), values.map(number));
    }
    write_lines_of(out, table)
}

fn write_lines(
    out: &mut dyn Write,
    lines: &[Line],
    ratios: &Ratios,
    show: fn(f64) -> String,
) -> io::Result<()> {
    for (what, value) in lines {
        if let Some(value) = value(ratios) {
            writeln!(out, " {what}: {}", show(value))?;
        }
    }
    Ok(())
}

fn write_rows(out: &mut dyn Write, rows: &[Measured]) -> io::Result<()> {
    let headings = TABLE.iter().map(|(heading, _)| *heading);
    let mut table = new_table(std::iter::once("backend, policy").chain(headings));
    for row in rows {
        let name = format!("{}, {}", row.backend, row.policy);
        add_row(&mut table, &name, TABLE.iter().map(|(_, show)| show(row)));
    }
    write_lines_of(out, table)
}

fn new_table<'a>(headings: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(headings);
    table
}

fn add_row(table: &mut Table, name: &str, values: impl IntoIterator<Item = String>) {
    let cells = values
        .into_iter()
        .map(|value| Cell::new(value).set_alignment(CellAlignment::Right));
    table.add_row(std::iter::once(Cell::new(name)).chain(cells));
}

fn write_lines_of(out: &mut dyn Write, mut table: Table) -> io::Result<()> {
    for column in table.column_iter_mut() {
        column.set_padding((1, 0));
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Alone, Mechanism, Plan, Sample, Series, Step};
    use crate::row::{Latency, MeanMax};

    fn measured() -> Measurement {
        let series = |step, wall| Series {
            step,
            samples: vec![Sample {
                ios: 2,
                map_ns: wall,
                invalidate_ns: 0,
                cpu_ns: wall,
            }],
        };
        let all = [
            series(Step::Registration, 8000),
            series(Step::Waited, 2000),
            series(Step::PoolWaited, 2100),
        ];
        let row = Measured {
            backend: "mw2".into(),
            policy: "use-n=2,threshold=4".into(),
            ios: 10,
            elapsed_s: 2.0,
            flushes: 2.0,
            flushes_per_s: 1.0,
            regions_per_flush: 4.0,
            cpu_us_per_io: 17.0,
            cpu_us_quartile_low: 16.0,
            cpu_us_quartile_high: 18.5,
            process_cpu_us_per_io: 1700.0,
            caller_us_per_io: 19.0,
            throughput_mb_s: 13.0,
            latency_us: Latency {
                p50: 1.0,
                p99: 2.0,
                p999: 3.0,
            },
            waits: 0.0,
            exposure_s: MeanMax {
                mean: 0.25,
                max: 0.5,
            },
            key_seconds: 2.5,
            registration_ratio: Some(3.0),
        };
        Measurement {
            plan: Plan {
                device: None,
                backend: Mechanism::Mw2,
                chained: false,
                policies: Vec::new(),
                size: 65_536,
                ios: 10,
                rate: None,
                regions: 8,
                batch: 2,
                depth: 1,
                rounds: 1,
            },
            device: "rxe0".into(),
            software: true,
            alone: all.iter().map(Alone::new).collect(),
            ratios: Ratios::new(&all),
            request_cpu_us: None,
            rows: vec![row],
        }
    }

    fn text(format: Format) -> String {
        let mut out = Vec::new();
        write(&mut out, format, &measured()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_has_the_fields_that_programs_rely_on() {
        let document: serde_json::Value = serde_json::from_str(&text(Format::Json)).unwrap();
        assert_eq!(document["plan"]["backend"], "mw2");
        assert_eq!(document["alone"][0]["step"], "registration");
        assert_eq!(document["alone"][1]["wall_us_per_io"], 1.0);
        assert_eq!(document["ratios"]["waited"], 4.0);
        assert_eq!(document["ratios"]["chained"], serde_json::Value::Null);
        assert_eq!(document["rows"][0]["latency_us"]["p99"], 2.0);
    }

    /// Also where a policy has a comma.
    #[test]
    fn csv_has_as_many_fields_as_names() {
        let text = text(Format::Csv);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        let unquoted = lines[1].replace("\"use-n=2,threshold=4\"", "policy");
        assert_eq!(
            lines[0].split(',').count(),
            unquoted.split(',').count(),
            "{text}"
        );
    }

    /// What was not measured has no line.
    #[test]
    fn the_table_says_what_was_measured() {
        let text = text(Format::Table);
        for part in ["rxe0, in software", "64KiB", "4.00x", "+5.0 %", "250 ms"] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(!text.contains("chained"), "{text}");
        assert!(!text.contains("request"), "{text}");
    }
}
