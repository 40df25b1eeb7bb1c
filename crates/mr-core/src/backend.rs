//! What the pool asks of an HCA.

use crate::{Access, KeyTag, Keys, MapJob, MemoryRange};
use std::fmt;

/// An HCA (or what stands for one) that maps memory for peers and invalidates keys in batches.
///
/// # Call order
///
/// For each region: `alloc`, then any number of `map` … `invalidate`, then `dealloc`. Between two
/// `map` calls the pool invalidates, unless [`Capabilities::remap`] says that a region may be
/// mapped again first. `soft_invalidate` and `invalidated_by_peer` come only between a `map` and
/// the `invalidate` after it. `dealloc` is called on regions that are clean or were never mapped.
///
/// # Threads
///
/// All methods may be called from any thread and at the same time, but never for one region twice
/// at the same time: `&mut Self::Region` says so. The pool holds no lock during any call, so a
/// backend may block, and may call back into the pool.
///
/// # Safety
///
/// The pool gives memory back to its owner when `invalidate` has said that a key is dead, when
/// `invalidated_by_peer` has, or (where [`Capabilities::remap`] says that a remap kills the previous
/// key) when `map` has. An implementation promises that from then on nothing reads or writes the
/// memory of that mapping on its behalf. One that wraps another backend keeps this by saying of a
/// region only what the other has said of it.
///
/// # Errors
///
/// | call | kind | the region afterwards |
/// | --- | --- | --- |
/// | `alloc` | any | does not exist |
/// | `map` | [known](ErrorKind::leaves_region_known) (`NoMemory`, `Busy`, `Unsupported`, `Denied`) | as before the call; the new key was never honoured |
/// | `map` | any other | unknown: its old key and a new one may both be honoured; the pool puts it into quarantine with its memory |
/// | `invalidate`, failed in the result | any | unknown, the same |
/// | `dealloc` | any | still allocated, and given back in the error |
pub unsafe trait MrBackend: Send + Sync + 'static {
    /// The backend's own record of one region: a handle, and what it must remember.
    type Region: Send + 'static;
    /// What can go wrong.
    type Error: BackendError;

    /// What this backend can do. Does not change while it lives.
    fn capabilities(&self) -> Capabilities;

    /// Makes a region that honours no key.
    ///
    /// # Errors
    ///
    /// See the table above.
    fn alloc(&self) -> Result<Self::Region, Self::Error>;

    /// Lets a peer touch `memory`, as far as `access` goes, through the keys returned.
    ///
    /// `tag` is the tag that the new keys shall carry. A backend whose HCA chooses the whole key
    /// ([`Capabilities::tag_bits`] is 0) ignores it.
    ///
    /// # Errors
    ///
    /// See the table above.
    fn map(
        &self,
        region: &mut Self::Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, Self::Error>;

    /// Does the jobs of `batch` in their order, each as [`map`](Self::map) would, and gives each its answer;
    /// the first that fails ends it. Waits for all that it has mapped.
    ///
    /// For backends that map several regions at a lower price than one by one: by work requests in
    /// one chain, with one doorbell and one completion. A backend that does so splits the batch to
    /// what its queue takes. The others need not have this method.
    ///
    /// Of jobs that fail together (a chain that breaks off) one has the error, and the others may
    /// be left without an answer if they were undone.
    fn map_batch(&self, batch: &mut [MapJob<'_, Self::Region, Self::Error>]) {
        for job in batch {
            if !job.run(|region, memory, access, tag| self.map(region, memory, access, tag)) {
                return;
            }
        }
    }

    /// Makes the table entry refuse the key at once, without a fence.
    ///
    /// One store, no waiting: only what the HCA has cached may still honour the key, so it stays
    /// stale. Called at release where [`Capabilities::soft_invalidate`] says that it does something.
    fn soft_invalidate(&self, region: &mut Self::Region) {
        let _ = region;
    }

    /// Kills every key of the regions in `batch`, with one fence for all of them.
    ///
    /// On `Ok` the HCA refuses all keys that the regions ever had. With [`Fence::Global`] it also
    /// refuses whatever earlier key a `map` before this call has replaced, on any region, and the
    /// batch may be empty: then the fence alone is wanted. `batch` is never longer than
    /// [`Capabilities::max_batch`], and with [`Fence::PerKey`] never empty.
    ///
    /// # Errors
    ///
    /// [`BatchError`] says for each region whether its keys are dead.
    fn invalidate(&self, batch: &mut [&mut Self::Region]) -> Result<(), BatchError<Self::Error>>;

    /// Whether the HCA already refuses the region's key because the peer invalidated it
    /// (SEND_WITH_INV), as far as the backend has seen.
    fn invalidated_by_peer(&self, region: &mut Self::Region) -> bool {
        let _ = region;
        false
    }

    /// Frees a region that honours no key.
    ///
    /// # Errors
    ///
    /// The region comes back in the error, still allocated.
    fn dealloc(&self, region: Self::Region) -> Result<(), DeallocError<Self::Region, Self::Error>>;
}

/// A backend that can map a region and tell the peer of its key in one go.
///
/// A map that has to be seen to complete costs a round trip to the HCA before the key can be sent.
/// Where the HCA does what it is asked in order, the request that carries the key can be posted
/// right behind the map instead: when the peer gets to know the key, it works.
///
/// # Safety
///
/// The pool treats what `map_chained` has mapped like what [`MrBackend::map`] has, so all that an
/// implementation of [`MrBackend`] promises of the one it promises of the other.
pub unsafe trait ChainedMap: MrBackend {
    /// What is sent behind the map, to the one peer that can use the key.
    type Request;

    /// Maps as [`MrBackend::map`] does, and sends `request` of the keys behind it. Waits for
    /// neither.
    ///
    /// `request` may be called again, if the first connection turns out to be lost; only the last
    /// result can have been sent.
    ///
    /// # Errors
    ///
    /// As [`MrBackend::map`]; then the request was not sent, or refused with the map. After `Ok`
    /// both may still fail: then the key was never honoured and no answer comes, and `invalidate`
    /// does what there is to do.
    fn map_chained(
        &self,
        region: &mut Self::Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: &mut dyn FnMut(Keys) -> Self::Request,
    ) -> Result<Keys, Self::Error>;

    /// Does the jobs of `batch` as [`MrBackend::map_batch`] does, and sends the `request` of each behind its map,
    /// of as many as the queue takes with one doorbell. Waits for none.
    ///
    /// `request` gets the job's place in the batch and its keys. It may be called for a job whose
    /// map then fails, and again for one that is tried again; only the last result can have been
    /// sent.
    ///
    /// The answers mean what they mean for [`map_chained`](Self::map_chained), but for this: of jobs that
    /// fail because their chain broke off in the middle, it is not known whether the request was sent.
    /// If it was, it carries a key that is dead.
    fn map_batch_chained(
        &self,
        batch: &mut [MapJob<'_, Self::Region, Self::Error>],
        request: &mut dyn FnMut(usize, Keys) -> Self::Request,
    ) {
        for (place, job) in batch.iter_mut().enumerate() {
            let mut request = |keys| request(place, keys);
            if !job.run(|region, memory, access, tag| {
                self.map_chained(region, memory, access, tag, &mut request)
            }) {
                return;
            }
        }
    }
}

/// What a backend can do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Regions that can exist at once.
    pub max_regions: u32,
    /// Bytes that one region can map.
    pub max_bytes: u64,
    /// Pages that one region can map; a buffer that starts inside a page touches one more.
    pub max_pages: u32,
    /// Bytes per page, a power of two.
    pub page_size: u32,
    /// How many low bits of a key the caller of `map` chooses: 8, or 0 if the HCA chooses all.
    pub tag_bits: u8,
    /// Whether a region can be mapped again without an invalidation in between.
    pub remap: Remap,
    /// What one `invalidate` call costs others.
    pub fence: Fence,
    /// Whether [`MrBackend::soft_invalidate`] does something.
    pub soft_invalidate: bool,
    /// Whether a peer can end a mapping (SEND_WITH_INV).
    pub remote_invalidate: bool,
    /// The longest batch that `invalidate` takes, at least 1.
    pub max_batch: usize,
    /// Who can use a key.
    pub key_scope: KeyScope,
    /// How a peer names the bytes behind a key.
    pub addressing: Addressing,
}

impl Capabilities {
    /// The least that a backend must do: no tag, no remap, one region per fence.
    pub const fn new(max_regions: u32, max_bytes: u64) -> Self {
        Self {
            max_regions,
            max_bytes,
            max_pages: u32::MAX,
            page_size: 4096,
            tag_bits: 0,
            remap: Remap::Impossible,
            fence: Fence::PerKey,
            soft_invalidate: false,
            remote_invalidate: false,
            max_batch: 1,
            key_scope: KeyScope::ProtectionDomain,
            addressing: Addressing::Virtual,
        }
    }

    /// How many bytes one region can map wherever in their first page they begin.
    pub(crate) const fn fit_anywhere(&self) -> u64 {
        let Some(others) = self.max_pages.checked_sub(1) else {
            return 0;
        };
        // At worst the first page has but one byte of them.
        let by_pages = others as u64 * self.page_size as u64 + 1;
        if by_pages < self.max_bytes {
            by_pages
        } else {
            self.max_bytes
        }
    }

    /// The address by which a peer names the first byte of a mapping whose memory begins at `addr`.
    pub const fn remote_addr(&self, addr: u64) -> u64 {
        match self.addressing {
            Addressing::Virtual => addr,
            Addressing::InPage => addr & (self.page_size as u64 - 1),
            Addressing::From(first) => first,
        }
    }
}

/// How a peer names the bytes behind a key: the address of the first one. The others follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// Where the memory is in this process.
    Virtual,
    /// How far into its first page the memory begins: the key counts from a page's start. RDS needs
    /// this, since its cookies have 32 bits for it.
    InPage,
    /// This number, wherever the memory is.
    From(u64),
}

