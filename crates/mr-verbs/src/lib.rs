//! [`MrBackend`](mr_core::MrBackend) over libibverbs: real RDMA devices.
//!
//! | backend | map | invalidate | use-n | a key works for |
//! | --- | --- | --- | --- | --- |
//! | [`RegistrationBackend`] | `ibv_reg_mr` | `ibv_dereg_mr` | no | the domain |
//! | [`Window1Backend`] | `ibv_bind_mw` | zero-length bind | yes | the domain |
//! | [`Window2Backend`] | BIND_MW | LOCAL_INV in chains, or the peer's SEND_WITH_INV | no | one connection |
//!
//! What is made holds on to what it was made from: windows to their domain and, while bound, to
//! their arena and queue pair; registrations and queue pairs to their domain; the domain to its
//! device. So safe code cannot free anything in the wrong order. Dropping frees in silence and logs
//! what it could not free; `close`, where there is one, says so.
//!
//! # Soft-RoCE
//!
//! On a software device ([`Device::is_software`]) registration does what it says. Memory windows
//! do not in the driver of Linux 6.1 (`rdma_rxe`), as seen in its virtual machine by the tests:
//!
//! - an access through a window is checked against the registration below it, so a key reaches the
//!   whole arena;
//! - the key is checked at the first packet of a write only, so a write of several packets that is
//!   under way when the key dies goes on to its end, *also after the invalidation has been
//!   reported*: there promise 2 holds for accesses that begin later;
//! - when a message goes again (a lost packet, a receiver not ready), a bind in the same chain is
//!   done again, which fails, and the queue pair is stuck until the
//!   [timeout](EndpointConfig::timeout);
//! - a key of type 2 that is invalidated twice, by the peer or by the peer and this host at the same
//!   moment, makes the kernel follow a null pointer.
//!
//! So windows on such a device are for development with peers that are trusted. Backends that bind
//! windows log a warning there.
//!
//! This crate needs libibverbs, and libclang up to version 15 to build: `cargo xtask setup`.

mod arena;
mod bound;
mod completion;
mod device;
mod endpoint;
mod error;
mod fork;
mod gid;
mod inbox;
mod kill;
mod limits;
mod link;
mod mr;
mod mw;
mod pd;
mod peer_keys;
mod post;
mod qp;
mod recovery;
mod registration;
mod send_queue;
mod sys;
#[cfg(test)]
mod testing;
mod wait;
mod window1;
mod window2;

pub use arena::{Arena, ArenaBuffer, PAGE};
pub use completion::Status;
pub use device::{Device, DeviceLimits, PortState, devices};
pub use endpoint::{Endpoint, EndpointConfig};
pub use error::{Errno, Error, ProtocolError};
pub use fork::make_fork_safe;
pub use gid::Gid;
pub use inbox::Message;
pub use pd::Domain;
pub use qp::QpAddress;
pub use recovery::Connector;
pub use registration::{RegistrationBackend, RegistrationRegion};
pub use window1::{Window1Backend, Window1Region};
pub use window2::{Window2Backend, Window2Region};
