//! What a run hands over when it is over.

use super::meter::Meter;
use mr_mock::Costs;

/// What a run has measured beside the statistics of the pool.
pub(crate) struct Outcome {
    /// Virtual time, in ns.
    pub(crate) elapsed: u64,
    pub(crate) meter: Meter,
    pub(crate) costs: Costs,
    /// The part of it in which a flush was under way, in ns.
    pub(crate) flushing: u64,
}
