//! `threshold=10..4000`: a parameter and its values.

use super::parameter::Parameter;
use super::value::{Kind, Value};
use crate::LabError;

/// The most values of one axis.
const MOST_VALUES: usize = 1000;

/// One axis of a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What is swept.
    pub parameter: Parameter,
    /// Over what, all different.
    pub values: Vec<Value>,
}

impl Axis {
    /// Reads `name=A..B` (`points` values at equal ratios, ends included; doubling where only
    /// powers of two make sense) or `name=A,B,C`.
    ///
    /// # Errors
    ///
    /// There is no such parameter, or a value is none.
    pub fn parse(text: &str, points: usize) -> Result<Self, LabError> {
        let bad = |message: String| LabError::Sweep(format!("--over {text}: {message}"));
        let (name, values) = text
            .split_once('=')
            .ok_or_else(|| bad("write NAME=FROM..TO or NAME=A,B,C".into()))?;
        let parameter = Parameter::named(name).map_err(&bad)?;
        let kind = parameter.kind();
        let values = match values.split_once("..") {
            Some((from, to)) => kind
                .parse(from)
                .and_then(|from| range(from, kind.parse(to)?, kind, points)),
            None => values.split(',').map(|value| kind.parse(value)).collect(),
        };
        let mut values = values.map_err(&bad)?;
        values.dedup();
        if values.len() > MOST_VALUES {
            return Err(bad(format!("at most {MOST_VALUES} values")));
        }
        let values = values
            .into_iter()
            .map(|number| Value { number, kind })
            .collect();
        Ok(Self { parameter, values })
    }
}

fn range(from: u64, to: u64, kind: Kind, points: usize) -> Result<Vec<u64>, String> {
    if from == 0 {
        return Err("a range in equal ratios cannot start at 0; list the values".into());
    }
    if from > to {
        return Err("the range ends before it starts".into());
    }
    if kind == Kind::Doubling {
        let doubled = std::iter::successors(Some(from), |value| value.checked_mul(2));
        return Ok(doubled.take_while(|&value| value <= to).collect());
    }
    if points < 2 {
        return Err("a range needs at least 2 points (--points)".into());
    }
    let ratio = (to as f64 / from as f64).powf(1.0 / (points - 1) as f64);
    let between = (1..points - 1).map(|step| three_digits(from as f64 * ratio.powi(step as i32)));
    Ok(std::iter::once(from)
        .chain(between.map(|value| value.clamp(from, to)))
        .chain([to])
        .collect())
}

/// Rounded to three digits, so that an answer can be read and asked again.
fn three_digits(value: f64) -> u64 {
    let unit = 10_f64.powf((value.log10().floor() - 2.0).max(0.0));
    ((value / unit).round() * unit) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, points: usize) -> Vec<String> {
        let axis = Axis::parse(text, points).unwrap();
        axis.values.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ranges_go_in_equal_ratios_and_end_where_they_say() {
        assert_eq!(texts("threshold=10..4000", 4), ["10", "74", "543", "4000"]);
        assert_eq!(
            texts("sync-latency=30us..10ms", 3),
            ["30us", "548us", "10ms"]
        );
        assert_eq!(
            texts("mtt-cache=128..1024", 9),
            ["128", "256", "512", "1024"]
        );
        assert_eq!(texts("use-n=1..3", 8), ["1", "2", "3"]);
        assert_eq!(texts("stall=0ns,30us", 8), ["0ns", "30us"]);
        assert_eq!(
            texts("adaptive=1key-s..100key-s", 3),
            ["1key-s", "10key-s", "100key-s"]
        );
        assert_eq!(texts("size=4KiB..4KiB", 2), ["4KiB"]);
    }

    #[test]
    fn refuses_with_a_reason() {
        for (text, reason) in [
            ("threshold", "write NAME="),
            ("thresh=1..2", "there is no parameter"),
            ("threshold=1..x", "whole number"),
            ("threshold=4..1", "ends before"),
            ("sync-latency=1..2", "unit"),
            ("stall=0s..1s", "cannot start at 0"),
        ] {
            let message = Axis::parse(text, 8).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
        assert!(Axis::parse("threshold=1..9", 1).is_err());
    }
}