/// What mapping a region again does to its previous key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remap {
    /// The region must be invalidated first.
    Impossible,
    /// The previous key may still be honoured (out of the HCA's cache) until the next flush.
    LeavesPrevious,
    /// Once `map` has returned, the previous key is dead.
    KillsPrevious,
}

/// What the fence of one `invalidate` call reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The whole HCA (SYNC_TPT): costs the same for one region as for thousands.
    Global,
    /// Only the keys in the batch.
    PerKey,
}

/// Who can use a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// Any connection of the protection domain.
    ProtectionDomain,
    /// One connection.
    Connection,
}

/// An error of a backend: a kind that all backends share, and the source.
pub trait BackendError: std::error::Error + Send + Sync + 'static {
    /// Which of the kinds this is.
    fn kind(&self) -> ErrorKind;
}

/// The kinds of backend errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Out of memory, table entries, or a limit of the system.
    NoMemory,
    /// Cannot be done at this moment; the same call may succeed later.
    Busy,
    /// The device cannot do this.
    Unsupported,
    /// The device refuses to do this with this memory or access.
    Denied,
    /// The device did not answer in time.
    TimedOut,
    /// The device is gone.
    NoDevice,
    /// The device failed.
    Io,
}

impl ErrorKind {
    /// Whether a region is as it was before a `map` that failed with this kind.
    pub const fn leaves_region_known(self) -> bool {
        matches!(
            self,
            Self::NoMemory | Self::Busy | Self::Unsupported | Self::Denied
        )
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "out of memory or table entries",
            Self::Busy => "busy",
            Self::Unsupported => "not supported",
            Self::Denied => "denied",
            Self::TimedOut => "no answer in time",
            Self::NoDevice => "no device",
            Self::Io => "device failure",
        })
    }
}

