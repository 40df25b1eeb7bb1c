//! What the HCA's work has cost, told apart call by call.

use mr_mock::{Costs, MockHca};

/// The costs of a device since the start of a run.
#[derive(Debug)]
pub(super) struct Spending {
    hca: MockHca,
    start: Costs,
    /// All that has been asked about.
    known: Costs,
}

impl Spending {
    pub(super) fn new(hca: MockHca) -> Self {
        let start = hca.costs();
        Self {
            hca,
            start,
            known: start,
        }
    }

    /// What was spent since the last question, but for what was [`add`](Self::add)ed.
    pub(super) fn since_last(&mut self) -> Costs {
        let now = self.hca.costs();
        now - std::mem::replace(&mut self.known, now)
    }

    /// These costs of the same device are known from elsewhere.
    pub(super) fn add(&mut self, costs: Costs) {
        self.known += costs;
    }

    pub(super) fn total(&self) -> Costs {
        self.hca.costs() - self.start
    }
}
