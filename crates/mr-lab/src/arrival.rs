//! When I/Os arrive.

use crate::size::unit;
use crate::units::{nanos, parse_time, show_time};
use rand_chacha::ChaCha8Rng;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An arrival process.
///
/// Text: `steady`, `poisson`, or `bursts=ON/OFF` (`bursts=1s/60s`: steady at the full rate for a
/// second, then nothing for a minute, and so on); `bursts` alone is `bursts=1s/9s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// One after the other, at equal distances.
    Steady,
    /// Independent of each other.
    Poisson,
    /// Steady for a time, then none for a time.
    Bursts {
        /// How long they come.
        on: Duration,
        /// How long they do not.
        off: Duration,
    },
}

impl FromStr for Arrival {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "steady" => Ok(Self::Steady),
            "poisson" => Ok(Self::Poisson),
            "bursts" => Ok(Self::Bursts {
                on: Duration::from_secs(1),
                off: Duration::from_secs(9),
            }),
            _ => bursts(text),
        }
    }
}

fn bursts(text: &str) -> Result<Arrival, String> {
    let (on, off) = text
        .strip_prefix("bursts=")
        .and_then(|times| times.split_once('/'))
        .ok_or_else(|| {
            format!("{text:?}: there is no such arrival; there are steady, poisson and bursts=ON/OFF, such as bursts=1s/60s")
        })?;
    let (on, off) = (parse_time(on)?, parse_time(off)?);
    if on.is_zero() {
        return Err("bursts must last for some time".into());
    }
    Ok(Arrival::Bursts { on, off })
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steady => f.write_str("steady"),
            Self::Poisson => f.write_str("poisson"),
            Self::Bursts { on, off } => {
                write!(f, "bursts={}/{}", show_time(*on), show_time(*off))
            }
        }
    }
}

/// The times of an arrival process, in nanoseconds from the start, in order, without end.
#[derive(Debug)]
pub(crate) struct Times {
    arrival: Arrival,
    /// Nanoseconds between two arrivals while they come; the mean for `Poisson`.
    distance: f64,
    count: u64,
    /// Time of the latest arrival of `Poisson`.
    reached: f64,
}

impl Times {
    /// `rate` is positive, in I/Os per second (while they come).
    pub(crate) fn new(arrival: Arrival, rate: f64) -> Self {
        Self {
            arrival,
            distance: 1e9 / rate,
            count: 0,
            reached: 0.0,
        }
    }

    pub(crate) fn next(&mut self, random: &mut ChaCha8Rng) -> u64 {
        let steady = self.count as f64 * self.distance;
        self.count += 1;
        match self.arrival {
            Arrival::Steady => steady as u64,
            Arrival::Poisson => {
                self.reached -= self.distance * (1.0 - unit(random)).ln();
                self.reached as u64
            }
            Arrival::Bursts { on, off } => {
                let bursts = steady as u64 / nanos(on);
                (steady as u64).saturating_add(bursts.saturating_mul(nanos(off)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    fn times(text: &str, rate: f64, count: usize) -> Vec<u64> {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut times = Times::new(text.parse().unwrap(), rate);
        (0..count).map(|_| times.next(&mut random)).collect()
    }

    #[test]
    fn steady_times_do_not_drift() {
        let times = times("steady", 3.0, 3_000_001);
        assert_eq!((times[0], times[1]), (0, 333_333_333));
        assert_eq!(times[3_000_000], 1_000_000_000_000_000);
    }

    #[test]
    fn poisson_has_its_mean_and_its_variance() {
        let times = times("poisson", 1000.0, 200_000);
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|two| (two[1] - two[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() / 1e6 - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn bursts_come_and_go() {
        let times = times("bursts=1s/60s", 1000.0, 2500);
        assert_eq!(times[999], 999_000_000);
        assert_eq!(times[1000], 61_000_000_000);
        assert_eq!(times[2000], 122_000_000_000);
    }

    #[test]
    fn reads_what_it_writes() {
        for text in ["steady", "poisson", "bursts=1s/1min"] {
            assert_eq!(text.parse::<Arrival>().unwrap().to_string(), text);
        }
        for text in ["", "burst", "bursts=0s/1s", "bursts=1s", "bursts=1s/x"] {
            assert!(text.parse::<Arrival>().is_err(), "{text}");
        }
    }
}
