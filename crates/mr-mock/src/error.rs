//! Errors of the mock HCA, on the side of the owner of the memory.

use mr_core::{BackendError, ErrorKind};

/// What [`MockHca`](crate::MockHca) refuses to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MockError {
    /// Every table entry is allocated.
    #[error("all {limit} regions are allocated: free some, or raise max_regions in the preset")]
    TableFull {
        /// Regions of the preset.
        limit: u64,
    },
    /// The memory does not fit into one region.
    #[error("{bytes} bytes touch {pages} pages, and a region maps {limit}: map less at once")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Pages that they touch.
        pages: u64,
        /// Pages that a region can map.
        limit: u64,
    },
    /// The region still has a key, or the caches may, and this call needs a clean one.
    #[error("the region has not been invalidated since it was mapped: invalidate it first")]
    NotInvalidated,
    /// More regions than one invalidation takes.
    #[error("a batch of {regions} regions, and the HCA takes {limit}: split it")]
    BatchTooLong {
        /// Regions asked for.
        regions: usize,
        /// The longest batch.
        limit: u64,
    },
    /// The region belongs to another device or protection domain.
    #[error("the region belongs to another device or protection domain: use the handle it is from")]
    ForeignRegion,
    /// The connection belongs to another device or protection domain.
    #[error(
        "the connection belongs to another device or protection domain: use one of this handle"
    )]
    ForeignConnection,
    /// Keys belong to one connection, or a request is to be sent on one, and this handle names none.
    #[error("this needs a connection: map through MockHca::for_connection")]
    NoConnection,
    /// A request cannot be sent.
    #[error("the connection is in error since an access was refused: recover it")]
    ConnectionInError,
    /// The peer has no room for a request.
    #[error("the peer has no room for a request: have it receive those that it has")]
    PeerNotReady,
    /// The device was removed.
    #[error("the device was removed: open another one")]
    Removed,
}

impl BackendError for MockError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TableFull { .. } => ErrorKind::NoMemory,
            Self::NotInvalidated | Self::ConnectionInError | Self::PeerNotReady => ErrorKind::Busy,
            Self::TooLarge { .. }
            | Self::NoConnection
            | Self::ForeignConnection
            | Self::ForeignRegion => ErrorKind::Denied,
            Self::BatchTooLong { .. } => ErrorKind::Unsupported,
            Self::Removed => ErrorKind::NoDevice,
        }
    }
}
