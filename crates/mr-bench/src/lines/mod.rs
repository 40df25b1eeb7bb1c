//! The lines of the table, a file for each group of lines that share a run.

mod batch;
mod clock;
mod cost;
mod immediate;
mod lab;
mod memory;
mod owned;
mod rds;
mod regions;
mod tail;
mod threads;

use std::path::PathBuf;

use anyhow::Result;

use crate::report::Line;

/// How to measure.
pub(crate) struct Setting {
    pub(crate) quick: bool,
    /// The program that times UCX's registration cache.
    pub(crate) ucx: Option<PathBuf>,
}

impl Setting {
    /// `full` rounds, or a tenth of them.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(10) } else { full }
    }
}

/// Measures one group of lines.
type Measure = fn(&Setting) -> Result<Vec<Line>>;

/// All groups in the order of the table.
pub(crate) const LINES: &[(&str, Measure)] = &[
    ("cost", cost::measure),
    ("owned", owned::measure),
    ("batch", batch::measure),
    ("threads", threads::measure),
    ("regions", regions::measure),
    ("tail", tail::measure),
    ("memory", memory::measure),
    ("immediate", immediate::measure),
    ("clock", clock::measure),
    // What lives on the pool.
    ("lab", lab::measure),
    ("rds", rds::measure),
];
