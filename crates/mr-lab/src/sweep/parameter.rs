//! What can be swept: numbers of the scenario, of policies, and of presets.

use super::value::{Kind, Value};
use crate::LabError;
use crate::scenario::{Load, Scenario};
use crate::size::Sizes;
use mr_mock::Preset;
use mr_policies::Policy;
use std::time::Duration;

/// A number that a sweep can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    name: String,
    of: Of,
}

/// Whose number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Scenario(&'static ScenarioNumber),
    /// The clause of this name.
    Policy(Kind),
    /// The figure of this name.
    Preset(&'static str),
}

#[derive(Debug)]
struct ScenarioNumber {
    name: &'static str,
    kind: Kind,
    set: fn(&mut Scenario, u64),
}

/// Not by address: there is one of each name.
impl PartialEq for ScenarioNumber {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ScenarioNumber {}

const SCENARIO: [ScenarioNumber; 8] = [
    ScenarioNumber {
        name: "rate",
        kind: Kind::Count,
        set: |scenario, number| {
            if let Load::Synthetic { rate, .. } = &mut scenario.load {
                *rate = number as f64;
            }
        },
    },
    ScenarioNumber {
        name: "size",
        kind: Kind::Bytes,
        set: |scenario, number| {
            if let Load::Synthetic { sizes, .. } = &mut scenario.load {
                *sizes = Sizes::Fixed(number);
            }
        },
    },
    ScenarioNumber {
        name: "regions",
        kind: Kind::Count,
        set: |scenario, number| scenario.regions = small(number),
    },
    ScenarioNumber {
        name: "concurrency",
        kind: Kind::Count,
        set: |scenario, number| scenario.concurrency = small(number),
    },
    ScenarioNumber {
        name: "hot-keys",
        kind: Kind::Count,
        set: |scenario, number| scenario.hot_keys = small(number),
    },
    ScenarioNumber {
        name: "service-time",
        kind: Kind::Time,
        set: |scenario, number| scenario.service_time = Duration::from_nanos(number),
    },
    ScenarioNumber {
        name: "flush-delay",
        kind: Kind::Time,
        set: |scenario, number| scenario.flush_delay = Duration::from_nanos(number),
    },
    ScenarioNumber {
        name: "max-age",
        kind: Kind::Time,
        set: |scenario, number| scenario.max_age = Duration::from_nanos(number),
    },
];

const POLICY: [(&str, Kind); 5] = [
    ("threshold", Kind::Count),
    ("use-n", Kind::Count),
    ("periodic", Kind::Time),
    ("max-exposure", Kind::Time),
    ("adaptive", Kind::KeyTime),
];

/// Other names of figures.
const ALIASES: [(&str, &str); 7] = [
    ("sync-latency", "sync_ns"),
    ("stall", "stall_ns"),
    ("mpt-cache", "mpt_entries"),
    ("mtt-cache", "mtt_lines"),
    ("miss", "miss_ns"),
    ("mtu", "mtu_bytes"),
    ("link", "link_bytes_per_s"),
];

/// Figures of which only doublings make sense.
const DOUBLING: [&str; 5] = [
    "mpt_entries",
    "mtt_lines",
    "mtu_bytes",
    "page_bytes",
    "mtt_line_pages",
];

impl Parameter {
    /// The parameter of this name.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let scenario = SCENARIO.iter().find(|number| number.name == name);
        let policy = POLICY.iter().find(|(clause, _)| *clause == name);
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let figure = alias.map_or_else(|| name.replace('-', "_"), |(_, figure)| (*figure).into());
        let figure = Preset::FIELDS.iter().find(|field| **field == figure);
        let of = match (scenario, policy, figure) {
            (Some(number), ..) => Of::Scenario(number),
            (_, Some((_, kind)), _) => Of::Policy(*kind),
            (.., Some(figure)) => Of::Preset(figure),
            _ => {
                return Err(format!(
                    "there is no parameter {name:?}; there are {}",
                    all()
                ));
            }
        };
        Ok(Self {
            name: name.to_owned(),
            of,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a number of a policy.
    pub const fn is_of_policy(&self) -> bool {
        matches!(self.of, Of::Policy(_))
    }

    pub(super) fn kind(&self) -> Kind {
        match self.of {
            Of::Scenario(number) => number.kind,
            Of::Policy(kind) => kind,
            Of::Preset(figure) if DOUBLING.contains(&figure) => Kind::Doubling,
            Of::Preset(figure) if figure.ends_with("_ns") => Kind::Time,
            Of::Preset(_) => Kind::Count,
        }
    }

    /// Sets it where it belongs.
    pub(super) fn set(
        &self,
        value: &Value,
        scenario: &mut Scenario,
        preset: &mut Preset,
        policy: &mut Policy,
    ) -> Result<(), LabError> {
        match self.of {
            Of::Scenario(number) => (number.set)(scenario, value.number),
            Of::Policy(_) => *policy = with_clause(policy, &self.name, value).parse()?,
            Of::Preset(figure) => {
                let number = value.number.to_string();
                *preset = preset.clone().with(&[(figure, &number)])?;
            }
        }
        Ok(())
    }
}

/// The policy's text with this clause in place of one of the same name, or behind the others.
fn with_clause(policy: &Policy, name: &str, value: &Value) -> String {
    let new = format!("{name}={value}");
    let text = policy.to_string();
    let is_same = |clause: &str| clause.split('=').next() == Some(name);
    let mut clauses: Vec<&str> = text.split(',').collect();
    match clauses.iter_mut().find(|clause| is_same(clause)) {
        Some(clause) => *clause = &new,
        None => clauses.push(&new),
    }
    clauses.join(",")
}

fn all() -> String {
    let scenario = SCENARIO.iter().map(|number| number.name);
    let policy = POLICY.iter().map(|(name, _)| *name);
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    let names: Vec<_> = scenario.chain(policy).chain(aliases).collect();
    format!(
        "{}, and the figures of presets (mr-lab presets NAME)",
        names.join(", ")
    )
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Axis;

    fn swept(policy: &str, over: &str) -> String {
        let axis = Axis::parse(over, 2).unwrap();
        with_clause(
            &policy.parse().unwrap(),
            axis.parameter.name(),
            &axis.values[0],
        )
    }

    #[test]
    fn a_clause_is_replaced_or_added() {
        assert_eq!(
            swept("use-once,threshold=4000", "threshold=7"),
            "use-once,threshold=7"
        );
        assert_eq!(
            swept("use-once", "max-exposure=10ms"),
            "use-once,max-exposure=10ms"
        );
    }

    #[test]
    fn figures_go_by_their_name_and_by_another() {
        for name in ["sync-latency", "sync_ns", "sync-ns"] {
            let parameter = Parameter::named(name).unwrap();
            assert_eq!(parameter.of, Of::Preset("sync_ns"));
            assert_eq!(parameter.kind(), Kind::Time);
        }
        assert_eq!(
            Parameter::named("mpt-cache").unwrap().kind(),
            Kind::Doubling
        );
    }
}
