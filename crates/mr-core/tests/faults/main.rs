//! Everything that a backend can do wrong, at every call of a short scenario: exhaustively, not
//! sampled; and again while the pool recovers from the first fault.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod clock;
mod exhaustive;
mod hangs;
mod poison;
mod reentrancy;
mod scenario;
#[path = "../../../mr-policies/tests/support/mod.rs"]
mod support;
