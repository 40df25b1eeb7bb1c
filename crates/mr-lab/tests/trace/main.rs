//! The trace readers, from outside: samples, round trips, damage.

// A test is meant to stop where something is wrong; clippy.toml allows it in test functions, this in what they call.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage;
mod round_trip;
mod samples;
mod writers;
