//! What the tests of the whole pool stand on: buffers that tell when they are dropped, and a spy
//! that keeps the books of a backend on its own.

#![allow(
    dead_code,
    unused_imports,
    reason = "not every test file uses all of it"
)]
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

mod buffer;
mod spy;

pub(crate) use buffer::{Buffer, Morgue};
pub(crate) use spy::{Book, Spy};
