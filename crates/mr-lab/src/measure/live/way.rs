//! How a key is had: with the map waited for, or with the request chained behind it.

use super::ACCESS;
use super::rig::announce;
use crate::LabError;
use mr_core::{BorrowedLease, Keys, LeaseError, MrBackend, Pool};
use mr_verbs::{ArenaBuffer, Bare, Error, Window2Backend};

type Leased<'p, B> = Result<BorrowedLease<'p, B, ArenaBuffer>, LeaseError<Error, ArenaBuffer>>;

/// Maps all regions at once.
type MapAll<B> = fn(&mut Bare<B, ArenaBuffer>) -> Result<(), Error>;

/// The calls that make the difference.
pub(super) struct Way<B: MrBackend<Error = Error>> {
    lease: for<'p> fn(&'p Pool<B, ArenaBuffer>, ArenaBuffer) -> Leased<'p, B>,
    map: fn(&mut Bare<B, ArenaBuffer>, usize) -> Result<Keys, Error>,
    /// Maps all at once, if that can be.
    map_all: Option<MapAll<B>>,
    /// Whether a request goes to the peer with each.
    pub(super) announces: bool,
}

impl<B: MrBackend<Error = Error>> Clone for Way<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: MrBackend<Error = Error>> Copy for Way<B> {}

impl<B: MrBackend<Error = Error>> Way<B> {
    pub(super) fn waited() -> Self {
        Self {
            lease: |pool, buffer| pool.lease(buffer, ACCESS),
            map: |bare, place| bare.map(place, ACCESS),
            map_all: None,
            announces: false,
        }
    }

    pub(super) fn lease<'p>(
        &self,
        pool: &'p Pool<B, ArenaBuffer>,
        buffer: ArenaBuffer,
    ) -> Result<BorrowedLease<'p, B, ArenaBuffer>, LabError> {
        (self.lease)(pool, buffer).map_err(|error| LabError::Device(error.reason.into()))
    }

    /// Does nothing where maps do not chain.
    pub(super) fn map_all(&self, bare: &mut Bare<B, ArenaBuffer>) -> Result<(), LabError> {
        self.map_all
            .map_or(Ok(()), |map_all| map_all(bare))
            .map_err(super::device_error)
    }

    pub(super) fn map(
        &self,
        bare: &mut Bare<B, ArenaBuffer>,
        place: usize,
    ) -> Result<(), LabError> {
        (self.map)(bare, place)
            .map(drop)
            .map_err(super::device_error)
    }
}

impl Way<Window2Backend> {
    pub(super) fn chained() -> Self {
        Self {
            lease: |pool, buffer| pool.lease_chained(buffer, ACCESS, announce),
            map: |bare, place| bare.map_chained(place, ACCESS, announce),
            map_all: Some(|bare| bare.map_all(ACCESS)),
            announces: true,
        }
    }
}
