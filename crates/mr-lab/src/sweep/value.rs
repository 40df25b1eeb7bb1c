//! Numbers with their units, as a sweep writes them.

use mr_policies::quantity::{self, BYTES, KEY_TIME, TIME, Unit};
use std::fmt;

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Count,
    /// A count of which only doublings make sense.
    Doubling,
    Time,
    Bytes,
    KeyTime,
}

/// A value of a parameter: a whole number of the smallest unit of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub(super) number: u64,
    pub(super) kind: Kind,
}

impl Kind {
    const fn units(self) -> Option<&'static [Unit]> {
        match self {
            Self::Time => Some(TIME),
            Self::Bytes => Some(BYTES),
            Self::KeyTime => Some(KEY_TIME),
            Self::Count | Self::Doubling => None,
        }
    }

    pub(super) fn parse(self, text: &str) -> Result<u64, String> {
        match self.units() {
            Some(units) => quantity::parse(text, units).map_err(|bad| {
                let example = quantity::show(1, units);
                format!(
                    "{text:?}: {}; allowed: a number with a unit, such as {example}",
                    bad.reason
                )
            }),
            None => text
                .parse()
                .map_err(|_| format!("{text:?}: allowed: a whole number")),
        }
    }
}

impl Value {
    /// In seconds, bytes, key-seconds, or as a count.
    pub fn in_base_units(&self) -> f64 {
        match self.kind {
            Kind::Time | Kind::KeyTime => self.number as f64 / 1e9,
            Kind::Bytes | Kind::Count | Kind::Doubling => self.number as f64,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.units() {
            Some(units) => quantity::show(self.number, units).fmt(f),
            None => self.number.fmt(f),
        }
    }
}
