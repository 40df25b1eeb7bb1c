//! What can go wrong between the pool and its user.

use crate::{BackendError, ErrorKind, Pending, PolicyError};
use std::fmt;
use std::time::Duration;

/// A pool that could not be built. No region of it is left behind, unless the error says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError<E: BackendError> {
    /// The policy's parameters cannot hold in this pool.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A setting is outside of its range.
    #[error("{setting} must be {allowed}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is allowed.
        allowed: String,
    },
    /// The backend could not make all regions.
    #[error("region {made} of {wanted} could not be made: {source}")]
    Alloc {
        /// Regions that were made, and freed again.
        made: u32,
        /// Regions wanted.
        wanted: u32,
        /// Why the next one was not made.
        source: E,
        /// Regions that could not be freed again, and why the first could not.
        leaked: Option<(u32, E)>,
    },
    /// The flusher thread could not be started.
    #[error("the flusher thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
}

/// A lease that was not given.
#[derive(Debug)]
pub struct LeaseError<E: BackendError, M> {
    /// Why not.
    pub reason: LeaseRefusal<E>,
    /// The buffer. `None` only if the backend's failure left it unknown whether a key of it is
    /// honoured: then it is in quarantine, and comes back through
    /// [`Pool::reclaim`](crate::Pool::reclaim) once the key is known to be dead.
    pub buffer: Option<M>,
}

/// Why a lease was not given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseRefusal<E: BackendError> {
    /// The buffer has no bytes.
    #[error("a buffer of no bytes cannot be leased")]
    ZeroLength,
    /// The buffer has more bytes, or touches more pages, than a region can map.
    #[error("a buffer of {len} bytes does not fit a region, which maps at most {max} bytes")]
    TooLong {
        /// Bytes of the buffer.
        len: u64,
        /// Bytes that one region can map.
        max: u64,
    },
    /// No region could be had within the time allowed.
    #[error(
        "no region free: of {capacity}, {leased} are leased, {stale} stale, {quarantined} in quarantine"
    )]
    Exhausted {
        /// Regions of the pool.
        capacity: u32,
        /// Regions under a lease.
        leased: u32,
        /// Regions that wait for a flush or are in one.
        stale: u32,
        /// Regions in quarantine.
        quarantined: u32,
    },
    /// Another lease of the batch was refused, and this one not tried or undone.
    #[error("not leased, since another lease of the batch was refused: see there")]
    NotTried,
    /// The pool is shut down.
    #[error("the pool is shut down")]
    Closed,
    /// The pool is poisoned.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// The backend refused to map the buffer.
    #[error("the buffer could not be mapped: {0}")]
    Backend(#[source] E),
}

impl<E: BackendError, M> fmt::Display for LeaseError<E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<E: BackendError, M: fmt::Debug> std::error::Error for LeaseError<E, M> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.reason)
    }
}

/// A released buffer that has not come back.
#[derive(Debug)]
pub struct PendingError<M> {
    /// Why not.
    pub reason: StillPending,
    /// What it still may come back through.
    pub pending: Pending<M>,
}

/// Why a buffer has not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StillPending {
    /// The key may still be honoured.
    #[error("no flush has killed the key within {waited:?}: wait longer, or flush the pool")]
    TimedOut {
        /// How long the call waited.
        waited: Duration,
    },
    /// The pool is poisoned: no flush will kill the key any more. One under way still may.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

impl<M> fmt::Display for PendingError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<M: fmt::Debug> std::error::Error for PendingError<M> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.reason)
    }
}

/// The policy, the backend or the clock panicked, or the pool found a defect of its own, so what it knows about
/// keys may be wrong: it gives no leases and returns no memory that it cannot vouch for. Shut it down and build
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pool is poisoned: {0} panicked")]
pub struct Poisoned(pub PoisonedBy);

/// Who panicked, or went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoisonedBy {
    /// The policy.
    Policy,
    /// The backend.
    Backend,
    /// The pool itself: a region was to go from one state to another that does not follow it.
    Pool,
    /// The clock, in a flush or in the flusher.
    Clock,
}

impl fmt::Display for PoisonedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "the policy",
            Self::Backend => "the backend",
            Self::Pool => "the pool",
            Self::Clock => "the clock",
        })
    }
}

/// A flush that does not cover all that was released before the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlushError {
    /// Some keys may still be honoured; their regions are in quarantine and will be retried.
    #[error("{regions} regions are in quarantine since their invalidation failed ({kind})")]
    Quarantined {
        /// Regions in quarantine.
        regions: u32,
        /// The kind of the latest failure.
        kind: ErrorKind,
    },
    /// The fence failed: keys that a remap has replaced may still be honoured.
    #[error("the fence failed ({kind}); flush again")]
    Fence {
        /// The kind of the failure.
        kind: ErrorKind,
    },
    /// Another flush did not end in time; nothing is known about the keys.
    #[error("a flush in progress did not end within {waited:?}")]
    TimedOut {
        /// How long the call waited.
        waited: Duration,
    },
    /// The call came from within the flush that it would have to wait for: from the backend, or
    /// from the drop of a buffer.
    #[error("called from within a flush, which cannot wait for itself: flush later")]
    WithinFlush,
    /// The pool is poisoned.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// A lease whose key could not be shown to be dead. The memory stays with the pool; it comes back
/// through [`Pool::reclaim`](crate::Pool::reclaim) once the key is dead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidateError<E: BackendError> {
    /// The backend failed; the region is in quarantine and will be retried.
    #[error("the key could not be invalidated: {0}")]
    Backend(#[source] E),
    /// The flush that was to kill the key failed.
    #[error(transparent)]
    Flush(#[from] FlushError),
}
