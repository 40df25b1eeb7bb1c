//! What is simulated: the load, the pool and the machine around it, in numbers.

use crate::LabError;
use crate::arrival::Arrival;
use crate::recording::Recording;
use crate::size::Sizes;
use crate::units::{nanos, show_time};
use mr_core::{Capabilities, DrawOrder, MrBackend};
use mr_mock::{MockHca, Preset};
use std::fmt;
use std::time::Duration;

/// The most I/Os of one run; at a million a second it takes three hours.
const MOST_IOS: f64 = 1e10;
/// The longest run.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Everything that a run needs beside a preset and a policy.
///
/// The default is the example of the origin mail.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Which I/Os come, and when.
    pub load: Load,
    /// Regions of the pool.
    pub regions: u32,
    /// Transfers that the HCA works on at once; the others wait in the order in which they came.
    pub concurrency: u32,
    /// From the moment at which the peer has the key to the moment at which it moves the data.
    pub service_time: Duration,
    /// Seeds arrivals, lengths and the pool.
    pub seed: u64,
    /// In which order the pool draws regions.
    pub order: DrawOrder,
    /// The pool's own bound on the age of a stale key. Long, so that each policy shows its own
    /// face; the library's default is one second.
    pub max_age: Duration,
    /// The pool's own bound on the bytes behind stale keys. None by default, for the same reason (there
    /// is none on the number of stale regions).
    pub max_stale_bytes: u64,
    /// How much later than it could a flush starts.
    pub flush_delay: Duration,
    /// Long-lived mappings that share the HCA's caches: one of them in turn takes one packet for
    /// each I/O, the peer's request.
    pub hot_keys: u32,
}

/// Where I/Os come from.
#[derive(Clone, Debug)]
pub enum Load {
    /// Made up.
    Synthetic {
        /// I/Os per second (while they come).
        rate: f64,
        /// Their lengths.
        sizes: Sizes,
        /// When they come.
        arrival: Arrival,
        /// For how long they come.
        duration: Duration,
    },
    /// Recorded.
    Recorded(Recording),
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            load: Load::Synthetic {
                rate: 1000.0,
                sizes: Sizes::Fixed(1 << 20),
                arrival: Arrival::Steady,
                duration: Duration::from_secs(320),
            },
            regions: 5000,
            concurrency: 8,
            service_time: Duration::from_millis(10),
            seed: 1,
            order: DrawOrder::Random,
            max_age: Duration::from_secs(3600),
            max_stale_bytes: u64::MAX,
            flush_delay: Duration::ZERO,
            hot_keys: 64,
        }
    }
}

impl Load {
    /// Length of the longest I/O.
    pub fn largest(&self) -> u64 {
        match self {
            Self::Synthetic { sizes, .. } => sizes.largest(),
            Self::Recorded(recording) => recording.summary().largest,
        }
    }

    /// Whether I/Os are all alike and come at equal distances.
    pub fn is_steady(&self) -> bool {
        matches!(self, Self::Synthetic { arrival: Arrival::Steady, sizes, .. } if sizes.fixed().is_some())
    }

    /// How long I/Os come.
    pub fn duration(&self) -> Duration {
        match self {
            Self::Synthetic { duration, .. } => *duration,
            Self::Recorded(recording) => recording.duration(),
        }
    }
}

impl Scenario {
    /// Checks all that does not depend on preset or policy.
    ///
    /// # Errors
    ///
    /// A number is out of its range.
    pub fn check(&self) -> Result<(), LabError> {
        let second = Duration::from_secs(1);
        within("--regions", self.regions, 1, (1 << 23) - 1)?;
        within("--concurrency", self.concurrency, 1, 1 << 16)?;
        within("--hot-keys", self.hot_keys, 0, 1 << 20)?;
        within("--max-stale-bytes", self.max_stale_bytes, 1, u64::MAX)?;
        time(
            "--service-time",
            self.service_time,
            Duration::ZERO,
            3600 * second,
        )?;
        time(
            "--flush-delay",
            self.flush_delay,
            Duration::ZERO,
            3600 * second,
        )?;
        let most_age = 86_400 * second;
        time(
            "--max-age",
            self.max_age,
            Duration::from_micros(1),
            most_age,
        )?;
        let Load::Synthetic {
            rate,
            duration,
            sizes,
            ..
        } = &self.load
        else {
            return Ok(());
        };
        within("--size", sizes.smallest(), 1, u64::MAX)?;
        time("--duration", *duration, Duration::from_nanos(1), LONGEST)?;
        if !(rate.is_finite() && (1e-6..=1e9).contains(rate)) {
            return Err(out_of_range(
                "--rate",
                "from 0.000001 to 1000000000 a second",
                rate,
            ));
        }
        if rate * duration.as_secs_f64() > MOST_IOS {
            let given = rate * duration.as_secs_f64();
            return Err(out_of_range(
                "--rate times --duration",
                "at most 10^10 I/Os",
                given,
            ));
        }
        Ok(())
    }

