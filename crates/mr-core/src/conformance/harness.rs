//! What it takes to try a backend out.

use crate::{DmaBuffer, MrBackend, RemoteKey};
use std::fmt;
use std::sync::Arc;

/// A backend with a peer that is connected to it.
///
/// Each check makes its own.
pub trait Harness: Send + Sync + Sized + 'static {
    /// The backend under test.
    type Backend: MrBackend<Region: fmt::Debug>;
    /// Memory that the backend can map, page-aligned if it is of a page or more, and zeroed.
    type Memory: DmaBuffer + AsRef<[u8]> + AsMut<[u8]> + fmt::Debug;

    /// A variable of the environment with which the checks must not be skipped.
    const REQUIRED_BY: Option<&'static str> = None;

    /// The backend.
    fn backend(&self) -> &Arc<Self::Backend>;

    /// Another backend of the same kind, whose regions are not this one's.
    fn another_backend(&self) -> Arc<Self::Backend>;

    /// `len` bytes that the backend can map.
    fn memory(&self, len: usize) -> Self::Memory;

    /// Writes `data` to `offset` of the mapping at `place`, as a peer does. Returns when the
    /// bytes are there, or have been refused.
    ///
    /// # Errors
    ///
    /// [`PeerError::Refused`] if the HCA did not honour the key; anything else if the peer failed.
    fn write(&self, place: Place, offset: u64, data: &[u8]) -> Result<(), PeerError>;

    /// Reads from `offset` of the mapping at `place`.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn read(&self, place: Place, offset: u64, into: &mut [u8]) -> Result<(), PeerError>;

    /// Has the HCA invalidate a key, as a peer does (SEND_WITH_INV). Returns when that is done, or
    /// refused.
    ///
    /// # Errors
    ///
    /// Whatever the peer hears.
    fn invalidate(&self, key: RemoteKey) -> Result<(), PeerError>;

    /// Brings the connection back after something was refused.
    fn recover(&self);

    /// A defect of the HCA or its driver that this check would run into, and nobody but its maker
    /// can mend. The check is then left out, and says so.
    fn known_defect(&self, check: &str) -> Option<&'static str> {
        let _ = check;
        None
    }
}

/// A mapping, as a peer is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The key.
    pub key: RemoteKey,
    /// The address by which the peer names the first byte.
    pub addr: u64,
}

/// Why a peer did not get what it wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// The HCA did not honour the key: a remote access error.
    Refused,
    /// Anything else.
    Other(String),
}
