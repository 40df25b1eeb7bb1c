//! A [`Policy`] in a configuration file is its text.

use crate::Policy;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PolicyText)
    }
}

struct PolicyText;

impl Visitor<'_> for PolicyText {
    type Value = Policy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a policy, such as \"use-once,threshold=4000\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Policy, E> {
        text.parse().map_err(E::custom)
    }
}