/// An `invalidate` call that did not kill every key of its batch.
#[derive(Debug)]
pub struct BatchError<E> {
    failures: Failures<E>,
}

#[derive(Debug)]
enum Failures<E> {
    All(E),
    Each(Vec<Result<(), E>>),
}

impl<E> BatchError<E> {
    /// Nothing is known to be dead.
    pub const fn all(error: E) -> Self {
        Self {
            failures: Failures::All(error),
        }
    }

    /// One result per region, in the order of the batch. Regions beyond the end of `results`
    /// count as failed.
    pub const fn each(results: Vec<Result<(), E>>) -> Self {
        Self {
            failures: Failures::Each(results),
        }
    }

    /// Whether the keys of the region at `place` in the batch are dead.
    pub fn is_dead(&self, place: usize) -> bool {
        match &self.failures {
            Failures::All(_) => false,
            Failures::Each(results) => matches!(results.get(place), Some(Ok(()))),
        }
    }

    /// The error of the region at `place`, or the first error of the batch if that region has
    /// none of its own.
    pub fn error(&self, place: usize) -> Option<&E> {
        match &self.failures {
            Failures::All(error) => Some(error),
            Failures::Each(results) => match results.get(place) {
                Some(Err(error)) => Some(error),
                _ => results.iter().find_map(|result| result.as_ref().err()),
            },
        }
    }
}

