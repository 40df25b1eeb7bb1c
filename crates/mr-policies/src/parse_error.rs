//! A text that is no policy.

use mr_core::PolicyError;
use std::fmt;

/// Why a text is no policy, where that shows, and what is allowed there.
///
/// Its `Display` has several lines: the place and the reason, the text with a caret under the
/// place, and what is allowed. Whatever is not printable ASCII in the text is shown escaped, so
/// the error is safe to print whoever wrote the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    offset: usize,
    kind: ParseErrorKind,
    allowed: String,
}

/// The kinds of [`ParseError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The text is longer than [`MAX_TEXT`](crate::MAX_TEXT).
    #[error("the text is too long")]
    TooLong,
    /// Nothing stands where a policy should.
    #[error("a policy is missing")]
    Empty,
    /// No policy has this name.
    #[error("there is no such policy")]
    UnknownPolicy,
    /// The policy needs `=` and a value.
    #[error("this policy needs a value")]
    MissingValue,
    /// The policy has no value.
    #[error("this policy takes no value")]
    UnexpectedValue,
    /// The value cannot be read, or is out of range.
    #[error("{0}")]
    BadValue(&'static str),
    /// The policy contradicts one before it.
    #[error(transparent)]
    Contradiction(PolicyError),
}

impl ParseError {
    /// `offset` is within `text`, at the start of a character.
    pub(crate) fn new(
        text: &str,
        offset: usize,
        kind: ParseErrorKind,
        allowed: impl Into<String>,
    ) -> Self {
        Self {
            text: text.to_owned(),
            offset,
            kind,
            allowed: allowed.into(),
        }
    }

    /// The place, in bytes from the start of the text.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// What is wrong there.
    pub const fn kind(&self) -> &ParseErrorKind {
        &self.kind
    }

    /// What would be right there.
    pub fn allowed(&self) -> &str {
        &self.allowed
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.offset).unwrap_or(&self.text);
        let indent = before.escape_default().count();
        writeln!(f, "column {}: {}", self.offset + 1, self.kind)?;
        writeln!(f, "  {}", self.text.escape_default())?;
        writeln!(f, "  {:indent$}^", "")?;
        write!(f, "allowed: {}", self.allowed)
    }
}

impl std::error::Error for ParseError {}
