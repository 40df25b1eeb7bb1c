//! Reliable datagram sockets (RDS) with RDMA by cookie, on a pool of memory regions.

#![forbid(unsafe_code)]

pub mod proto;
pub mod rdma;
pub mod wire;
