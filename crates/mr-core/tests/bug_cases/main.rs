//! Faults that other systems had, and faults that this pool had: a file for each kind. What each
//! test is called is what must not happen again.

mod counter_desync;
mod key_reuse;
mod setup;
#[path = "../../../mr-policies/tests/support/mod.rs"]
mod support;
