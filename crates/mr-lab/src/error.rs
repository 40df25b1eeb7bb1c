//! What can go wrong in the lab, and which exit code it has.

use crate::trace::TraceError;
use mr_core::{BuildError, FlushError, PolicyError};
use mr_mock::{MockError, PresetError};
use mr_policies::ParseError;
use std::io;
use std::path::PathBuf;

/// Why the lab has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A number of the scenario cannot be.
    #[error("{what} must be {allowed}, not {given}")]
    OutOfRange {
        /// The number, as the command line calls it.
        what: &'static str,
        /// What is allowed.
        allowed: String,
        /// What was given.
        given: String,
    },
    /// An I/O is longer than what a region can map.
    #[error(
        "an I/O of {bytes} bytes is longer than a region of {preset} maps ({most} bytes): {hint}"
    )]
    TooLong {
        /// The longest I/O.
        bytes: u64,
        /// The preset.
        preset: String,
        /// What a region maps.
        most: u64,
        /// What to do.
        hint: &'static str,
    },
    /// A text that is no policy.
    #[error("policy: {0}")]
    Policy(#[source] Box<ParseError>),
    /// A policy that cannot hold in the pool of the scenario.
    #[error("{reason} (on {preset})")]
    PolicyCannotHold {
        /// The preset.
        preset: String,
        /// Why not.
        reason: PolicyError,
    },
    /// A preset that there is not, or that says what cannot be.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// A file other than a trace cannot be read.
    #[error("{}: cannot be read: {source}; check the path and the permissions", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A trace that cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A parameter of a sweep that there is not, or a range that cannot be.
    #[error("{0}")]
    Sweep(String),
    /// Something asked for that the command cannot do.
    #[error("{0}")]
    Usage(String),
    /// The closed forms and the simulation disagree.
    #[error("{rows} of {of} rows differ from their closed form by more than {percent} %")]
    Disagree {
        /// Rows that do.
        rows: usize,
        /// Rows that have a closed form.
        of: usize,
        /// What is allowed.
        percent: f64,
    },
    /// The pool could not be built although everything was checked.
    #[error("the pool cannot be built: {0}")]
    Build(#[from] BuildError<MockError>),
    /// The mock HCA refused what the simulation asked of it outside of the pool.
    #[error("the mock HCA refuses: {0}; this is a defect, please report it")]
    Hca(#[source] MockError),
    /// The last flush of a run failed.
    #[error("the last flush failed: {0}; this is a defect, please report it")]
    Flush(#[source] FlushError),
    /// The simulation came to a state from which nothing follows.
    #[error("the simulation stopped at {at_s} s: {what}; this is a defect, please report it")]
    Stuck {
        /// Virtual time.
        at_s: f64,
        /// What is wrong.
        what: String,
    },
    /// There is nothing to measure with, or the device failed.
    #[error("measuring: {0}")]
    Device(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer could not be written.
    #[error("{}: cannot be written: {source}", path.as_deref().unwrap_or("standard output".as_ref()).display())]
    Output {
        /// The file; `None` for standard output.
        path: Option<PathBuf>,
        /// What the system said.
        source: io::Error,
    },
    /// The operating system has no address space for the buffers of the simulation.
    #[error("no address space for the buffers of the simulation: {0}; lower --regions or --size")]
    AddressSpace(#[source] io::Error),
}

impl LabError {
    /// 1 if the lab failed or disagrees with its closed forms, 2 if what it was given is at fault.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Disagree { .. }
            | Self::Build(_)
            | Self::Hca(_)
            | Self::Flush(_)
            | Self::Stuck { .. }
            | Self::Device(_)
            | Self::Output { .. }
            | Self::AddressSpace(_) => 1,
            _ => 2,
        }
    }
}

impl From<ParseError> for LabError {
    fn from(error: ParseError) -> Self {
        Self::Policy(Box::new(error))
    }
}
