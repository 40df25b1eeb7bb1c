//! What came of a race.

use super::{Answered, Asked, Contender, Load, Spread, Way};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// One turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) asked: Asked,
    pub(super) answered: Answered,
}

/// A contender with one load.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who.
    pub contender: Contender,
    /// With which load.
    pub load: Load,
    /// Why it takes no further part.
    pub failure: Option<String>,
    /// By round.
    pub(super) samples: Vec<(u32, Sample)>,
}

/// All entries.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of the first round.
    pub entries: Vec<Entry>,
    /// How long the race took.
    pub took: Duration,
}

/// The figures of an entry, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    load: String,
    asks: String,
    answers: String,
    memory: &'static str,
    rounds: usize,
    /// Requests answered per second.
    per_second: Option<Spread>,
    /// Moved by RDMA.
    mib_per_second: Option<Spread>,
    /// The median of each round, in microseconds.
    round_trip_us: Option<Spread>,
    /// Of both machines.
    cpu_us_per_operation: Option<Spread>,
    /// Of a turn, in the mean.
    maps: f64,
    flushes: f64,
    /// From the end of a loan to the death of its key, in milliseconds; where that is known.
    exposure_mean_ms: Option<f64>,
    exposure_longest_ms: Option<f64>,
    /// With which of kernel's it is compared, and its requests per second divided by that one's, round by round.
    beside: Option<&'static str>,
    ratio: Option<Spread>,
    /// CPU time per operation divided by that one's.
    cpu_ratio: Option<Spread>,
    failure: Option<String>,
}

impl Entry {
    pub(super) const fn new(contender: Contender, load: Load) -> Self {
        Self {
            contender,
            load,
            failure: None,
            samples: Vec::new(),
        }
    }

    fn spread(&self, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|(_, sample)| figure(sample)))
    }

    /// The mean of what a tally counts.
    fn mean(&self, count: impl Fn(&Sample) -> u64) -> f64 {
        let sum: u64 = self.samples.iter().map(|(_, sample)| count(sample)).sum();
        sum as f64 / self.samples.len().max(1) as f64
    }

    /// The mean exposure of all keys, in seconds.
    fn exposure(&self) -> Option<f64> {
        let tallies = || self.samples.iter().map(|(_, sample)| sample.asked.tally);
        let lived: f64 = tallies()
            .map(|tally| tally.key_seconds)
            .sum::<Option<f64>>()?;
        let maps: u64 = tallies().map(|tally| tally.maps).sum();
        (maps > 0).then(|| lived / maps as f64)
    }

    fn longest(&self) -> Option<f64> {
        let longest = self.samples.iter();
        longest
            .filter_map(|(_, sample)| sample.asked.tally.longest)
            .reduce(f64::max)
    }
}

fn per_second(sample: &Sample) -> f64 {
    sample.asked.operations as f64 / sample.asked.took.as_secs_f64()
}

fn cpu_us(sample: &Sample) -> f64 {
    let busy = sample.asked.busy + sample.answered.busy;
    busy.as_secs_f64() * 1e6 / sample.asked.operations as f64
}

/// One figure divided by the other's of the same round, over the rounds that both have.
fn ratio(of: &Entry, to: &Entry, figure: fn(&Sample) -> f64) -> Option<Spread> {
    let others: BTreeMap<u32, f64> = to
        .samples
        .iter()
        .map(|(round, sample)| (*round, figure(sample)))
        .collect();
    let both = of.samples.iter();
    Spread::of(both.filter_map(|(round, sample)| Some(figure(sample) / others.get(round)?)))
}

/// The last turn, for whoever waits for the end.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: ", self.contender, self.load)?;
        match (&self.failure, self.samples.last()) {
            (Some(failure), _) => write!(f, "FAILED: {failure}"),
            (None, Some((_, sample))) => write!(f, "{:.0}/s", per_second(sample)),
            (None, None) => f.write_str("no turn yet"),
        }
    }
}

