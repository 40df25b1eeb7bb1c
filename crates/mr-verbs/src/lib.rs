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
//! ```no_run
//! use mr_core::{Access, Pool};
//! use mr_policies::Threshold;
//! use mr_verbs::{Arena, Device, Domain, Endpoint, EndpointConfig, QpAddress, Window2Backend};
//! # fn ask_the_peer(ours: QpAddress) -> std::io::Result<QpAddress> { Ok(ours) }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open_first()?;
//! let domain = Domain::new(&device)?;
//! // By TCP, say: called now, and again whenever the queue pair is lost.
//! let endpoint = Endpoint::connect(&domain, EndpointConfig::default(), ask_the_peer)?;
//! let arena = Arena::new(&domain, 64 << 20)?;
//! let backend = Window2Backend::new(&endpoint, [arena.clone()])?;
//! let pool = Pool::builder(backend, Threshold::regions(256)?).build()?;
//!
//! // One doorbell: the window is bound, and the peer told the key and the address.
//! let mut buffer = arena.take(65536)?;
//! let addr = buffer.as_mut_ptr() as u64;
//! let lease = pool.lease_chained(buffer, Access::REMOTE_WRITE, |keys| {
//!     let mut request = addr.to_be_bytes().to_vec();
//!     request.extend(keys.remote.bits().to_be_bytes());
//!     request
//! })?;
//! // … the peer writes, and says so …
//! let buffer = lease.invalidate()?;
//! # Ok(())
//! # }
//! ```
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
//! - when messages have to go again since the peer's receive buffers are full, a queue pair with
//!   binds among them is stuck until the [timeout](EndpointConfig::timeout);
//! - a key of type 2 that the peer invalidates twice makes the kernel follow a null pointer
//!   (`rxe_invalidate_mw`); one that the peer and this host invalidate at the same moment must be
//!   expected to do so, too.
//!
//! So windows on such a device are for development with peers that are trusted. Backends that bind
//! windows log a warning there.
//!
//! This crate needs libibverbs and librdmacm, and libclang up to version 15 to build: `cargo xtask setup`.

mod arena;
mod bare;
mod bound;
pub mod cm;
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
pub use bare::Bare;
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
