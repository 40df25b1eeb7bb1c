//! How keys are had: one by one or several at once, with the maps waited for or with requests
//! chained behind them.

use super::rig::announce;
use super::{ACCESS, device_error};
use crate::LabError;
use mr_core::{BorrowedLease, LeaseResult, MrBackend, Pool, Shortage};
use mr_verbs::{ArenaBuffer, Bare, Error, Window2Backend};
use std::ops::Range;
use std::time::Duration;

/// Longer than it takes to map all regions.
const PATIENCE: Duration = Duration::from_secs(30);

type Leased<'p, B> = LeaseResult<BorrowedLease<'p, B, ArenaBuffer>, B, ArenaBuffer>;
type LeaseOne<B> = for<'p> fn(&'p Pool<B, ArenaBuffer>, ArenaBuffer) -> Leased<'p, B>;
type LeaseMany<B> = for<'p> fn(&'p Pool<B, ArenaBuffer>, Vec<ArenaBuffer>) -> Vec<Leased<'p, B>>;
type MapOne<B> = fn(&mut Bare<B, ArenaBuffer>, usize) -> Result<(), Error>;
type MapMany<B> = fn(&mut Bare<B, ArenaBuffer>, Range<usize>) -> Result<(), Error>;

/// The calls that make the difference.
pub(super) struct Way<B: MrBackend<Error = Error>> {
    lease: LeaseOne<B>,
    lease_batch: LeaseMany<B>,
    map: MapOne<B>,
    map_batch: MapMany<B>,
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
            lease_batch: |pool, buffers| pool.lease_batch(wanted(buffers), SHORTAGE),
            map: |bare, place| bare.map(place, ACCESS).map(drop),
            map_batch: |bare, places| bare.map_batch(places, ACCESS),
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

    /// Leases a region for each buffer, and releases it.
    pub(super) fn lease_batch(
        &self,
        pool: &Pool<B, ArenaBuffer>,
        buffers: Vec<ArenaBuffer>,
    ) -> Result<(), LabError> {
        for leased in (self.lease_batch)(pool, buffers) {
            leased
                .map_err(|error| LabError::Device(error.reason.into()))?
                .release();
        }
        Ok(())
    }

    pub(super) fn map(
        &self,
        bare: &mut Bare<B, ArenaBuffer>,
        place: usize,
    ) -> Result<(), LabError> {
        (self.map)(bare, place).map_err(device_error)
    }

    pub(super) fn map_batch(
        &self,
        bare: &mut Bare<B, ArenaBuffer>,
        places: Range<usize>,
    ) -> Result<(), LabError> {
        (self.map_batch)(bare, places).map_err(device_error)
    }
}

impl Way<Window2Backend> {
    pub(super) fn chained() -> Self {
        Self {
            lease: |pool, buffer| pool.lease_chained(buffer, ACCESS, announce),
            lease_batch: |pool, buffers| {
                pool.lease_batch_chained(wanted(buffers), SHORTAGE, |_, keys| announce(keys))
            },
            map: |bare, place| bare.map_chained(place, ACCESS, announce).map(drop),
            map_batch: |bare, places| bare.map_batch_chained(places, ACCESS, announce),
            announces: true,
        }
    }
}

const SHORTAGE: Shortage = Shortage::Wait(PATIENCE);

fn wanted(buffers: Vec<ArenaBuffer>) -> impl Iterator<Item = (ArenaBuffer, mr_core::Access)> {
    buffers.into_iter().map(|buffer| (buffer, ACCESS))
}
