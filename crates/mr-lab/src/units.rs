//! Numbers with units, read and written as in the text of a policy.

use mr_policies::quantity::{self, BYTES, TIME, Unit};
use std::time::Duration;

/// Reads a time such as `100ms`.
///
/// # Errors
///
/// The text is none; the message says what is allowed.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    read(
        text,
        TIME,
        "a number and ns, us, ms, s, min, h or d, such as 1.5s",
    )
    .map(Duration::from_nanos)
}

/// Reads a number of bytes such as `4KiB`; without a unit it counts bytes.
///
/// # Errors
///
/// The text is none; the message says what is allowed.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text
            .parse()
            .map_err(|_| format!("{text:?}: the number is too large"));
    }
    read(
        text,
        BYTES,
        "a number of bytes, or one with B, kB, KiB, MB, MiB, GB, GiB, TB or TiB",
    )
}

/// Writes a time as [`parse_time`] reads it.
pub fn show_time(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    quantity::show(nanos, TIME).to_string()
}

/// Writes a number of bytes as [`parse_bytes`] reads it.
pub fn show_bytes(bytes: u64) -> String {
    quantity::show(bytes, BYTES).to_string()
}

/// Nanoseconds of a time, saturating after 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn read(text: &str, units: &[Unit], allowed: &str) -> Result<u64, String> {
    quantity::parse(text, units)
        .map_err(|bad| format!("{text:?}: {}; allowed: {allowed}", bad.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["10ms", "1500ms", "4s", "30us"] {
            assert_eq!(show_time(parse_time(text).unwrap()), text);
        }
        for text in ["4KiB", "1MiB", "1MB", "513B"] {
            assert_eq!(show_bytes(parse_bytes(text).unwrap()), text);
        }
        assert_eq!(parse_bytes("4096"), Ok(4096));
    }

    #[test]
    fn says_what_is_allowed() {
        assert!(parse_time("10").unwrap_err().contains("a unit is missing"));
        assert!(parse_bytes("1 MiB").unwrap_err().contains("MiB"));
        assert!(parse_bytes("").is_err());
        assert!(parse_bytes("99999999999999999999").is_err());
    }
}
