//! Small pieces of parsing that the text formats share.

use std::fmt::Write;

/// Bytes of a bad line that are shown in an error.
const SHOWN: usize = 64;

/// A line or record that a parser refuses; the position is added by the caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reject {
    pub(super) expected: &'static str,
    pub(super) found: String,
}

impl Reject {
    /// Refuses a line of text and quotes its beginning, escaped.
    pub(super) fn line(expected: &'static str, line: &[u8]) -> Self {
        let shown = &line[..line.len().min(SHOWN)];
        let rest = if line.len() > SHOWN { "..." } else { "" };
        let found = format!("`{}{rest}`", shown.escape_ascii());
        Self { expected, found }
    }

    /// Refuses a binary record and shows it in hexadecimal.
    pub(super) fn record(expected: &'static str, record: &[u8]) -> Self {
        let mut found = String::from("bytes");
        for byte in &record[..record.len().min(SHOWN)] {
            // Writing to a String cannot fail.
            let _ = write!(found, " {byte:02x}");
        }
        Self { expected, found }
    }
}

/// A decimal number of digits only: no sign, no blank, no overflow.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The fields of a line which stand apart by blanks or tabs.
pub(super) fn words(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_only_and_never_overflow() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"007"), Some(7));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1.0",
            "0x1",
            "18446744073709551616",
        ] {
            assert_eq!(number(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_quote_of_a_bad_line_is_short_and_printable() {
        let reject = Reject::line("x", &[0xff; 5000]);
        assert!(reject.found.is_ascii() && reject.found.len() <= 4 * SHOWN + 5);
    }
}
