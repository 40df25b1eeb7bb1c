//! Policies as text.

use crate::contradiction;
use crate::parse_error::{ParseError, ParseErrorKind};
use crate::policy::{Part, Policy};
use crate::quantity::{self, BYTES, BadQuantity, KEY_TIME, TIME};
use crate::range::TIMES;
use crate::{Adaptive, Immediate, MaxExposure, Named, Periodic, Threshold, UseN, UseOnce};
use mr_core::PolicyError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest text of a policy, in bytes.
pub const MAX_TEXT: usize = 256;

impl FromStr for Policy {
    type Err = ParseError;

    /// Reads `use-n=32,threshold=4000,max-exposure=1s`. Spaces around commas and `=` are allowed.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.len() > MAX_TEXT {
            return Err(too_long(text));
        }
        let mut parts = Vec::new();
        for clause in clauses(text) {
            let part = parse_clause(clause)
                .and_then(|part| agreeing(&parts, part, clause))
                .map_err(|bad| ParseError::new(text, bad.offset, bad.kind, bad.allowed))?;
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        Ok(Self::of(parts))
    }
}

/// How policies are written: one line for each, its form and what it does. For `--help`.
///
/// ```
/// assert!(mr_policies::syntax().to_string().contains("use-n=N"));
/// ```
pub fn syntax() -> impl fmt::Display {
    fmt::from_fn(|f| {
        for form in &FORMS {
            writeln!(f, "{:<16}{}", form.to_string(), form.meaning)?;
        }
        write!(f, "{:<16}what these systems do: ", "NAME")?;
        write_names(f)?;
        write!(
            f,
            "\nSeveral, with commas: strictest at release, earliest at flush"
        )
    })
}

/// The parts of a combination that are of this crate. Those from elsewhere are left out.
pub(crate) fn known_parts(text: &str) -> Vec<Part> {
    clauses(text)
        .filter_map(|clause| parse_clause(clause).ok())
        .collect()
}

/// How one policy is written.
struct Form {
    name: &'static str,
    value: Value,
    meaning: &'static str,
}

enum Value {
    None(Part),
    Some {
        name: &'static str,
        allowed: fn() -> String,
        parse: fn(&str) -> Result<Part, BadValue>,
    },
}

const FORMS: [Form; 7] = [
    Form {
        name: "immediate",
        value: Value::None(Part::Immediate(Immediate)),
        meaning: "invalidate at release",
    },
    Form {
        name: "use-once",
        value: Value::None(Part::UseOnce(UseOnce)),
        meaning: "map a region once before it waits for a flush",
    },
    Form {
        name: "use-n",
        value: Value::Some {
            name: "N",
            allowed: UseN::allowed,
            parse: parse_use_n,
        },
        meaning: "map a region up to N times before it waits for a flush",
    },
    Form {
        name: "threshold",
        value: Value::Some {
            name: "M",
            allowed: || {
                "a number of regions (4000), a share of them from 1% to 100%, or bytes (1GiB)"
                    .into()
            },
            parse: parse_threshold,
        },
        meaning: "flush at M worn regions (4000, 25%) or M bytes of stale keys (1GiB)",
    },
    Form {
        name: "periodic",
        value: Value::Some {
            name: "T",
            allowed: || TIMES.into(),
            parse: |text| Ok(Part::Periodic(Periodic::new(parse_time(text)?)?)),
        },
        meaning: "flush every T",
    },
    Form {
        name: "max-exposure",
        value: Value::Some {
            name: "T",
            allowed: || TIMES.into(),
            parse: |text| Ok(Part::MaxExposure(MaxExposure::new(parse_time(text)?)?)),
        },
        meaning: "flush before a key is stale for longer than T",
    },
    Form {
        name: "adaptive",
        value: Value::Some {
            name: "Q[/T]",
            allowed: || format!("key-seconds (5key-s, 100key-ms), and if wanted / and {TIMES}"),
            parse: parse_adaptive,
        },
        meaning: "flush at Q key-seconds of exposure (5key-s), or when a key is stale for T",
    },
];

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Value::None(_) => f.write_str(self.name),
            Value::Some { name, .. } => write!(f, "{}={name}", self.name),
        }
    }
}

/// One policy in a text, without the spaces around it.
#[derive(Clone, Copy)]
struct Clause<'a> {
    /// Where it starts in the whole text, in bytes.
    offset: usize,
    text: &'a str,
}

impl<'a> Clause<'a> {
    fn trimmed(offset: usize, text: &'a str) -> Self {
        let start = text.len() - text.trim_start_matches(' ').len();
        Self {
            offset: offset + start,
            text: text.trim_matches(' '),
        }
    }

    /// The name, and the value behind the first `=`.
    fn split(self) -> (&'a str, Option<Self>) {
        match self.text.split_once('=') {
            None => (self.text, None),
            Some((name, value)) => {
                let offset = self.offset + name.len() + 1;
                (
                    name.trim_end_matches(' '),
                    Some(Self::trimmed(offset, value)),
                )
            }
        }
    }
}

fn clauses(text: &str) -> impl Iterator<Item = Clause<'_>> {
    let mut next = 0;
    text.split(',').map(move |clause| {
        let offset = next;
        next += clause.len() + 1;
        Clause::trimmed(offset, clause)
    })
}

/// What is wrong at which byte of the whole text.
struct BadClause {
    offset: usize,
    kind: ParseErrorKind,
    allowed: String,
}

