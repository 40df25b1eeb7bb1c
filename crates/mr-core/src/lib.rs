//! An RDMA memory-region pool in which *when does a remote key die* is a plug-in.

mod access;
mod backend;
mod buffer;
mod clock;
mod key;
mod policy;

pub use access::Access;
pub use backend::{
    BackendError, BatchError, Capabilities, DeallocError, ErrorKind, Fence, KeyScope, MrBackend,
    Remap,
};
pub use buffer::{DmaBuffer, MemoryRange, RawMemory};
pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use key::{KeyTag, Keys, LocalKey, RemoteKey};
pub use policy::{
    AtRelease, FlushDecision, InvalidationPolicy, Marks, PolicyError, PoolLimits, ReleasedRegion,
    Scope, StaleView,
};
