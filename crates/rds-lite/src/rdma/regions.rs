//! The pool, as a socket sees it: any backend, one type of buffer.

use mr_core::{
    Access, DmaBuffer, InvalidateError, LeaseRefusal, MrBackend, OwnedLease, Pool, PoolStats,
    RemoteKey, Time,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A pool that a host takes its regions from.
pub trait Regions: Send + Sync + 'static {
    /// Leases a region for `buffer`, waiting for one at most `patience`.
    ///
    /// # Errors
    ///
    /// Says why not, and gives the buffer back.
    fn lease(
        &self,
        buffer: Vec<u8>,
        access: Access,
        patience: Duration,
    ) -> Result<Box<dyn Leased>, MrError>;

    /// Kills all keys that have been released. Says whether all are dead.
    fn flush(&self) -> bool;

    /// Moves buffers whose keys are dead to `to`.
    fn reclaim(&self, to: &mut Vec<Vec<u8>>);

    /// Does what is due in a pool that is driven by hand; says when to come again.
    fn step(&self) -> Option<Time>;

    /// What the pool has done and holds.
    fn stats(&self) -> PoolStats;
}

/// A lease whose backend has been forgotten.
pub trait Leased: fmt::Debug + Send {
    /// The key.
    fn key(&self) -> RemoteKey;

    /// By which address peers name its first byte.
    fn remote_addr(&self) -> u64;

    /// Where the buffer is: what tells it from all others while the pool has it.
    fn addr(&self) -> u64;

    /// Ends the lease; the buffer comes back through [`Regions::reclaim`].
    fn release(self: Box<Self>);

    /// Kills the key and returns the buffer.
    ///
    /// # Errors
    ///
    /// The key may still be honoured; the buffer comes back through [`Regions::reclaim`].
    fn invalidate(self: Box<Self>) -> Result<Vec<u8>, StillAlive>;
}

/// A key that could not be shown to be dead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key may still be honoured: {0}")]
pub struct StillAlive(pub String);

/// What [`Socket::free_mr`](crate::Socket::free_mr) has achieved.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeOutcome {
    /// The HCA refuses the key: here is the buffer.
    Dead(Vec<u8>),
    /// The key may still be honoured. The buffer comes back when it is not:
    /// [`Socket::reclaim`](crate::Socket::reclaim).
    InProgress,
}

/// A region that was not given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MrError {
    /// The fabric moves no memory, or the host was built without a pool.
    #[error("the {fabric} fabric has no RDMA: send the bytes in messages, or use another fabric")]
    Unsupported {
        /// The fabric.
        fabric: &'static str,
        /// The buffer that was to be lent, if there was one.
        buffer: Option<Vec<u8>>,
    },
    /// The pool gave none.
    #[error("no region: {reason}")]
    Refused {
        /// Why.
        reason: String,
        /// Whether the same call may succeed later.
        temporary: bool,
        /// The buffer, unless the pool had to keep it.
        buffer: Option<Vec<u8>>,
    },
    /// The buffer is longer than one RDMA operation.
    #[error("a buffer of {} bytes, and one operation moves at most 1 MiB", buffer.len())]
    TooLong {
        /// The buffer.
        buffer: Vec<u8>,
    },
    /// The address by which peers name the memory does not fit into a cookie.
    #[error(
        "the pool's keys count from an address and not from a page: take regions from a backend \
         with zero-based keys"
    )]
    NotZeroBased {
        /// The buffer, unless its key could not be killed: then it comes back through
        /// [`Socket::reclaim`](crate::Socket::reclaim), with a cookie that has the offset 0.
        buffer: Option<Vec<u8>>,
    },
    /// The cookie is not of this socket, or its region has been released.
    #[error("this socket has no region with this cookie")]
    UnknownCookie,
    /// The host is shut down.
    #[error("the host is shut down")]
    Closed {
        /// The buffer, unless its key could not be killed: then it comes back through
        /// [`Socket::reclaim`](crate::Socket::reclaim).
        buffer: Option<Vec<u8>>,
    },
}

/// Tells somebody that a key was released.
type OnRelease = Arc<dyn Fn(RemoteKey) + Send + Sync>;

/// The regions of one pool.
pub struct PoolRegions<B: MrBackend> {
    pool: Arc<Pool<B>>,
    on_release: Option<OnRelease>,
}

impl<B: MrBackend> PoolRegions<B> {
    /// The regions of `pool`. Nobody else may reclaim buffers from it.
    pub const fn new(pool: Arc<Pool<B>>) -> Self {
        Self {
            pool,
            on_release: None,
        }
    }

    /// Calls `tell` with each key that is released, before it is: a mock HCA counts by it what a
    /// real one cannot know.
    #[must_use]
    pub fn on_release(mut self, tell: impl Fn(RemoteKey) + Send + Sync + 'static) -> Self {
        self.on_release = Some(Arc::new(tell));
        self
    }
}

impl<B: MrBackend> Regions for PoolRegions<B> {
    fn lease(
        &self,
        buffer: Vec<u8>,
        access: Access,
        patience: Duration,
    ) -> Result<Box<dyn Leased>, MrError> {
        match self.pool.lease_owned(buffer, access, patience) {
            Ok(lease) => Ok(Box::new(PoolLease {
                lease,
                on_release: self.on_release.clone(),
            })),
            Err(refused) => Err(MrError::Refused {
                reason: refused.reason.to_string(),
                temporary: matches!(refused.reason, LeaseRefusal::Exhausted { .. }),
                buffer: refused.buffer,
            }),
        }
    }

    fn flush(&self) -> bool {
        self.pool.flush().is_ok()
    }

    fn reclaim(&self, to: &mut Vec<Vec<u8>>) {
        self.pool.reclaim(to, usize::MAX);
    }

    fn step(&self) -> Option<Time> {
        self.pool.step()
    }

    fn stats(&self) -> PoolStats {
        self.pool.stats()
    }
}

struct PoolLease<B: MrBackend, M: DmaBuffer> {
    lease: OwnedLease<B, M>,
    on_release: Option<OnRelease>,
}

impl<B: MrBackend, M: DmaBuffer> PoolLease<B, M> {
    fn tell(&self) {
        if let Some(tell) = &self.on_release {
            tell(self.lease.remote_key());
        }
    }
}

impl<B: MrBackend> Leased for PoolLease<B, Vec<u8>> {
    fn key(&self) -> RemoteKey {
        self.lease.remote_key()
    }

    fn remote_addr(&self) -> u64 {
        self.lease.remote_addr()
    }

    fn addr(&self) -> u64 {
        self.lease.addr()
    }

    fn release(self: Box<Self>) {
        self.tell();
        self.lease.release();
    }

    fn invalidate(self: Box<Self>) -> Result<Vec<u8>, StillAlive> {
        self.tell();
        let dead = self.lease.invalidate();
        dead.map_err(|failure: InvalidateError<B::Error>| StillAlive(failure.to_string()))
    }
}

impl<B: MrBackend, M: DmaBuffer> fmt::Debug for PoolLease<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}
