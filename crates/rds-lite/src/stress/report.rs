//! Columns and units of rds-stress.

use super::counts::{Counts, Sums};
use super::load::Load;
use mr_core::Time;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// How output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// What a summary says beside the figures.
#[derive(Clone, Debug, Default)]
pub struct Remarks {
    /// Lines of text.
    pub lines: Vec<String>,
    /// The same as fields.
    pub fields: Map<String, Value>,
    /// What is right beside the messages, if all is.
    pub also_right: &'static str,
}

/// Prints a line per interval, and a summary.
pub struct Reporter {
    format: Format,
    quiet: bool,
    measures_cpu: bool,
    tasks: u16,
    start: Time,
    last: Time,
    /// What was done before the start.
    first: Sums,
    sums: Sums,
    cpu_start: f64,
    cpu_last: f64,
}

impl Reporter {
    /// Of tasks as `load` has them. `quiet`: only the summary.
    #[must_use]
    pub fn new(format: Format, quiet: bool, measures_cpu: bool, load: &Load) -> Self {
        Self {
            format,
            quiet,
            measures_cpu,
            tasks: load.tasks,
            start: Time::ZERO,
            last: Time::ZERO,
            first: Sums::default(),
            sums: Sums::default(),
            cpu_start: 0.0,
            cpu_last: 0.0,
        }
    }

    pub(super) fn begin<'a>(
        &mut self,
        now: Time,
        counts: impl Iterator<Item = &'a Counts>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        counts.for_each(|counts| self.first.add(counts));
        self.sums = self.first.clone();
        (self.start, self.last) = (now, now);
        self.cpu_start = cpu_seconds();
        self.cpu_last = self.cpu_start;
        if self.format == Format::Text && !self.quiet {
            heading(out)?;
        }
        out.flush()
    }

    pub(super) fn line<'a>(
        &mut self,
        now: Time,
        counts: impl Iterator<Item = &'a Counts>,
        last: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut sums = Sums::default();
        counts.for_each(|counts| sums.add(counts));
        let seconds = now.since(self.last).as_secs_f64();
        let cpu = cpu_seconds();
        let share = self.share(cpu - self.cpu_last, seconds);
        // The rest of an interval at the end says little.
        let short = last && seconds < 0.5;
        if !self.quiet && !short {
            let row = Row::new(self.tasks, &sums.since(&self.sums), seconds, share);
            row.write(self.format, "interval", out)?;
        }
        (self.last, self.sums, self.cpu_last) = (now, sums, cpu);
        out.flush()
    }

    /// The summary, and what was wrong.
    ///
    /// # Errors
    ///
    /// It could not be written.
    pub fn end(
        &self,
        load: &Load,
        failures: &[String],
        remarks: &Remarks,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let seconds = self.last.since(self.start).as_secs_f64();
        let cpu = self.share(self.cpu_last - self.cpu_start, seconds);
        let row = Row::new(self.tasks, &self.sums.since(&self.first), seconds, cpu);
        match self.format {
            Format::Text => {
                if self.quiet {
                    heading(out)?;
                } else {
                    writeln!(out, "{}", "-".repeat(75))?;
                }
                row.write(Format::Text, "average", out)?;
                for line in &remarks.lines {
                    writeln!(out, "{line}")?;
                }
                for failure in failures {
                    writeln!(out, "FAILED: {failure}")?;
                }
                if failures.is_empty() && load.verify {
                    let (verified, also) = (self.sums.received, remarks.also_right);
                    writeln!(out, "{verified} messages verified{also}")?;
                }
            }
            Format::Json => {
                let mut summary = row.json("average");
                summary["verified"] = json!(load.verify);
                summary["failures"] = json!(failures);
                for (name, value) in &remarks.fields {
                    summary[name] = value.clone();
                }
                writeln!(out, "{summary}")?;
            }
        }
        out.flush()
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

    fn write(&self, format: Format, kind: &str, out: &mut impl Write) -> io::Result<()> {
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

fn heading(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>4} {:>6} {:>6} {:>10} {:>10} {:>10} {:>7} {:>8} {:>5}",
        "tsks", "tx/s", "rx/s", "tx+rx K/s", "mbi K/s", "mbo K/s", "tx us/c", "rtt us", "cpu %"
    )
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
