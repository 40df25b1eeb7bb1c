//! Policies for the pool of `mr-core`: when does a remote key die.
//!
//! A policy speaks on two axes, and may be silent on either: what becomes of a region at its
//! release, and when the stale regions are flushed.
//!
//! | policy | text | at release | flush | declared bound on exposure |
//! | --- | --- | --- | --- | --- |
//! | [`Immediate`] | `immediate` | invalidate now | - | none is left stale: 0 |
//! | [`UseOnce`] | `use-once` | retire | silent | none |
//! | [`UseN`] | `use-n=32` | reuse, retire after the 32nd mapping | silent | none |
//! | [`Threshold`] | `threshold=4000`, `threshold=25%` | silent | at so many worn regions | none |
//! | [`Threshold`] | `threshold=1GiB` | silent | at so many bytes behind stale keys | none |
//! | [`Periodic`] | `periodic=4s` | silent | every 4 s | 4 s |
//! | [`MaxExposure`] | `max-exposure=100ms` | silent | before a key is stale for longer | 100 ms |
//! | [`Adaptive`] | `adaptive=5key-s/1s` | silent | at 5 key-seconds, or at 1 s | 1 s |
//! | [`Named`] | `rds`, `srp`, … | as that system did | as that system did | none |
//!
//! They combine: at release the strictest opinion wins, at flush the earliest.
//!
//! # Embedding
//!
//! Code that knows its policy writes it as a plain type, without indirection:
//!
//! ```
//! use mr_policies::{MaxExposure, PolicyExt, Threshold, UseN};
//! use std::time::Duration;
//!
//! let policy = UseN::new(32)?
//!     .and(Threshold::regions(4000)?)
//!     .and(MaxExposure::new(Duration::from_secs(1))?);
//! assert_eq!(policy.to_string(), "use-n=32,threshold=4000,max-exposure=1s");
//! # Ok::<(), mr_core::PolicyError>(())
//! ```
//!
//! Tools and configuration files have it as text, and get a [`Policy`]:
//!
//! ```
//! use mr_policies::Policy;
//!
//! let policy: Policy = "use-n=32,threshold=4000,max-exposure=1s".parse()?;
//! assert_eq!(policy.to_string().parse::<Policy>()?, policy);
//! assert_eq!(Policy::default().to_string(), "immediate");
//! # Ok::<(), mr_policies::ParseError>(())
//! ```
//!
//! # The running example
//!
//! The figures in each policy's docs are for the load of the mail that this workspace answers:
//! 1000 I/Os of 1 MB a second on 5000 regions, on an HCA of 2008 whose fence is global. Two of its
//! figures are assumptions, because nobody has published them: a fence (SYNC_TPT) of 100 µs, and
//! 0.5 µs per region in it. A lease is held for 10 ms.

#![forbid(unsafe_code)]

mod adaptive;
mod and;
mod contradiction;
mod immediate;
mod max_exposure;
mod named;
mod parse_error;
mod periodic;
mod policy;
pub mod quantity;
mod range;
#[cfg(feature = "serde")]
mod serde;
mod strictest;
mod text;
mod threshold;
mod use_n;
mod use_once;

pub use adaptive::Adaptive;
pub use and::{And, PolicyExt};
pub use immediate::Immediate;
pub use max_exposure::MaxExposure;
pub use named::Named;
pub use parse_error::{ParseError, ParseErrorKind};
pub use periodic::Periodic;
pub use policy::Policy;
pub use text::{MAX_TEXT, syntax};
pub use threshold::Threshold;
pub use use_n::UseN;
pub use use_once::UseOnce;

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
