//! RDMA by cookie: memory that peers may touch, and operations on theirs.

mod buffers;
mod cookie;
mod regions;
mod table;

pub use buffers::{Buffers, MAX_BUFFERS};
pub use cookie::{Cookie, MrFlags};
pub use regions::{FreeOutcome, Leased, MrError, PoolRegions, Regions, StillAlive};
pub use table::Region;

pub(crate) use table::RegionTable;
