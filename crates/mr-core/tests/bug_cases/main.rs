//! Faults that other systems had, and faults that this pool had: a file for each kind. What each
//! test is called is what must hold; the comment says what happened where it did not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod boundary;
mod capacity;
mod completion_loss;
mod counter_desync;
mod error_path;
mod exhaustion;
mod flush_coverage;
mod key_reuse;
mod livelock;
mod liveness;
mod partial_failure;
mod setup;
#[path = "../../../mr-policies/tests/support/mod.rs"]
mod support;
mod teardown;
mod time;
mod two_owners;
mod unbounded_growth;
mod use_after_release;