impl Report {
    /// Whether everybody came to the end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let whole = |entry: &Entry| entry.failure.is_none() && !entry.samples.is_empty();
        self.entries.iter().all(whole)
    }

    /// The kernel's entry that is the measure of this one; of messages there is just one.
    fn beside(&self, one: &Entry) -> Option<&Entry> {
        let is_kernel = one.contender.kernels() == [true; 2];
        self.entries.iter().find(|other| {
            let label = Some(other.contender.label);
            other.contender.kernels() == [true; 2]
                && other.load == one.load
                && !is_kernel
                && (one.load.rdma == 0 || label == one.contender.beside)
        })
    }

    /// The figures of all entries, by load.
    #[must_use]
    pub fn figures(&self) -> Vec<Figures> {
        let mut loads: Vec<Load> = Vec::new();
        for entry in &self.entries {
            if !loads.contains(&entry.load) {
                loads.push(entry.load);
            }
        }
        let of = |load: &Load| {
            let load = *load;
            self.entries.iter().filter(move |entry| entry.load == load)
        };
        loads
            .iter()
            .flat_map(of)
            .map(|entry| self.figures_of(entry))
            .collect()
    }

    fn figures_of(&self, entry: &Entry) -> Figures {
        let (contender, load) = (&entry.contender, entry.load);
        let beside = self.beside(entry);
        let mib = load.rdma as f64 / f64::from(1 << 20);
        let lends = load.rdma > 0;
        Figures {
            load: load.to_string(),
            asks: contender.asker.implementation.to_string(),
            answers: contender.answerer.to_string(),
            memory: if lends { contender.label } else { "" },
            rounds: entry.samples.len(),
            per_second: entry.spread(per_second),
            mib_per_second: entry
                .spread(|sample| mib * per_second(sample))
                .filter(|_| lends),
            round_trip_us: entry.spread(|sample| sample.asked.round_trip * 1e6),
            cpu_us_per_operation: entry.spread(cpu_us),
            maps: entry.mean(|sample| sample.asked.tally.maps),
            flushes: entry.mean(|sample| sample.asked.tally.flushes),
            exposure_mean_ms: entry.exposure().map(|mean| mean * 1e3),
            exposure_longest_ms: entry
                .longest()
                .filter(|_| lends)
                .map(|longest| longest * 1e3),
            beside: beside.filter(|_| lends).map(|entry| entry.contender.label),
            ratio: beside.and_then(|other| ratio(entry, other, per_second)),
            cpu_ratio: beside.and_then(|other| ratio(entry, other, cpu_us)),
            failure: entry.failure.clone(),
        }
    }

    /// Whether what is wanted of rds-lite is reached: what, the ratio, and the least that it has to be.
    #[must_use]
    pub fn goals(&self) -> Vec<(String, Option<Spread>, f64)> {
        let lite = |entry: &&Entry| entry.contender.kernels() == [false; 2];
        let wanted = |entry: &Entry| {
            let least = match (entry.load, entry.contender.asker.way) {
                (Load { rdma: 0, depth, .. }, _) => (depth > 1).then_some(0.5),
                (_, Way::Killed | Way::KilledAtUse) => Some(1.0),
                (_, Way::Once) if entry.contender.label.contains("max-exposure") => Some(0.95),
                _ => None,
            }?;
            let other = self.beside(entry)?;
            let label = match entry.load.rdma {
                0 => String::new(),
                _ => format!(
                    " {}, kernel {}",
                    entry.contender.label, other.contender.label
                ),
            };
            let what = format!("{}:{label}", entry.load);
            Some((what, ratio(entry, other, per_second), least))
        };
        self.entries
            .iter()
            .filter(lite)
            .filter_map(wanted)
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut load = String::new();
        for figures in self.figures() {
            if figures.load != load {
                writeln!(f, "\n{}", figures.load)?;
                heading(f)?;
                load.clone_from(&figures.load);
            }
            writeln!(f, "{figures}")?;
        }
        writeln!(f, "\nrds-lite to rds-lite, times the kernel to the kernel:")?;
        for (what, ratio, least) in self.goals() {
            let verdict = match ratio {
                Some(ratio) if ratio.p50 >= least => "reached",
                Some(_) => "missed",
                None => "not measured",
            };
            let what = what.trim_end_matches(':');
            writeln!(
                f,
                "  {:<66} {} wanted {least}: {verdict}",
                what,
                Shown(ratio)
            )?;
        }
        write!(f, "took {:.0} s", self.took.as_secs_f64())
    }
}

fn heading(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "{:<8} {:<8} {:<18} {:>8} {:>7} {:>8} {:>7} {:>6} {:>7} {:>15}  {:<13} {:<19} {:<17}",
        "asks",
        "answers",
        "memory",
        "/s",
        "MiB/s",
        "rtt us",
        "cpu us",
        "maps",
        "flushes",
        "exposure ms",
        "beside kernel",
        "/s ratio p10..p90",
        "cpu ratio"
    )
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = format!("{:<8} {:<8} {:<18}", self.asks, self.answers, self.memory);
        if let Some(failure) = &self.failure {
            return write!(f, "{who} FAILED in round {}: {failure}", self.rounds + 1);
        }
        let median = |spread: Option<Spread>, digits: usize| {
            spread.map_or_else(String::new, |spread| format!("{:.digits$}", spread.p50))
        };
        let exposure = match (self.exposure_mean_ms, self.exposure_longest_ms) {
            (Some(mean), Some(longest)) => format!("{mean:.1} / {longest:.1}"),
            _ => String::new(),
        };
        let line = format!(
            "{who} {:>8} {:>7} {:>8} {:>7} {:>6.0} {:>7.1} {exposure:>15}  {:<13} {} {}",
            median(self.per_second, 1),
            median(self.mib_per_second, 1),
            median(self.round_trip_us, 0),
            median(self.cpu_us_per_operation, 0),
            self.maps,
            self.flushes,
            self.beside.unwrap_or_default(),
            Shown(self.ratio),
            Shown(self.cpu_ratio),
        );
        f.write_str(line.trim_end())
    }
}

/// A ratio, of one width.
struct Shown(Option<Spread>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Spread { p10, p50, p90 }) => write!(f, "{p50:>5.2} ({p10:.2}..{p90:.2})  "),
            None => write!(f, "{:19}", ""),
        }
    }
}
