//! The load of `rds stress`: requests and answers between sockets, memory moved by RDMA, and all of it verified.
//!
//! Two sides agree on a [`Load`] over a TCP connection ([`Control`]). Each has tasks ([`Side`]), each of
//! which has a socket, asks all tasks of the other side, and answers them. What a task wants of its
//! socket is a [`Carrier`], so that the other side can be another implementation of RDS.
//!
//! The flags, the columns and the header of messages are those of rds-stress. What the two sides agree on is
//! not, so the other side of rds-stress it cannot be.

mod carrier;
mod control;
mod counts;
mod error;
mod flags;
mod header;
mod lite;
mod load;
mod pattern;
mod report;
mod session;
mod side;
mod slots;
mod task;

pub use carrier::{Arrived, Carrier, NAP, Operation, Refusal, Want};
pub use control::{Control, ControlError};
pub use error::Fault;
pub use flags::{Flags, parse_seconds, parse_size};
pub use header::{HEADER, Header, Kind, Rdma};
pub use lite::LiteCarrier;
pub use load::{Load, LoadError};
pub use pattern::{divide, fill, is_filled};
pub use report::{Format, Remarks, Reporter};
pub use session::{SessionError, alone, follow, lead};
pub use side::{Side, places};
