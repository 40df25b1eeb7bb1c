//! Maps with a request behind each: a chain of work requests.

use crate::connection::Place;
use crate::{MockError, MockHca, MockRegion};
use mr_core::{Access, ChainedMap, KeyTag, Keys, MapJob, MemoryRange};

/// How a map gets to the HCA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// With a doorbell of its own.
    Alone,
    /// In a chain, behind others.
    Behind,
}

impl MockHca {
    /// Maps and puts the request into the peer's inbox. Refuses before anything is done.
    fn map_and_send(
        &self,
        region: &mut MockRegion,
        memory: &MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        posted: Posted,
        request: impl FnOnce(Keys) -> Vec<u8>,
    ) -> Result<Keys, MockError> {
        let place = self.place_for_request()?;
        let keys = self.map_posted(region, memory, access, tag, posted)?;
        place.put(request(keys));
        Ok(keys)
    }

    fn place_for_request(&self) -> Result<Place<'_>, MockError> {
        let connection = self.connection().ok_or(MockError::NoConnection)?;
        if connection.is_in_error() {
            return Err(MockError::ConnectionInError);
        }
        connection.keep_place().ok_or(MockError::PeerNotReady)
    }
}

// SAFETY: the same code maps, and what it maps is invalidated as always.
unsafe impl ChainedMap for MockHca {
    /// What [`RemotePeer::receive`](crate::RemotePeer::receive) gets. What a message costs beside
    /// its map is not in the [`Costs`](crate::Costs).
    type Request = Vec<u8>;

    fn map_chained(
        &self,
        region: &mut MockRegion,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: &mut dyn FnMut(Keys) -> Vec<u8>,
    ) -> Result<Keys, MockError> {
        self.map_and_send(region, &memory, access, tag, Posted::Alone, request)
    }

    fn map_batch_chained(
        &self,
        batch: &mut [MapJob<'_, MockRegion, MockError>],
        request: &mut dyn FnMut(usize, Keys) -> Vec<u8>,
    ) {
        let mut posted = Posted::Alone;
        for (place, job) in batch.iter_mut().enumerate() {
            let request = |keys| request(place, keys);
            let mapped = job.run(|region, memory, access, tag| {
                self.map_and_send(region, &memory, access, tag, posted, request)
            });
            if !mapped {
                return;
            }
            posted = Posted::Behind;
        }
    }
}
