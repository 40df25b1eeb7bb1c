//! What both sides count of connections and drops, for cases that fail.

use crate::agent::Peer;
use crate::step::{Reply, Step};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the names of these counters have in them.
const TELLING: &[&str] = &["conn", "dial", "drop", "listen", "reset"];

/// What a side had counted before a case.
pub(super) struct Counts<'a> {
    peer: &'a Peer,
    before: BTreeMap<String, u64>,
}

impl<'a> Counts<'a> {
    pub(super) fn before(peer: &'a Peer) -> Self {
        let before = counters(peer).unwrap_or_default();
        Self { peer, before }
    }

    /// What has been counted since then; of a side that began anew, since that.
    pub(super) fn meanwhile(&self) -> String {
        let name = self.peer.name;
        match counters(self.peer) {
            Some(after) => format!("{name} has counted {}", since(&self.before, &after)),
            None => format!("{name} does not tell what it has counted"),
        }
    }
}

fn counters(peer: &Peer) -> Option<BTreeMap<String, u64>> {
    match peer.call(&Step::Counters, Duration::ZERO) {
        Ok(Reply::Counters(counters)) => Some(counters),
        _ => None,
    }
}

fn since(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> String {
    let is_telling = |name: &str| TELLING.iter().any(|part| name.contains(part));
    let counted: Vec<String> = after
        .iter()
        .filter(|(name, _)| is_telling(name))
        .map(|(name, &now)| {
            let then = before.get(name).copied().unwrap_or_default();
            (name, now.checked_sub(then).unwrap_or(now))
        })
        .filter(|&(_, more)| more > 0)
        .map(|(name, more)| format!("{name} {more}"))
        .collect();
    match counted.is_empty() {
        true => "nothing".into(),
        false => counted.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_been_counted_since_then_is_told() {
        let counters = |counts: [u64; 3]| -> BTreeMap<String, u64> {
            let names = ["conn_reset", "ib_listen_closed_stale", "send_queued"];
            names.map(str::to_owned).into_iter().zip(counts).collect()
        };
        let before = counters([3, 7, 1]);
        assert_eq!(since(&before, &counters([3, 7, 9])), "nothing");
        let told = since(&before, &counters([5, 2, 9]));
        assert_eq!(told, "conn_reset 2, ib_listen_closed_stale 2");
    }
}
