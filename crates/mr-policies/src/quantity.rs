//! Numbers with a unit, as text: `100ms`, `1GiB`, `5key-s`.
//!
//! A quantity is a whole number of its smallest unit. Text may have a decimal point (`1.5s`) as
//! long as it comes out whole; it is written in the largest unit that divides it (`1500ms`), so
//! that reading it back gives the same number.

use std::fmt;

/// A unit, and how many of the smallest unit it is.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    name: &'static str,
    size: u64,
}

const fn unit(name: &'static str, size: u64) -> Unit {
    Unit { name, size }
}

/// Units of time, in nanoseconds, the largest first.
pub const TIME: &[Unit] = &[
    unit("d", 86_400_000_000_000),
    unit("h", 3_600_000_000_000),
    unit("min", 60_000_000_000),
    unit("s", 1_000_000_000),
    unit("ms", 1_000_000),
    unit("us", 1000),
    unit("ns", 1),
];

/// Units of stale keys times their age, in key-nanoseconds, the largest first.
pub const KEY_TIME: &[Unit] = &[
    unit("key-s", 1_000_000_000),
    unit("key-ms", 1_000_000),
    unit("key-us", 1000),
    unit("key-ns", 1),
];

/// Units of memory, in bytes, the largest first.
pub const BYTES: &[Unit] = &[
    unit("TiB", 1 << 40),
    unit("TB", 1_000_000_000_000),
    unit("GiB", 1 << 30),
    unit("GB", 1_000_000_000),
    unit("MiB", 1 << 20),
    unit("MB", 1_000_000),
    unit("KiB", 1 << 10),
    unit("kB", 1000),
    unit("B", 1),
];

/// Why a text is no quantity, and the byte at which that shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadQuantity {
    /// The byte.
    pub at: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// Reads a number and one of `units`, without a space between them, as a number of the smallest.
///
/// # Errors
///
/// Something else, a number that does not come out whole, or one beyond 64 bits.
pub fn parse(text: &str, units: &[Unit]) -> Result<u64, BadQuantity> {
    let bad = |at, reason| Err(BadQuantity { at, reason });
    let number_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, name) = text.split_at(number_end);
    if number.is_empty() {
        return bad(0, "a number is missing");
    }
    if name.is_empty() {
        return bad(number_end, "a unit is missing");
    }
    let Some(unit) = units.iter().find(|unit| unit.name == name) else {
        return bad(number_end, "there is no such unit");
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return bad(0, "this is no number");
    }
    scale(whole, fraction.trim_end_matches('0'), unit.size)
        .map_err(|reason| BadQuantity { at: 0, reason })
}

/// `whole.fraction * size`, where all digits are known to be ASCII digits.
fn scale(whole: &str, fraction: &str, size: u64) -> Result<u64, &'static str> {
    let too_large = "the number is too large";
    let whole: u64 = whole.parse().map_err(|_| too_large)?;
    let whole = whole.checked_mul(size).ok_or(too_large)?;
    let part = if fraction.is_empty() {
        Some(0)
    } else {
        part_of(fraction, size)
    };
    let part = part.ok_or("the number is finer than the smallest unit")?;
    whole.checked_add(part).ok_or(too_large)
}

/// `0.fraction * size`, if that is a whole number. No unit has more than 14 decimal digits, so a
/// fraction of more digits (that does not end in 0) never comes out whole.
fn part_of(fraction: &str, size: u64) -> Option<u64> {
    let digits = u32::try_from(fraction.len()).ok()?;
    let scale = 10_u128.checked_pow(digits)?;
    let product = fraction.parse::<u128>().ok()?.checked_mul(size.into())?;
    if product % scale != 0 {
        return None;
    }
    u64::try_from(product / scale).ok()
}

/// The quantity in the largest of `units` that divides it, as [`parse`] reads it.
pub fn show(value: u64, units: &'static [Unit]) -> impl fmt::Display {
    let divides = |unit: &&Unit| unit.size == 1 || (value != 0 && value.is_multiple_of(unit.size));
    let unit = units.iter().find(divides).copied();
    fmt::from_fn(move |f| match unit {
        Some(unit) => write!(f, "{}{}", value / unit.size, unit.name),
        None => write!(f, "{value}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads() {
        for (text, units, value) in [
            ("1s", TIME, 1_000_000_000),
            ("1.5s", TIME, 1_500_000_000),
            ("0.1s", TIME, 100_000_000),
            ("0.000000001s", TIME, 1),
            (
                "1.50000000000000000000000000000000000000000s",
                TIME,
                1_500_000_000,
            ),
            ("90min", TIME, 5_400_000_000_000),
            ("5key-s", KEY_TIME, 5_000_000_000),
            ("1GiB", BYTES, 1 << 30),
            ("1MB", BYTES, 1_000_000),
            ("18446744073709551615B", BYTES, u64::MAX),
        ] {
            assert_eq!(parse(text, units), Ok(value), "{text}");
        }
    }

    #[test]
    fn points_at_what_it_cannot_read() {
        for (text, at, reason) in [
            ("", 0, "a number is missing"),
            ("s", 0, "a number is missing"),
            ("-1s", 0, "a number is missing"),
            ("10", 2, "a unit is missing"),
            ("10sec", 2, "there is no such unit"),
            ("10 s", 2, "there is no such unit"),
            ("1.s", 0, "this is no number"),
            (".5s", 0, "this is no number"),
            ("1.2.3s", 0, "this is no number"),
            ("0.5ns", 0, "the number is finer than the smallest unit"),
            ("18446744073709551616ns", 0, "the number is too large"),
            ("213504d", 0, "the number is too large"),
        ] {
            assert_eq!(parse(text, TIME), Err(BadQuantity { at, reason }), "{text}");
        }
    }

    #[test]
    fn writes_the_largest_unit_that_divides() {
        for (value, units, text) in [
            (0, TIME, "0ns"),
            (1_500_000_000, TIME, "1500ms"),
            (60_000_000_000, TIME, "1min"),
            (1 << 30, BYTES, "1GiB"),
            (1_000_000, BYTES, "1MB"),
            (1_048_575, BYTES, "1048575B"),
            (5_000_000_000, KEY_TIME, "5key-s"),
        ] {
            assert_eq!(show(value, units).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value: u64, scale in 0_u32..19) {
            let value = value / 10_u64.pow(scale) * 10_u64.pow(scale);
            for units in [TIME, BYTES, KEY_TIME] {
                prop_assert_eq!(parse(&show(value, units).to_string(), units), Ok(value));
            }
        }

        #[test]
        fn any_text_gets_an_answer(text in "[0-9.]{0,40}\\PC{0,8}") {
            if let Err(error) = parse(&text, TIME) {
                prop_assert!(text.is_char_boundary(error.at));
            }
        }
    }
}
