//! The generated operations, the world in which they happen, and what must hold in it.

mod batch;
mod check;
mod ops;
mod state;
mod steps;

pub(crate) use state::World;
pub(crate) use steps::{Setting, Step, setting, step};