    /// Checks that the scenario can run on an HCA of this preset.
    ///
    /// # Errors
    ///
    /// It has too few regions, or they are too small.
    pub fn check_on(&self, preset: &Preset) -> Result<Capabilities, LabError> {
        let capabilities = MockHca::new(preset).capabilities();
        let room = capabilities.max_regions.saturating_sub(self.hot_keys);
        if self.regions > room {
            return Err(LabError::OutOfRange {
                what: "--regions",
                allowed: format!(
                    "at most {room} on {} (its {} less --hot-keys)",
                    preset.name, capabilities.max_regions
                ),
                given: self.regions.to_string(),
            });
        }
        // Buffers start on a page, so all pages of a region can be used.
        let most = u64::from(capabilities.max_pages) * u64::from(capabilities.page_size);
        let most = most.min(capabilities.max_bytes);
        let bytes = self.load.largest();
        if bytes > most {
            return Err(LabError::TooLong {
                bytes,
                preset: preset.name.clone(),
                most,
                hint: "shorten it, choose another preset, or raise max_pages with --set",
            });
        }
        Ok(capabilities)
    }
}

fn within<T: PartialOrd + fmt::Display>(
    what: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), LabError> {
    if least <= value && value <= most {
        return Ok(());
    }
    Err(out_of_range(
        what,
        &format!("from {least} to {most}"),
        value,
    ))
}

fn time(
    what: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), LabError> {
    if least <= value && value <= most && nanos(value) < u64::MAX {
        return Ok(());
    }
    let allowed = format!("from {} to {}", show_time(least), show_time(most));
    Err(out_of_range(what, &allowed, show_time(value)))
}

fn out_of_range(what: &'static str, allowed: &str, given: impl fmt::Display) -> LabError {
    LabError::OutOfRange {
        what,
        allowed: allowed.to_owned(),
        given: given.to_string(),
    }
}

/// The word for a draw order on the command line and in answers.
pub fn order_name(order: DrawOrder) -> &'static str {
    match order {
        DrawOrder::Random => "random",
        DrawOrder::Fifo => "fifo",
        DrawOrder::Lifo => "lifo",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_holds_on_all_presets() {
        let scenario = Scenario::default();
        scenario.check().unwrap();
        for name in Preset::names() {
            scenario.check_on(&Preset::named(name).unwrap()).unwrap();
        }
    }

    #[test]
    fn each_number_has_its_range() {
        type Spoil = fn(&mut Scenario);
        let bad: [(&str, Spoil); 6] = [
            ("--regions", |s| s.regions = 0),
            ("--concurrency", |s| s.concurrency = 0),
            ("--max-age", |s| s.max_age = Duration::ZERO),
            ("--max-stale-bytes", |s| s.max_stale_bytes = 0),
            ("--service-time", |s| s.service_time = Duration::MAX),
            ("--flush-delay", |s| s.flush_delay = Duration::MAX),
        ];
        for (flag, spoil) in bad {
            let mut scenario = Scenario::default();
            spoil(&mut scenario);
            let message = scenario.check().unwrap_err().to_string();
            assert!(message.starts_with(flag), "{message}");
        }
    }

    #[test]
    fn a_region_must_hold_the_longest_io() {
        let mut scenario = Scenario::default();
        let Load::Synthetic { sizes, .. } = &mut scenario.load else {
            panic!("the default is made up");
        };
        *sizes = Sizes::Fixed(1 << 30);
        let preset = Preset::named("connectx-2008").unwrap();
        let message = scenario.check_on(&preset).unwrap_err().to_string();
        assert!(message.contains("1073741824 bytes"), "{message}");
    }
}
