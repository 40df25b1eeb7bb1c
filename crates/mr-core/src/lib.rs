//! An RDMA memory-region pool in which *when does a remote key die* is a plug-in.

mod access;
mod backend;
mod buffer;
mod clock;
mod config;
mod error;
mod exposure;
mod key;
mod policy;
mod pool;
mod state;
mod stats;
mod sync;

pub use access::Access;
pub use backend::{
    BackendError, BatchError, Capabilities, DeallocError, ErrorKind, Fence, KeyScope, MrBackend,
    Remap,
};
pub use buffer::{DmaBuffer, MemoryRange, RawMemory};
pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use config::{DrawOrder, Driver, PoolConfig};
pub use error::{
    BuildError, FlushError, InvalidateError, LeaseError, LeaseRefusal, Poisoned, PoisonedBy,
};
pub use exposure::Durations;
pub use key::{KeyTag, Keys, LocalKey, RemoteKey};
pub use policy::{
    AtRelease, FlushDecision, InvalidationPolicy, Marks, PolicyError, PoolLimits, ReleasedRegion,
    Scope, StaleView,
};
pub use pool::{
    BorrowedLease, Due, Flush, Lease, OwnedLease, Pending, Pool, PoolBuilder, ShutdownReport,
};
pub use state::RegionState;
pub use stats::{Exposure, Load, PoolStats, RegionCounts};
