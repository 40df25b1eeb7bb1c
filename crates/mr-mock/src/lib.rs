//! A mock HCA that behaves and costs like one.
//!
//! [`MockHca`] is a backend for the pool of `mr-core`; [`RemotePeer`] is the far end of a
//! connection, which presents keys. Between them stand the two tables of an HCA and their caches:
//!
//! ```text
//!             MockHca (owner of the memory)            RemotePeer (has the key)
//!    alloc · map · soft_invalidate · invalidate      write · read · fetch_add · compare_swap · touch · invalidate
//!                       │                                        │ one look-up per packet
//!                       ▼                                        ▼ in each cache
//!    MPT entry: key, access, domain, state ──── fetched ───► MPT cache (by key)
//!    MTT: the pages, rewritten in place   ──── on a miss ──► MTT cache (lines of 8 pages)
//! ```
//!
//! - **It behaves.** Bytes move, and key, domain, connection, access and range are checked. A
//!   packet ends in one of three ways, counted apart in [`Counters`]: it is fine, it passes through
//!   a stale key ([`StaleSource`] says whether out of the table or of a cache), or it is refused
//!   and takes the connection down. An old key works for as long as a cache knows it: that is the
//!   hazard which the pool is about.
//! - **It costs.** Every operation adds to [`Costs`] by the figures of a [`Preset`], each of which
//!   has a source or is marked as assumed. Nothing sleeps, so a simulation sets its own clock by it.
//!   [`RemotePeer::touch`] does all of a transfer but move the bytes.
//! - **It fails.** [`FaultBackend`] puts a plan of faults before this or any other backend.
//!
//! # What it leaves out
//!
//! A mapping is one run of memory, so its MTT entries are computed, not stored. Real HCAs work on
//! whole pages and let a stale key reach what else lies on them; the mock never leaves the bytes
//! of a mapping, and refuses instead. Keys change in their low 8 bits only, where a real FMR steps
//! through the upper ones. On-demand paging is not there, and no operation is slowed down by others:
//! queueing is up to the simulation.

mod atomic;
mod cache;
mod chained;
mod connection;
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
