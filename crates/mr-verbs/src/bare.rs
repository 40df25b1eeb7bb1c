//! Mappings without a pool.

use crate::Error;
use mr_core::{
    Access, BatchError, ChainedMap, DmaBuffer, KeyTag, Keys, MapJob, MemoryRange, MrBackend,
};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

/// Regions with a buffer each, mapped and invalidated by the calls of a backend and nothing else:
/// what is left of a pool's cost when the pool is taken away. For measurements.
///
/// Each owns its buffer until its key is dead, and gives nobody access to it, so this is safe;
/// what could not be invalidated is leaked.
pub struct Bare<B: MrBackend<Error = Error>, M: DmaBuffer> {
    places: Vec<Place<B::Region, M>>,
    backend: B,
    max_batch: usize,
}

struct Place<R, M> {
    region: R,
    buffer: M,
    tag: u8,
    /// Whether a key may be honoured.
    alive: bool,
}

impl<B: MrBackend<Error = Error>, M: DmaBuffer> Bare<B, M> {
    /// Makes a region for each buffer.
    ///
    /// # Errors
    ///
    /// The backend has no more regions.
    pub fn new(backend: B, buffers: impl IntoIterator<Item = M>) -> Result<Self, Error> {
        let mut bare = Self {
            places: Vec::new(),
            max_batch: backend.capabilities().max_batch.max(1),
            backend,
        };
        for buffer in buffers {
            let region = bare.backend.alloc()?;
            bare.places.push(Place {
                region,
                buffer,
                tag: 0,
                alive: false,
            });
        }
        Ok(bare)
    }

    /// Maps the region at `place`, with the next tag.
    ///
    /// # Errors
    ///
    /// There is no such place, it is mapped, or the backend's.
    pub fn map(&mut self, place: usize, access: Access) -> Result<Keys, Error> {
        self.map_by(place, |backend, region, memory, tag| {
            backend.map(region, memory, access, tag)
        })
    }

