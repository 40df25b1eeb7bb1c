//! A backend that keeps its own books of what the backend inside has said about keys.

use mr_core::{
    Access, BackendError, BatchError, Capabilities, ChainedMap, DeallocError, Fence, KeyTag, Keys,
    MapJob, MemoryRange, MrBackend, Remap, RemoteKey,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Watches the backend inside. Which keys may be honoured follows from its answers alone.
#[derive(Debug)]
pub(crate) struct Spy<B> {
    inner: B,
    book: Book,
}

/// A region, and its place in the book.
#[derive(Debug)]
pub(crate) struct SpyRegion<R> {
    inner: R,
    pub(crate) place: usize,
}

/// For each region the mappings whose keys may be honoured, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    regions: Vec<Vec<Entry>>,
    serial: u64,
    fences: u64,
}

/// A mapping whose key may be honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) serial: u64,
    /// `None`: the backend failed before it said which.
    pub(crate) key: Option<RemoteKey>,
    pub(crate) bytes: u64,
}

impl<B: MrBackend> Spy<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self {
            inner,
            book: Book::default(),
        }
    }

    pub(crate) fn book(&self) -> Book {
        self.book.clone()
    }

    fn note_map(&self, place: usize, bytes: u64, answer: &Result<Keys, B::Error>) {
        let mut pages = self.book.pages();
        match answer {
            Ok(keys) => {
                if self.capabilities().remap == Remap::KillsPrevious {
                    pages.regions[place].clear();
                }
                pages.record(place, Some(keys.remote), bytes);
            }
            Err(error) if error.kind().leaves_region_known() => {}
            Err(_) => pages.record(place, None, bytes),
        }
    }

    /// Has the backend inside do the jobs, and hands its answers on.
    fn map_inside(
        &self,
        batch: &mut [MapJob<'_, SpyRegion<B::Region>, B::Error>],
        map: impl FnOnce(&mut [MapJob<'_, B::Region, B::Error>]),
    ) {
        let mut places = Vec::new();
        let mut jobs = Vec::new();
        for job in batch.iter_mut() {
            let (region, memory, access, tag) = job.arguments();
            places.push((region.place, memory.len()));
            jobs.push(MapJob::new(&mut region.inner, memory, access, tag));
        }
        map(&mut jobs);
        let answers: Vec<_> = jobs.into_iter().map(MapJob::into_answer).collect();
        for ((job, (place, bytes)), answer) in batch.iter_mut().zip(places).zip(answers) {
            if let Some(answer) = answer {
                self.note_map(place, bytes, &answer);
                job.answer(answer);
            }
        }
    }
}

// SAFETY: the answers are those of the backend inside.
unsafe impl<B: ChainedMap> ChainedMap for Spy<B> {
    type Request = B::Request;

    fn map_chained(
        &self,
        region: &mut Self::Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: &mut dyn FnMut(Keys) -> B::Request,
    ) -> Result<Keys, B::Error> {
        let bytes = memory.len();
        let answer = self
            .inner
            .map_chained(&mut region.inner, memory, access, tag, request);
        self.note_map(region.place, bytes, &answer);
        answer
    }

    fn map_batch_chained(
        &self,
        batch: &mut [MapJob<'_, Self::Region, B::Error>],
        request: &mut dyn FnMut(usize, Keys) -> B::Request,
    ) {
        self.map_inside(batch, |jobs| self.inner.map_batch_chained(jobs, request));
    }
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All mappings of the region at `place`.
    pub(crate) fn region(&self, place: usize) -> Vec<Entry> {
        self.pages().regions[place].clone()
    }

    /// The latest mapping of that region.
    pub(crate) fn latest(&self, place: usize) -> Entry {
        *self.pages().regions[place].last().unwrap()
    }

    /// Whether the key of the mapping may be honoured.
    pub(crate) fn is_alive(&self, place: usize, serial: u64) -> bool {
        let pages = self.pages();
        let mut region = pages.regions[place].iter();
        region.any(|entry| entry.serial == serial)
    }

    /// Every mapping of every region.
    pub(crate) fn all(&self) -> Vec<(usize, Entry)> {
        let pages = self.pages();
        let regions = pages.regions.iter().enumerate();
        regions
            .flat_map(|(place, region)| region.iter().map(move |entry| (place, *entry)))
            .collect()
    }

    /// Calls of `invalidate`.
    pub(crate) fn fences(&self) -> u64 {
        self.pages().fences
    }
}

impl Pages {
    fn record(&mut self, place: usize, key: Option<RemoteKey>, bytes: u64) {
        self.serial += 1;
        let serial = self.serial;
        self.regions[place].push(Entry { serial, key, bytes });
    }
}

// SAFETY: the answers are those of the backend inside.
unsafe impl<B: MrBackend> MrBackend for Spy<B> {
    type Region = SpyRegion<B::Region>;
    type Error = B::Error;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn alloc(&self) -> Result<Self::Region, B::Error> {
        let inner = self.inner.alloc()?;
        let mut pages = self.book.pages();
        pages.regions.push(Vec::new());
        let place = pages.regions.len() - 1;
        Ok(SpyRegion { inner, place })
    }

    fn map(
        &self,
        region: &mut Self::Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, B::Error> {
        let bytes = memory.len();
        let answer = self.inner.map(&mut region.inner, memory, access, tag);
        self.note_map(region.place, bytes, &answer);
        answer
    }

    fn map_batch(&self, batch: &mut [MapJob<'_, Self::Region, B::Error>]) {
        self.map_inside(batch, |jobs| self.inner.map_batch(jobs));
    }

    fn soft_invalidate(&self, region: &mut Self::Region) {
        self.inner.soft_invalidate(&mut region.inner);
    }

    fn invalidate(&self, batch: &mut [&mut Self::Region]) -> Result<(), BatchError<B::Error>> {
        let places: Vec<_> = batch.iter().map(|region| region.place).collect();
        let mut regions: Vec<_> = batch.iter_mut().map(|region| &mut region.inner).collect();
        let answer = self.inner.invalidate(&mut regions);
        let mut pages = self.book.pages();
        pages.fences += 1;
        for (nth, place) in places.iter().enumerate() {
            if answer.as_ref().is_ok() || answer.as_ref().is_err_and(|error| error.is_dead(nth)) {
                pages.regions[*place].clear();
            }
        }
        if answer.is_ok() && self.capabilities().fence == Fence::Global {
            for region in &mut pages.regions {
                let replaced = region.len().saturating_sub(1);
                region.drain(..replaced);
            }
        }
        answer
    }

    fn invalidated_by_peer(&self, region: &mut Self::Region) -> bool {
        let dead = self.inner.invalidated_by_peer(&mut region.inner);
        if dead {
            self.book.pages().regions[region.place].pop();
        }
        dead
    }

    fn dealloc(&self, region: Self::Region) -> Result<(), DeallocError<Self::Region, B::Error>> {
        let place = region.place;
        let freed = self.inner.dealloc(region.inner);
        freed.map_err(|failed| DeallocError {
            region: SpyRegion {
                inner: failed.region,
                place,
            },
            error: failed.error,
        })
    }
}
