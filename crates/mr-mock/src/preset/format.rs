//! Reading preset files.

use super::{Layer, Preset, check, shipped};
use std::fmt;
use std::ops::Range;

/// Where in a file each field was set.
pub(super) type Places = Vec<(&'static str, Range<usize>)>;

/// Longest preset text: far above any real one, and far below what would hurt.
const MAX_LEN: usize = 64 * 1024;

/// A preset that cannot be used: where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetError {
    /// What the text was called.
    pub origin: String,
    /// Line and column, from 1, if the fault has a place in the text.
    pub place: Option<(usize, usize)>,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for PresetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for PresetError {}

impl Preset {
    /// The shipped preset of this name.
    ///
    /// # Errors
    ///
    /// If there is none; the message lists those that there are.
    pub fn named(name: &str) -> Result<Self, PresetError> {
        let text = shipped::text(name).ok_or_else(|| PresetError {
            origin: format!("preset {name:?}"),
            place: None,
            message: format!(
                "there is no such preset; there are {}",
                Self::names().join(", ")
            ),
        })?;
        Self::parse(&format!("{name}.toml"), text)
    }

    /// Names of the shipped presets.
    pub fn names() -> Vec<&'static str> {
        shipped::names().collect()
    }

    /// Reads a preset file. `origin` is what error messages call it.
    ///
    /// A file sets every field, or names a shipped preset to start from. Without a `name` the
    /// preset is called by its origin.
    ///
    /// ```
    /// # use mr_mock::Preset;
    /// let mine = Preset::parse("mine.toml", r#"
    ///     name = "mine"
    ///     extends = "connectx-3"
    ///     sync_ns = 42_000
    ///     mtt_lines = { value = 512, evidence = "given", source = "64-byte reads over a growing MR" }
    /// "#)?;
    /// assert_eq!(mine.sync_ns.value, 42_000);
    /// # Ok::<_, mr_mock::PresetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// With line and column: a text that is no TOML, an unknown field, a missing field, a value
    /// of the wrong type or out of its range, an unknown base.
    pub fn parse(origin: &str, text: &str) -> Result<Self, PresetError> {
        if text.len() > MAX_LEN {
            return Err(PresetError {
                origin: origin.to_owned(),
                place: None,
                message: format!("a preset is at most {MAX_LEN} bytes long"),
            });
        }
        let mut layer = read(origin, text)?;
        layer.name.get_or_insert_with(|| origin.to_owned());
        let base = match &layer.extends {
            None => None,
            Some(base) => Some(Self::named(base.get_ref()).map_err(|error| PresetError {
                origin: origin.to_owned(),
                place: Some(place(text, base.span().start)),
                message: format!("extends {:?}: {}", base.get_ref(), error.message),
            })?),
        };
        layer.onto(origin, text, base)
    }

    /// This preset with some figures changed: pairs of name and value, in the notation of a preset
    /// file, where the quotes around a word may be left out.
    ///
    /// ```
    /// # use mr_mock::Preset;
    /// let slow = Preset::named("connectx-2008")?.with(&[("sync_ns", "10_000_000")])?;
    /// # assert_eq!(slow.sync_ns.value, 10_000_000);
    /// # Ok::<_, mr_mock::PresetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such figure, or its value is not allowed, alone or with the others.
    pub fn with(self, changes: &[(&str, &str)]) -> Result<Self, PresetError> {
        let origin = self.name.clone();
        let error = |message| PresetError {
            origin: origin.clone(),
            place: None,
            message,
        };
        let mut text = String::new();
        for (field, value) in changes {
            if !Self::FIELDS.contains(field) {
                return Err(error(format!(
                    "there is no figure {field:?}; there are {}",
                    Self::FIELDS.join(", ")
                )));
            }
            if value.contains(['\n', '#']) {
                return Err(error(format!("{field}: one value only, not {value:?}")));
            }
            let quote = if is_word(value) { "\"" } else { "" };
            let line = format!("{field} = {quote}{value}{quote}\n");
            read(&origin, &line).map_err(|fault| error(format!("{field}: {}", fault.message)))?;
            text.push_str(&line);
        }
        let place = None;
        read(&origin, &text)
            .and_then(|layer| layer.onto(&origin, &text, Some(self)))
            .map_err(|fault| PresetError { place, ..fault })
    }
}

/// Whether a value is a word that a preset file would have in quotes.
fn is_word(value: &str) -> bool {
    let mut bytes = value.bytes();
    !matches!(value, "true" | "false")
        && bytes.all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

impl Layer {
    fn onto(self, origin: &str, text: &str, base: Option<Preset>) -> Result<Preset, PresetError> {
        let error = |at: Option<usize>, message| PresetError {
            origin: origin.to_owned(),
            place: at.map(|at| place(text, at)),
            message,
        };
        let (preset, places) = self.over(base).map_err(|field| {
            error(
                None,
                format!("{field} is missing; give it, or start from another preset with `extends`"),
            )
        })?;
        check::check(&preset).map_err(|(field, message)| {
            let at = places
                .iter()
                .find(|(name, _)| *name == field)
                .map(|(_, span)| span.start);
            error(at, format!("{field} {message}"))
        })?;
        Ok(preset)
    }
}

fn read(origin: &str, text: &str) -> Result<Layer, PresetError> {
    toml::from_str(text).map_err(|error| PresetError {
        origin: origin.to_owned(),
        place: error.span().map(|span| place(text, span.start)),
        message: error.message().to_owned(),
    })
}

/// Line and column of a byte offset.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let column = before.get(line_start..).unwrap_or("").chars().count() + 1;
    (line, column)
}