    /// The same, with `request` behind it and without waiting: see [`ChainedMap::map_chained`].
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map).
    pub fn map_chained(
        &mut self,
        place: usize,
        access: Access,
        mut request: impl FnMut(Keys) -> B::Request,
    ) -> Result<Keys, Error>
    where
        B: ChainedMap,
    {
        self.map_by(place, |backend, region, memory, tag| {
            backend.map_chained(region, memory, access, tag, &mut request)
        })
    }

    /// Maps the regions at `places` in one batch: see [`MrBackend::map_batch`].
    ///
    /// # Errors
    ///
    /// The first of the batch, or there is no such place, or one of them is mapped; [`invalidate`](Self::invalidate) ends what is
    /// mapped then.
    pub fn map_batch(&mut self, places: Range<usize>, access: Access) -> Result<(), Error> {
        self.map_batch_by(places, access, |backend, jobs| backend.map_batch(jobs))
    }

    /// The same, with `request` behind each and without waiting: see
    /// [`ChainedMap::map_batch_chained`].
    ///
    /// # Errors
    ///
    /// As [`map_batch`](Self::map_batch).
    pub fn map_batch_chained(
        &mut self,
        places: Range<usize>,
        access: Access,
        mut request: impl FnMut(Keys) -> B::Request,
    ) -> Result<(), Error>
    where
        B: ChainedMap,
    {
        self.map_batch_by(places, access, |backend, jobs| {
            backend.map_batch_chained(jobs, &mut |_, keys| request(keys));
        })
    }

    /// Invalidates the regions at `places`, in batches as large as the backend takes.
    ///
    /// # Errors
    ///
    /// Of the first batch that failed in part; those behind were not tried.
    pub fn invalidate(&mut self, places: Range<usize>) -> Result<(), BatchError<Error>> {
        let end = places.end.min(self.places.len());
        let start = places.start.min(end);
        for batch in self.places[start..end].chunks_mut(self.max_batch) {
            let mut regions: Vec<_> = batch.iter_mut().map(|place| &mut place.region).collect();
            self.backend.invalidate(&mut regions)?;
            batch.iter_mut().for_each(|place| place.alive = false);
        }
        Ok(())
    }

    fn map_batch_by(
        &mut self,
        places: Range<usize>,
        access: Access,
        map: impl FnOnce(&B, &mut [MapJob<'_, B::Region, Error>]),
    ) -> Result<(), Error> {
        let places = self.places.get_mut(places).ok_or(Error::ForeignRegion)?;
        let mut jobs = Vec::with_capacity(places.len());
        for place in places {
            let (region, memory, tag) = place.begin()?;
            jobs.push(MapJob::new(region, memory, access, tag));
        }
        map(&self.backend, &mut jobs);
        let mut answers = jobs.into_iter().filter_map(MapJob::into_answer);
        answers.try_for_each(|answer| answer.map(drop))
    }

    fn map_by(
        &mut self,
        place: usize,
        map: impl FnOnce(&B, &mut B::Region, MemoryRange<'_>, KeyTag) -> Result<Keys, Error>,
    ) -> Result<Keys, Error> {
        let Some(place) = self.places.get_mut(place) else {
            return Err(Error::ForeignRegion);
        };
        let (region, memory, tag) = place.begin()?;
        map(&self.backend, region, memory, tag)
    }
}

impl<R, M: DmaBuffer> Place<R, M> {
    /// What a map needs; from here on a key counts as alive.
    fn begin(&mut self) -> Result<(&mut R, MemoryRange<'_>, KeyTag), Error> {
        if self.alive {
            return Err(Error::Busy {
                what: "the region",
                bound: "it is mapped".to_owned(),
            });
        }
        let len = self.buffer.len();
        let start =
            NonNull::new(self.buffer.as_mut_ptr()).ok_or(Error::ArenaFull { len, size: 0 })?;
        self.tag = self.tag.wrapping_add(1);
        // Whatever comes of it: a failed map, too, may leave a key.
        self.alive = true;
        // SAFETY: the buffer stays in its place, untouched, until `invalidate` has said that the
        // key is dead; if that is never said, dropping the whole leaks it.
        let memory = unsafe { MemoryRange::new(start, len) };
        Ok((&mut self.region, memory, KeyTag::new(self.tag)))
    }
}

impl<B: MrBackend<Error = Error>, M: DmaBuffer> Drop for Bare<B, M> {
    fn drop(&mut self) {
        let count = self.places.len();
        let _ = self.invalidate(0..count);
        for place in self.places.drain(..) {
            if place.alive {
                tracing::warn!("a mapping could not be invalidated; its buffer is leaked");
                std::mem::forget(place.buffer);
            }
            if let Err(failure) = self.backend.dealloc(place.region) {
                tracing::warn!(error = %failure.error, "a region could not be freed");
            }
        }
    }
}

impl<B: MrBackend<Error = Error>, M: DmaBuffer> fmt::Debug for Bare<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bare")
            .field("regions", &self.places.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rig;
    use crate::{Arena, Window1Backend};

    /// A place that is mapped is not mapped again, one that there is not is refused, and a drop
    /// invalidates what is there.
    #[test]
    fn what_is_bare_is_cleaned_up() {
        let Some(rig) = Rig::or_skip("what_is_bare_is_cleaned_up") else {
            return;
        };
        let arena = Arena::new(&rig.domain, 3 * 4096).unwrap();
        let backend = Window1Backend::new(&rig.domain, [arena.clone()]).unwrap();
        let buffers = (0..3).map(|_| arena.take(4096).unwrap());
        let mut bare = Bare::new(backend, buffers).unwrap();
        bare.map(0, Access::REMOTE_WRITE).unwrap();
        assert!(bare.map(0, Access::REMOTE_WRITE).is_err());
        assert!(bare.map(3, Access::REMOTE_WRITE).is_err());
        bare.invalidate(0..99).unwrap();
        bare.map(0, Access::REMOTE_WRITE).unwrap();
        assert_eq!(arena.bound(), 1);
        drop(bare);
        assert_eq!(arena.bound(), 0);
        arena.take(3 * 4096).unwrap();
    }
}
