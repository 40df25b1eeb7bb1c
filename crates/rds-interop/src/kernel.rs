//! Sockets of the kernel's RDS (`AF_RDS`).
//!
//! Only what the matrix needs: datagrams, RDMA by cookie, counters. They work where a transport of
//! the kernel is loaded (`modprobe rds_tcp`, or `rds_rdma`); elsewhere the first call fails.

mod control;
mod info;
mod memory;
mod socket;
mod sys;

pub use control::{MapFlags, Notice, OpFlags, Status};
pub use info::counters;
pub use memory::Memory;
pub use socket::{Attachment, Datagram, KernelSocket, Operation, Transport};
