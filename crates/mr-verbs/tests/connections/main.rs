//! Connections through the connection manager, both ends in one process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

#[path = "../common/mod.rs"]
mod common;

mod ending;
mod frames;
mod making;
mod memory;
mod rig;
