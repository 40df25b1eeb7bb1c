//! A mock HCA that behaves and costs like one.

mod cache;
mod cost;
mod counters;
mod dma;
mod engine;
mod error;
mod faults;
mod hca;
#[cfg(feature = "mockall")]
pub mod mocks;
mod packet;
mod preset;
mod remote;
mod tpt;

pub use cost::Costs;
pub use counters::Counters;
pub use dma::{GhostBuffer, GhostMemory};
pub use error::MockError;
pub use faults::{Call, Fault, FaultBackend, FaultControl, FaultError, FaultPlan, When};
pub use hca::{MockHca, MockRegion};
pub use preset::{CacheTag, Evidence, Figure, FigureView, Preset, PresetError};
pub use remote::{Operation, Refusal, RefusalReason, RemotePeer, StaleSource, Transfer};
