//! The protocol: bytes and time go in; bytes, deadlines and events come out.
//!
//! No socket, thread or clock is in here. [`Core`] holds everything that one host knows: its bound
//! sockets, and one connection per pair of addresses. A driver (the crate's
//! [`Host`](crate::Host) is one) feeds it frames and the time, carries out its [`Event`]s, and
//! fetches what is to be sent.

mod buffer;
mod config;
mod congestion;
mod connection;
mod control;
mod core;
mod counters;
mod credits;
mod deliver;
mod event;
mod info;
mod introduce;
mod link;
mod outgoing;
mod peers;
mod receive;
mod sending;
mod seq;
mod slots;
mod socket;
mod state;
#[cfg(test)]
mod tests;
mod transmit;

pub use self::core::{BindError, Core, Greeting, LinkKind};
pub(crate) use buffer::Share;
pub use buffer::{Buf, BufPool};
pub use config::{Config, ConfigError};
pub use counters::Counters;
pub use event::{
    AtomicOp, DoneStatus, DropReason, Event, Frame, LinkId, OpKind, Path, RdmaDone, RdmaWork,
    SockId, Transmission,
};
pub use info::{ConnectionInfo, MessageInfo, QueueKind, SocketInfo};
pub use outgoing::{Posted, SendError, Sending};
pub use receive::Payload;
pub use socket::{FailReason, Notification, Received, Status};
pub use state::{LinkEvent, LinkState};
