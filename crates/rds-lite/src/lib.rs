//! Reliable datagram sockets (RDS) with RDMA by cookie, on a pool of memory regions.
//!
//! A [`Host`] lives on a [fabric](fabric::Fabric) and has [`Socket`]s. Datagrams between sockets arrive
//! once and in order, or a [notification](proto::Notification) says which did not. Memory is lent to
//! peers by [cookie](Cookie), through regions of an `mr-core` pool whose policy says when a key dies.
//!
//! `docs/rds-lite.md` explains the calls by a program, and says where this differs from the kernel's
//! RDS.
//!
//! It is not: a socket of the operating system (`AF_RDS`), nor a way to make the network reliable
//! against peers that lie.

#![deny(unsafe_code)]

pub mod fabric;
mod host;
pub mod proto;
pub mod rdma;
mod socket;
pub mod stress;
pub mod wire;

pub use host::{BuildError, Driving, Host, HostBuilder, ShutdownReport};
pub use rdma::{Buffers, Cookie};
pub use socket::{Incoming, RdmaFlags, RdmaOp, Readiness, RecvError, RefusedOp, Socket};

/// The guide's programs are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rds-lite.md")]
struct Guide;
