//! The mock HCA as a backend.

use crate::dma::Span;
use crate::engine::{Engine, MapRequest};
use crate::{Costs, Counters, MockError, Preset, RemotePeer};
use mr_core::{
    Access, Addressing, BatchError, Capabilities, DeallocError, KeyScope, KeyTag, Keys, LocalKey,
    MemoryRange, MrBackend, RemoteKey,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Set in the index of every local key and of no remote one: the two never match.
const LOCAL_INDEX: u32 = 1 << 23;

/// A mock HCA, seen from one protection domain.
///
/// Cloning gives another handle on the same device and domain;
/// [`another_domain`](Self::another_domain) gives one with a domain of its own. All calls take
/// the device's one lock for as long as the operation takes (below a microsecond, except that a
/// transfer holds it while it copies a run of at most one MTT line). Nothing sleeps: what an
/// operation would have taken is in [`costs`](Self::costs).
#[derive(Clone, Debug)]
pub struct MockHca {
    device: Arc<Device>,
    domain: u32,
    connection: Option<u32>,
    /// The address by which peers name the first byte of a mapping.
    base: u64,
}

/// A region of a [`MockHca`].
#[derive(Debug)]
pub struct MockRegion {
    index: u32,
    domain: u32,
    device: DeviceId,
}

/// What all handles share.
#[derive(Debug)]
pub(crate) struct Device {
    engine: Mutex<Engine>,
    id: DeviceId,
    capabilities: Capabilities,
    domains: AtomicU32,
    connections: AtomicU32,
}

/// Tells devices apart; only ever compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeviceId(u32);

impl MockHca {
    /// A device of this preset, with one protection domain.
    pub fn new(preset: &Preset) -> Self {
        static DEVICES: AtomicU32 = AtomicU32::new(0);
        let device = Device {
            engine: Mutex::new(Engine::new(preset)),
            id: DeviceId(DEVICES.fetch_add(1, Ordering::Relaxed)),
            capabilities: capabilities(preset),
            domains: AtomicU32::new(0),
            connections: AtomicU32::new(0),
        };
        Self {
            device: Arc::new(device),
            domain: 0,
            connection: None,
            base: 0,
        }
    }

    /// The same device, seen from a protection domain of its own.
    #[must_use]
    pub fn another_domain(&self) -> Self {
        Self {
            device: Arc::clone(&self.device),
            domain: self.device.domains.fetch_add(1, Ordering::Relaxed) + 1,
            connection: None,
            base: self.base,
        }
    }

    /// A connection to a peer, in this protection domain.
    pub fn connect(&self) -> RemotePeer {
        let number = self.device.connections.fetch_add(1, Ordering::Relaxed) + 1;
        RemotePeer::new(Arc::clone(&self.device), self.domain, number)
    }

    /// The same device and domain, mapping for one connection where keys belong to one
    /// ([`KeyScope::Connection`]); elsewhere the connection makes no difference.
    ///
    /// # Errors
    ///
    /// If the connection is another device's or domain's.
    pub fn for_connection(&self, peer: &RemotePeer) -> Result<Self, MockError> {
        if !peer.is_on(&self.device) || peer.domain() != self.domain {
            return Err(MockError::ForeignConnection);
        }
        Ok(Self {
            connection: Some(peer.number()),
            ..self.clone()
        })
    }

    /// The same device and domain, whose mappings begin at `base` for the peers instead of at 0: as
    /// with an HCA whose keys count from the start of the first page
    /// ([`Addressing::From`]).
    #[must_use]
    pub fn based_at(&self, base: u64) -> Self {
        Self {
            base,
            ..self.clone()
        }
    }

    /// What everything has cost so far.
    pub fn costs(&self) -> Costs {
        self.device.lock().costs
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.device.lock().counters
    }

    /// Tells the mock (the HCA would not know) that the owner of `key` has released it, so that
    /// packets which the table still lets through count as [stale](crate::StaleSource::Table).
    pub fn note_released(&self, key: RemoteKey) {
        self.device.lock().note_released(key);
    }

    /// Regions that exist.
    pub fn regions(&self) -> usize {
        self.device.lock().tpt.allocated()
    }

    /// Takes the device away: every call and every transfer fails from now on, and no key of it
    /// is honoured.
    pub fn remove(&self) {
        self.device.lock().remove();
    }

    fn index_of(&self, region: &MockRegion) -> Option<u32> {
        (region.device == self.device.id && region.domain == self.domain).then_some(region.index)
    }

    fn scope(&self) -> Result<Option<u32>, MockError> {
        match self.device.capabilities.key_scope {
            KeyScope::ProtectionDomain => Ok(None),
            KeyScope::Connection => match self.connection {
                Some(connection) => Ok(Some(connection)),
                None => Err(MockError::NoConnection),
            },
        }
    }
}

// SAFETY: bytes are moved only through spans in tables and caches, under the engine's lock; what
// kills a key takes its spans out of both before it says so (see `dma`).
unsafe impl MrBackend for MockHca {
    type Region = MockRegion;
    type Error = MockError;

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.device.capabilities.clone();
        capabilities.addressing = Addressing::From(self.base);
        capabilities
    }

    fn alloc(&self) -> Result<MockRegion, MockError> {
        let index = self.device.lock().alloc()?;
        Ok(MockRegion {
            index,
            domain: self.domain,
            device: self.device.id,
        })
    }

    fn map(
        &self,
        region: &mut MockRegion,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, MockError> {
        let index = self.index_of(region).ok_or(MockError::ForeignRegion)?;
        let request = MapRequest {
            index,
            span: Span::of(&memory),
            access,
            tag,
            domain: self.domain,
            connection: self.scope()?,
            base: self.base,
        };
        let remote = self.device.lock().map(request)?;
        Ok(Keys {
            local: LocalKey::new(remote.index() | LOCAL_INDEX, remote.tag()),
            remote,
        })
    }

    fn soft_invalidate(&self, region: &mut MockRegion) {
        if let Some(index) = self.index_of(region) {
            self.device.lock().soft_invalidate(index);
        }
    }

    fn invalidate(&self, batch: &mut [&mut MockRegion]) -> Result<(), BatchError<MockError>> {
        let indices = batch.iter().map(|region| self.index_of(region));
        self.device.lock().invalidate(indices)
    }

    fn invalidated_by_peer(&self, region: &mut MockRegion) -> bool {
        self.index_of(region)
            .is_some_and(|index| self.device.lock().invalidated_by_peer(index))
    }

    fn dealloc(&self, region: MockRegion) -> Result<(), DeallocError<MockRegion, MockError>> {
        let freed = match self.index_of(&region) {
            None => Err(MockError::ForeignRegion),
            Some(index) => self.device.lock().dealloc(index),
        };
        freed.map_err(|error| DeallocError { region, error })
    }
}

impl Device {
    /// The engine. A thread that panicked with it in hand left it consistent: the engine changes
    /// nothing before it has checked everything.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn capabilities(preset: &Preset) -> Capabilities {
    let page = preset.page_bytes.value;
    let pages = preset.max_pages.value;
    let mut capabilities = Capabilities::new(
        preset.max_regions.value as u32,
        // From any start inside of a page: one page is lost.
        pages.saturating_sub(1).max(1) * page,
    );
    capabilities.max_pages = pages as u32;
    capabilities.page_size = page as u32;
    capabilities.tag_bits = preset.tag_bits.value as u8;
    capabilities.remap = preset.remap.value;
    capabilities.fence = preset.fence.value;
    capabilities.soft_invalidate = preset.soft_invalidate.value;
    capabilities.remote_invalidate = preset.remote_invalidate.value;
    capabilities.max_batch = preset.max_batch.value as usize;
    capabilities.key_scope = preset.key_scope.value;
    capabilities
}