fn parse_clause(clause: Clause<'_>) -> Result<Part, BadClause> {
    let (name, value) = clause.split();
    if let Some(named) = Named::ALL.into_iter().find(|named| named.name() == name) {
        return no_value(Part::Named(named), value);
    }
    let Some(form) = FORMS.iter().find(|form| form.name == name) else {
        return Err(BadClause {
            offset: clause.offset,
            kind: match clause.text {
                "" => ParseErrorKind::Empty,
                _ => ParseErrorKind::UnknownPolicy,
            },
            allowed: all_forms(),
        });
    };
    match (&form.value, value) {
        (Value::None(part), value) => no_value(*part, value),
        (Value::Some { name, allowed, .. }, None) => Err(BadClause {
            offset: clause.offset + clause.text.len(),
            kind: ParseErrorKind::MissingValue,
            allowed: format!("{form}, where {name} is {}", allowed()),
        }),
        (Value::Some { allowed, parse, .. }, Some(value)) => {
            parse(value.text).map_err(|bad| BadClause {
                offset: value.offset + bad.at,
                kind: ParseErrorKind::BadValue(bad.reason),
                allowed: allowed(),
            })
        }
    }
}

fn no_value(part: Part, value: Option<Clause<'_>>) -> Result<Part, BadClause> {
    match value {
        None => Ok(part),
        Some(value) => Err(BadClause {
            offset: value.offset,
            kind: ParseErrorKind::UnexpectedValue,
            allowed: part.get().to_string(),
        }),
    }
}

/// `part`, if it contradicts none of those before it.
fn agreeing(parts: &[Part], part: Part, clause: Clause<'_>) -> Result<Part, BadClause> {
    let contradicted = parts
        .iter()
        .find_map(|first| contradiction::between(first, &part).map(|reason| (first, reason)));
    let Some((first, reason)) = contradicted else {
        return Ok(part);
    };
    let (first, second) = (first.get().to_string(), part.get().to_string());
    Err(BadClause {
        offset: clause.offset,
        allowed: format!("{first} or {second}"),
        kind: ParseErrorKind::Contradiction(PolicyError::Contradiction {
            first,
            second,
            reason,
        }),
    })
}

/// What is wrong at which byte of a value.
struct BadValue {
    at: usize,
    reason: &'static str,
}

impl From<BadQuantity> for BadValue {
    fn from(BadQuantity { at, reason }: BadQuantity) -> Self {
        Self { at, reason }
    }
}

/// The policies' constructors fail in one way only.
impl From<PolicyError> for BadValue {
    fn from(_: PolicyError) -> Self {
        Self {
            at: 0,
            reason: "the value is out of range",
        }
    }
}

fn parse_use_n(text: &str) -> Result<Part, BadValue> {
    Ok(Part::UseN(UseN::new(parse_count(text)?)?))
}

fn parse_threshold(text: &str) -> Result<Part, BadValue> {
    let policy = if let Some(percent) = text.strip_suffix('%') {
        Threshold::percent(u8::try_from(parse_count(percent)?).unwrap_or(u8::MAX))?
    } else if text.ends_with(|c: char| c.is_ascii_digit()) {
        Threshold::regions(parse_count(text)?)?
    } else {
        Threshold::bytes(quantity::parse(text, BYTES)?)?
    };
    Ok(Part::Threshold(policy))
}

fn parse_adaptive(text: &str) -> Result<Part, BadValue> {
    let (quota, age) = match text.split_once('/') {
        Some((quota, age)) => (quota, Some(age)),
        None => (text, None),
    };
    let policy = Adaptive::of_key_nanos(quantity::parse(quota, KEY_TIME)?)?;
    let Some(age) = age else {
        return Ok(Part::Adaptive(policy));
    };
    let capped = parse_time(age).and_then(|age| Ok(policy.with_max_age(age)?));
    let behind_slash = |bad: BadValue| BadValue {
        at: quota.len() + 1 + bad.at,
        ..bad
    };
    capped.map(Part::Adaptive).map_err(behind_slash)
}

fn parse_time(text: &str) -> Result<Duration, BadValue> {
    Ok(Duration::from_nanos(quantity::parse(text, TIME)?))
}

/// A whole number without a sign or a unit.
fn parse_count(text: &str) -> Result<u32, BadValue> {
    let bad = |at, reason| BadValue { at, reason };
    if text.is_empty() {
        return Err(bad(0, "a number is missing"));
    }
    if let Some(at) = text.find(|c: char| !c.is_ascii_digit()) {
        return Err(bad(at, "this is no whole number"));
    }
    text.parse().map_err(|_| bad(0, "the number is too large"))
}

/// Keeps what it echoes within the limit as well.
fn too_long(text: &str) -> ParseError {
    let end = text.floor_char_boundary(MAX_TEXT);
    let shown = text.get(..end).unwrap_or_default();
    let allowed = format!("{MAX_TEXT} bytes");
    ParseError::new(shown, end, ParseErrorKind::TooLong, allowed)
}

fn all_forms() -> String {
    fmt::from_fn(|f| {
        FORMS.iter().try_for_each(|form| write!(f, "{form}, "))?;
        write_names(f)
    })
    .to_string()
}

fn write_names(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (place, named) in Named::ALL.into_iter().enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        write!(f, "{comma}{named}")?;
    }
    Ok(())
}
