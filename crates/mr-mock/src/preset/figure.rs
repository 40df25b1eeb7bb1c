//! One figure of a preset: a value, and why to believe it.

use super::CacheTag;
use mr_core::{Fence, KeyScope, Remap};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A value with where it comes from.
///
/// In a preset file either the bare value, or `{ value = …, evidence = "…", source = "…" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure<T> {
    /// The value.
    pub value: T,
    /// How sure it is.
    pub evidence: Evidence,
    /// Where it comes from.
    pub source: String,
}

/// How sure a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Evidence {
    /// Stands in a published text or in driver source.
    Stated,
    /// Read off a published graph, within 5 to 10 %.
    Graph,
    /// Measured by a command of this workspace, which the source names.
    Measured,
    /// Computed from stated, graph or measured figures.
    Derived,
    /// No source: sweep it.
    Assumed,
    /// From whoever wrote the file.
    Given,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stated => "stated",
            Self::Graph => "graph",
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Assumed => "assumed",
            Self::Given => "given",
        })
    }
}

/// A figure as a report shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureView<'a> {
    /// Its name in a preset file.
    pub name: &'static str,
    /// Its value in the notation of a preset file, strings without quotes.
    pub value: String,
    /// How sure it is.
    pub evidence: Evidence,
    /// Where it comes from.
    pub source: &'a str,
    /// What it means.
    pub meaning: &'static str,
}

/// `figure` as a report shows it.
pub(super) fn view<'a, T: Value>(
    figure: &'a Figure<T>,
    name: &'static str,
    meaning: &'static str,
) -> FigureView<'a> {
    FigureView {
        name,
        value: figure.value.show(),
        evidence: figure.evidence,
        source: &figure.source,
        meaning,
    }
}

/// What a figure's value can be.
pub(super) trait Value: Sized {
    /// What is allowed, for error messages.
    const ALLOWED: &'static str;

    fn from_number(_: u64) -> Option<Self> {
        None
    }

    fn from_bool(_: bool) -> Option<Self> {
        None
    }

    fn from_text(_: &str) -> Option<Self> {
        None
    }

    fn show(&self) -> String;
}

impl Value for u64 {
    const ALLOWED: &'static str = "a whole number, 0 or more";

    fn from_number(number: u64) -> Option<Self> {
        Some(number)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const ALLOWED: &'static str = "true or false";

    fn from_bool(flag: bool) -> Option<Self> {
        Some(flag)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! choice {
    ($type:ty, $allowed:literal, $($text:literal => $value:path),+) => {
        impl Value for $type {
            const ALLOWED: &'static str = $allowed;

            fn from_text(text: &str) -> Option<Self> {
                match text {
                    $($text => Some($value),)+
                    _ => None,
                }
            }

            fn show(&self) -> String {
                match self {
                    $($value => $text,)+
                }
                .to_owned()
            }
        }
    };
}

choice!(Fence, r#""global" or "per-key""#,
    "global" => Fence::Global, "per-key" => Fence::PerKey);
choice!(Remap, r#""impossible", "leaves-previous" or "kills-previous""#,
    "impossible" => Remap::Impossible,
    "leaves-previous" => Remap::LeavesPrevious,
    "kills-previous" => Remap::KillsPrevious);
choice!(CacheTag, r#""full-key" or "index""#,
    "full-key" => CacheTag::FullKey, "index" => CacheTag::Index);
choice!(KeyScope, r#""protection-domain" or "connection""#,
    "protection-domain" => KeyScope::ProtectionDomain, "connection" => KeyScope::Connection);

/// A bare value.
struct Scalar<T>(T);

impl<'de, T: Value> de::Deserialize<'de> for Scalar<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(FigureVisitor(PhantomData, false))
            .map(|figure| Self(figure.value))
    }
}

impl<'de, T: Value> de::Deserialize<'de> for Figure<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FigureVisitor(PhantomData, true))
    }
}

/// Reads a bare value or, if the flag says so, a table.
struct FigureVisitor<T>(PhantomData<T>, bool);

impl<'de, T: Value> Visitor<'de> for FigureVisitor<T> {
    type Value = Figure<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::ALLOWED)?;
        if self.1 {
            f.write_str(", or a table { value, evidence, source }")?;
        }
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Figure<T>, E> {
        u64::try_from(number)
            .ok()
            .and_then(T::from_number)
            .map(given)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Figure<T>, E> {
        T::from_bool(flag)
            .map(given)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Bool(flag), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Figure<T>, E> {
        T::from_text(text)
            .map(given)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Figure<T>, A::Error> {
        if !self.1 {
            return Err(de::Error::invalid_type(de::Unexpected::Map, &self));
        }
        let mut value = None;
        let mut evidence = Evidence::Given;
        let mut source = String::new();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "value" => value = Some(map.next_value::<Scalar<T>>()?.0),
                "evidence" => evidence = map.next_value()?,
                "source" => source = map.next_value()?,
                _ => {
                    return Err(de::Error::unknown_field(
                        &key,
                        &["value", "evidence", "source"],
                    ));
                }
            }
        }
        let value = value.ok_or_else(|| de::Error::missing_field("value"))?;
        Ok(Figure {
            value,
            evidence,
            source,
        })
    }
}

fn given<T>(value: T) -> Figure<T> {
    Figure {
        value,
        evidence: Evidence::Given,
        source: String::new(),
    }
}
