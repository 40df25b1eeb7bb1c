//! Reliable datagram sockets (RDS) with RDMA by cookie, on a pool of memory regions.

#![forbid(unsafe_code)]

pub mod fabric;
mod host;
pub mod proto;
pub mod rdma;
mod socket;
pub mod wire;

pub use host::{BuildError, Driving, Host, HostBuilder};
pub use rdma::Cookie;
pub use socket::{Incoming, RdmaFlags, RdmaOp, Readiness, RecvError, RefusedOp, Socket};
