//! The head to head: the same load over the kernel's RDS and over rds-lite, by turns.
//!
//! One side asks, the other answers; where the load has RDMA the asker lends memory with each request,
//! and the answerer writes there before it answers. A [`Seat`] is a socket of either implementation
//! with that memory. [`run`] has the asker, and orders an [`agent`] on another machine about, which has
//! the answerer; all contenders take turns, so that what disturbs the machine disturbs all of them.

pub mod agent;
mod answering;
mod asking;
mod contender;
mod cpu;
mod drive;
mod figures;
mod load;
mod modules;
mod report;
mod seat;

pub use answering::{Answered, answer};
pub use asking::{Asked, ask};
pub use contender::{Contender, all};
pub use drive::{Setup, run};
pub use figures::Spread;
pub use load::Load;
pub use report::{Entry, Report};
pub use seat::{Came, Implementation, LiteSeat, Method, Seat, Sent, Tally, Way};
