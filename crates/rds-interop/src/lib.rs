//! rds-lite against the Linux kernel's RDS.
//!
//! An [`agent`] drives one of two [stacks](stack): rds-lite, or the kernel's RDS through its own
//! [sockets](kernel). It does the [steps](step::Step) that it is sent: bind, send, receive, restart.
//! The [`matrix`] is a list of cases, each of which has two agents talk to each other and verifies what
//! arrives. `cargo xtask hw --interop tcp` (or `verbs`) runs it in two virtual machines; in a test both
//! agents are rds-lite over TCP, so that the cases that need nothing else are tested everywhere.
//!
//! [`stress`] is the other side of `rds stress`. The [`race`] measures both, one beside the other.

pub mod agent;
pub mod kernel;
pub mod load;
pub mod matrix;
pub mod race;
pub mod stack;
pub mod step;
pub mod stress;
