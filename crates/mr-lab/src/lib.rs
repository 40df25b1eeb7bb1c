//! What does an invalidation policy cost for my load?
//!
//! The lab runs the production pool over the mock HCA in virtual time ([`sim`]) and says what each
//! policy costs and how long it leaves keys alive, before any hardware is bought. The command line
//! is in [`cli`]; everything it does can be had from here as well:
//!
//! ```
//! use mr_lab::scenario::{Load, Scenario};
//! use mr_lab::sim;
//! use mr_mock::Preset;
//! use std::time::Duration;
//!
//! let mut scenario = Scenario::default();
//! if let Load::Synthetic { duration, .. } = &mut scenario.load {
//!     *duration = Duration::from_secs(40);
//! }
//! let preset = Preset::named("connectx-2008")?;
//! let row = sim::run(&scenario, &preset, &"threshold=4000".parse()?)?;
//! assert_eq!((row.flushes, row.waits), (10, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a real HCA makes of the same policies is measured by [`measure`], with the feature `verbs`,
//! which needs libibverbs.

pub mod answer;
pub mod arrival;
pub mod check;
pub mod cli;
pub mod closed;
mod demand;
mod error;
pub mod measure;
mod parallel;
pub mod policies;
pub mod recording;
pub mod report;
pub mod row;
pub mod scenario;
mod shape;
pub mod sim;
pub mod size;
pub mod sweep;
pub mod trace;
pub mod units;

pub use error::LabError;
pub use parallel::all_cores;