impl<E> BatchError<E> {
    /// The first error of the batch.
    pub(crate) fn into_first(self) -> Option<E> {
        match self.failures {
            Failures::All(error) => Some(error),
            Failures::Each(results) => results.into_iter().find_map(Result::err),
        }
    }
}

impl<E: fmt::Display> fmt::Display for BatchError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failures {
            Failures::All(error) => write!(f, "nothing was invalidated: {error}"),
            Failures::Each(results) => {
                let failed = results.iter().filter(|result| result.is_err()).count();
                write!(
                    f,
                    "{failed} of {} regions were not invalidated",
                    results.len()
                )?;
                self.error(usize::MAX)
                    .map_or(Ok(()), |error| write!(f, ": {error}"))
            }
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for BatchError<E> {}

/// A region that could not be freed.
#[derive(Debug, thiserror::Error)]
#[error("the region could not be freed: {error}")]
pub struct DeallocError<R, E> {
    /// The region, still allocated.
    pub region: R,
    /// Why.
    pub error: E,
}

// SAFETY: every call is the other backend's, and every answer.
unsafe impl<B: MrBackend + ?Sized> MrBackend for std::sync::Arc<B> {
    type Region = B::Region;
    type Error = B::Error;

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn alloc(&self) -> Result<Self::Region, Self::Error> {
        (**self).alloc()
    }

    fn map(
        &self,
        region: &mut Self::Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, Self::Error> {
        (**self).map(region, memory, access, tag)
    }

    fn map_batch(&self, batch: &mut [MapJob<'_, Self::Region, Self::Error>]) {
        (**self).map_batch(batch);
    }

    fn soft_invalidate(&self, region: &mut Self::Region) {
        (**self).soft_invalidate(region);
    }

    fn invalidate(&self, batch: &mut [&mut Self::Region]) -> Result<(), BatchError<Self::Error>> {
        (**self).invalidate(batch)
    }

    fn invalidated_by_peer(&self, region: &mut Self::Region) -> bool {
        (**self).invalidated_by_peer(region)
    }

    fn dealloc(&self, region: Self::Region) -> Result<(), DeallocError<Self::Region, Self::Error>> {
        (**self).dealloc(region)
    }
}

// SAFETY: as above.
unsafe impl<B: ChainedMap + ?Sized> ChainedMap for std::sync::Arc<B> {
    type Request = B::Request;

    fn map_chained(
        &self,
        region: &mut Self::Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: &mut dyn FnMut(Keys) -> Self::Request,
    ) -> Result<Keys, Self::Error> {
        (**self).map_chained(region, memory, access, tag, request)
    }

    fn map_batch_chained(
        &self,
        batch: &mut [MapJob<'_, Self::Region, Self::Error>],
        request: &mut dyn FnMut(usize, Keys) -> Self::Request,
    ) {
        (**self).map_batch_chained(batch, request);
    }
}
