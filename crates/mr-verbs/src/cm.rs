//! RC connections that the connection manager (librdmacm) makes: what a transport is built on.
//!
//! A [`Listener`] gets [`Request`]s and [`dial`] makes them, each with a few bytes of private data.
//! Both lead to a [`Connection`], which posts, and its [`Poller`], which receives and learns how
//! everything has ended. All memory that a connection moves frames through is registered when it is
//! made; [`ConnectionConfig::memory`] says how much that is.
//!
//! Connections are of a [`Domain`](crate::Domain), as backends are: a key that a
//! [`RegistrationBackend`](crate::RegistrationBackend) of the same domain gives out works on them.
//!
//! ```no_run
//! use mr_verbs::cm::{ConnectionConfig, Dial, Event, Flags, Waker, dial};
//! use mr_verbs::{Device, Domain};
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let local = Ipv4Addr::new(10, 0, 0, 1);
//! let domain = Domain::new(&Device::of_address(local)?)?;
//! let wanted = Dial {
//!     local,
//!     remote: "10.0.0.2:18634".parse()?,
//!     private_data: b"hello",
//!     timeout: Duration::from_secs(5),
//! };
//! let mut dialled = dial(&domain, &wanted, &ConnectionConfig::default(), &Waker::new()?)?;
//!
//! let mut batch = dialled.connection.batch();
//! batch.send(1, &[0; 48], b"payload", Flags::SIGNALLED | Flags::SOLICITED)?;
//! batch.post();
//! while dialled.poller.wait(Duration::from_secs(1)) {
//!     dialled.poller.poll(64, |event| match event {
//!         Event::Frame(frame) => println!("{} bytes", frame.payload().len()),
//!         Event::Ended(ended) => println!("{}: {}", ended.id, ended.status),
//!         other => println!("{other:?}"),
//!     });
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # RDMA and local memory
//!
//! The local side of an RDMA operation is a list of buffers that the connection owns until the
//! operation has ended. Short operations are copied through memory that is registered already, the
//! buffers of longer ones are registered, one by one: see [`ConnectionConfig::staged_at_most`]. In
//! the virtual machine `cargo xtask hw -- connection-cost` printed, on 2026-12-01, microseconds for a
//! write that is waited for:
//!
//! | bytes | copied | registered |
//! | ---: | ---: | ---: |
//! | 512 | 61 | 238 |
//! | 4096 | 190 | 419 |
//! | 16384 | 689 | 741 |
//! | 65536 | 1904 | 1963 |
//! | 131072 | 5641 | 4716 |
//!
//! So up to 64 KiB are copied. A device that moves the bytes itself may want less.

mod batch;
mod config;
mod connection;
mod dial;
mod error;
mod id;
mod ledger;
mod listener;
mod local;
mod pair;
mod poller;
mod slots;
mod waker;

pub use batch::{Batch, Flags, NotTaken, Refused, RemoteMemory};
pub use config::{ConnectionConfig, MAX_REJECT_DATA, MAX_REPLY_DATA, MAX_REQUEST_DATA};
pub use connection::Connection;
pub use dial::{Dial, Dialled, Prepared, Requested, dial, prepare};
pub use error::{DialError, RejectReason};
pub use listener::{Listener, Request};
pub use poller::{Ended, Event, Frame, Over, Poller};
pub use waker::Waker;
