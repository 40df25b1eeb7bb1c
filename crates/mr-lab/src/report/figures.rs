//! Numbers as people read them: three digits and a unit.

/// A number with three significant digits; whole from 1000 on.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.000_5 => format!("{value:.1e}"),
        size if size < 0.999_5 => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').to_owned()
        }
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A time given in seconds.
pub(super) fn time(seconds: f64) -> String {
    scaled(
        seconds,
        &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")],
    )
}

/// A number of bytes.
pub(super) fn bytes(bytes: f64) -> String {
    scaled(
        bytes,
        &[
            (1e12, "TB"),
            (1e9, "GB"),
            (1e6, "MB"),
            (1e3, "kB"),
            (1.0, "B"),
        ],
    )
}

/// A large number.
pub(super) fn count(value: f64) -> String {
    if value < 1e4 {
        return number(value);
    }
    scaled(value, &[(1e9, "G"), (1e6, "M"), (1e3, "k")])
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    // What would be rounded up to 1000 of a unit is 1 of the next.
    let unit = units.iter().find(|(size, _)| value >= 0.999_5 * size);
    match unit.or(units.last()) {
        Some((size, name)) if value > 0.0 => format!("{} {name}", number(value / size)),
        _ => "0".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_25, "2.5e-4"),
            (0.25, "0.25"),
            (0.052_4, "0.0524"),
            (0.999_7, "1.00"),
            (2.0016, "2.00"),
            (85.33, "85.3"),
            (4000.0, "4000"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(time(4.0011), "4.00 s");
        assert_eq!(time(0.000_100_4), "100 us");
        assert_eq!(time(0.999_9), "1.00 s");
        assert_eq!(time(0.0), "0");
        assert_eq!(bytes(4_206_886_912.0), "4.21 GB");
        assert_eq!(count(159_971.0), "160 k");
        assert_eq!(count(9_999.0), "9999");
    }
}
