//! An RDMA memory-region pool in which *when does a remote key die* is a plug-in.
//!
//! A [`Pool`] lends buffers to peers: [`Pool::lease`] maps a buffer and yields a [`RemoteKey`];
//! when the I/O is over the [`Lease`] is released. From then on the key is *stale*: nobody here
//! uses it, and the HCA may still honour it, until a flush has killed it. When that happens is up
//! to an [`InvalidationPolicy`]; how it happens is up to an [`MrBackend`]. Until it has happened the
//! pool owns the buffer.
//!
//! # Three promises
//!
//! "Invalidated" means three things, and each call says which of them it gives:
//!
//! 1. **released**: this host no longer uses the key. [`Lease::release`], or dropping the lease.
//! 2. **invalidated**: the HCA refuses the key. [`Lease::invalidate`], a buffer that has come back,
//!    [`Pool::flush`] for all that was released before it.
//! 3. **not re-issued**: the same 32 bits do not come again soon. A region's tag never restarts, so
//!    a key value comes back after 256 maps of its region, and never while an earlier use of it is
//!    stale. A peer that keeps a *dead* key for longer than that may find it honoured again:
//!    [`PoolStats::tag_wraps`] counts how often that became possible.
//!
//! # Memory safety
//!
//! While a key may be honoured, no safe code gets at the buffer: the pool has it. Whatever fails on
//! the way, memory that a key may reach is leaked rather than freed, and counted. What is weaker
//! is `unsafe`: [`RawMemory::new`], for those who manage memory themselves.
//!
//! # Time and threads
//!
//! The pool's decisions are driven: [`Pool::step`] does what is due and says when to call it again.
//! A background thread does so unless the user does ([`Driver`]). All of it takes the time from a
//! [`Clock`], so a simulation runs the same code in virtual time.
//!
//! # It is not
//!
//! a registration cache: it does not look up buffers by address or keep keys alive in the hope
//! that the same buffer comes again.

#![deny(unsafe_code)]

mod access;
#[expect(unsafe_code, reason = "the trait is a promise about memory")]
mod backend;
#[expect(
    unsafe_code,
    reason = "the trait is a promise about memory, and its implementations give it"
)]
mod buffer;
mod clock;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
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
    Addressing, BackendError, BatchError, Capabilities, ChainedMap, DeallocError, ErrorKind, Fence,
    KeyScope, MrBackend, Remap,
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
