//! Columns and units of rds-stress.

use super::task::{Counts, Sums};
use super::{Load, Options, Side};
use crate::setup::Format;
use crate::snapshot;
use anyhow::Result;
use mr_core::Time;
use serde_json::{Value, json};
use std::io::Write;

/// What the whole run came to.
pub(super) struct Totals {
    sums: Sums,
    seconds: f64,
    cpu: f64,
}

/// Prints a line per interval.
pub(super) struct Reporter {
    format: Format,
    quiet: bool,
    measures_cpu: bool,
    tasks: u16,
    start: Time,
    last: Time,
    before: Sums,
    cpu_start: f64,
    cpu_last: f64,
}

impl Reporter {
    pub(super) fn new(options: &Options, load: &Load, now: Time) -> Self {
        let cpu = cpu_seconds();
        Self {
            format: options.common.format,
            quiet: options.report_summary,
            measures_cpu: options.report_cpu,
            tasks: load.tasks,
            start: now,
            last: now,
            before: Sums::default(),
            cpu_start: cpu,
            cpu_last: cpu,
        }
    }

    pub(super) fn begin(&self, out: &mut impl Write) -> Result<()> {
        if self.format == Format::Text && !self.quiet {
            heading(out)?;
        }
        out.flush()?;
        Ok(())
    }

    pub(super) fn line<'a>(
        &mut self,
        now: Time,
        counts: impl Iterator<Item = &'a Counts>,
        last: bool,
        out: &mut impl Write,
    ) -> Result<()> {
        let mut sums = Sums::default();
        counts.for_each(|counts| sums.add(counts));
        let seconds = now.since(self.last).as_secs_f64();
        let cpu = cpu_seconds();
        let share = self.share(cpu - self.cpu_last, seconds);
        // The rest of an interval at the end says little.
        let short = last && seconds < 0.5;
        if !self.quiet && !short {
            let row = Row::new(self.tasks, &sums.since(&self.before), seconds, share);
            row.write(self.format, "interval", out)?;
        }
        (self.last, self.before, self.cpu_last) = (now, sums, cpu);
        out.flush()?;
        Ok(())
    }

    pub(super) fn totals(&self) -> Totals {
        let seconds = self.last.since(self.start).as_secs_f64();
        Totals {
            sums: self.before.clone(),
            seconds,
            cpu: self.share(self.cpu_last - self.cpu_start, seconds),
        }
    }

    /// CPU time over all processors in per cent; −1 if it is not measured.
    fn share(&self, cpu: f64, seconds: f64) -> f64 {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        if self.measures_cpu && seconds > 0.0 {
            100.0 * cpu / seconds / processors
        } else {
            -1.0
        }
    }
}

/// One line.
struct Row {
    tasks: u16,
    tx: u64,
    rx: u64,
    kbytes: f64,
    rdma_in: f64,
    rdma_out: f64,
    send_us: f64,
    rtt_us: f64,
    cpu: f64,
}

impl Row {
    fn new(tasks: u16, sums: &Sums, seconds: f64, cpu: f64) -> Self {
        let rate = |count: u64| count as f64 / seconds.max(1e-9);
        let mean = |nanos: u64, count: u64| nanos as f64 / 1e3 / count.max(1) as f64;
        Self {
            tasks,
            tx: rate(sums.sent) as u64,
            rx: rate(sums.received) as u64,
            kbytes: rate(sums.bytes) / 1024.0,
            rdma_in: rate(sums.rdma_read) / 1024.0,
            rdma_out: rate(sums.rdma_written) / 1024.0,
            send_us: mean(sums.send_nanos, sums.sent),
            rtt_us: mean(sums.rtt_nanos, sums.answers),
            cpu,
        }
    }

    fn write(&self, format: Format, kind: &str, out: &mut impl Write) -> Result<()> {
        match format {
            Format::Text => {
                let average = if kind == "average" { " (average)" } else { "" };
                writeln!(
                    out,
                    "{:>4} {:>6} {:>6} {:>10.2} {:>10.2} {:>10.2} {:>7.2} {:>8.2} {:>5.2}{average}",
                    self.tasks,
                    self.tx,
                    self.rx,
                    self.kbytes,
                    self.rdma_in,
                    self.rdma_out,
                    self.send_us,
                    self.rtt_us,
                    self.cpu
                )?;
            }
            Format::Json => writeln!(out, "{}", self.json(kind))?,
        }
        Ok(())
    }

    fn json(&self, kind: &str) -> Value {
        json!({
            "kind": kind,
            "tsks": self.tasks,
            "tx/s": self.tx,
            "rx/s": self.rx,
            "tx+rx K/s": self.kbytes,
            "mbi K/s": self.rdma_in,
            "mbo K/s": self.rdma_out,
            "tx us/c": self.send_us,
            "rtt us": self.rtt_us,
            "cpu %": self.cpu,
        })
    }
}

fn heading(out: &mut impl Write) -> Result<()> {
    writeln!(
        out,
        "{:>4} {:>6} {:>6} {:>10} {:>10} {:>10} {:>7} {:>8} {:>5}",
        "tsks", "tx/s", "rx/s", "tx+rx K/s", "mbi K/s", "mbo K/s", "tx us/c", "rtt us", "cpu %"
    )?;
    Ok(())
}

/// The summary, what the pools were exposed to, and what was wrong.
pub(super) fn end(
    options: &Options,
    load: &Load,
    totals: &Totals,
    sides: &[Side],
    failures: &[String],
    out: &mut impl Write,
) -> Result<()> {
    let row = Row::new(load.tasks, &totals.sums, totals.seconds, totals.cpu);
    match options.common.format {
        Format::Text => {
            if options.report_summary {
                heading(out)?;
            } else {
                writeln!(out, "{}", "-".repeat(75))?;
            }
            row.write(Format::Text, "average", out)?;
            if load.rdma_bytes > 0 {
                writeln!(out, "policy {}", options.pool.policy)?;
                for side in sides {
                    exposure(side, out)?;
                }
            }
            for failure in failures {
                writeln!(out, "FAILED: {failure}")?;
            }
            if failures.is_empty() && load.verify {
                let verified = totals.sums.received;
                writeln!(
                    out,
                    "{verified} messages verified, no key came back while stale"
                )?;
            }
        }
        Format::Json => {
            let mut summary = row.json("average");
            summary["policy"] = json!(options.pool.policy.to_string());
            summary["verified"] = json!(load.verify);
            summary["failures"] = json!(failures);
            summary["pools"] = sides
                .iter()
                .map(|side| snapshot::pool(&side.host))
                .collect();
            writeln!(out, "{summary}")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn exposure(side: &Side, out: &mut impl Write) -> Result<()> {
    let Some(stats) = side.host.pool_stats() else {
        return Ok(());
    };
    writeln!(
        out,
        "pool: {} leases, {} flushes of {:.1} regions; exposure: longest {:?}, at most {} stale keys, {:.6} key-seconds",
        stats.leases,
        stats.flushes,
        stats.regions_per_flush(),
        stats.exposure.longest,
        stats.peak_stale.keys,
        stats.exposure.key_seconds,
    )?;
    Ok(())
}

/// CPU seconds of this process so far; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    // Fields 14 and 15, counted behind the name in parentheses: user and system time in ticks of
    // 10 ms, which Linux has fixed for this file.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}
