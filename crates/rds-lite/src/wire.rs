//! What goes over the wire, byte by byte (RDS 3.1).
//!
//! Every decoder is total: any bytes give a value or an error. None allocates, but that of a congestion map, which
//! puts its 8 KiB on the heap when the length is right.

mod checksum;
mod congestion;
mod connect;
mod ext;
mod header;

pub use checksum::checksum;
pub use congestion::CongestionMap;
pub use connect::{CONNECT_LEN, CONNECT_MAX, Connect, Generations, Rejection, Version};
pub use ext::{Ext, ExtArea, ExtIter, UnknownExt};
pub use header::{Flags, Header, HeaderError};

/// Bytes of a header.
pub const HEADER_LEN: usize = 48;
/// The longest message, and the longest RDMA operation: 1 MiB.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Bytes of payload per fragment where a fabric carries messages in fragments.
pub const FRAGMENT_LEN: usize = 4096;
/// Bytes of a congestion map: one bit per port.
pub const MAP_LEN: usize = 8192;
/// Port of handshake probes; not for sockets.
pub const PROBE_PORT: u16 = 1;
/// The port of RDS at the connection manager of InfiniBand, over IPv4.
pub const CM_PORT: u16 = 18634;
/// The TCP port of RDS.
pub const TCP_PORT: u16 = 16385;
