//! A device with both ends of a connection on it, for tests that look inside.

use crate::{Arena, ArenaBuffer, Device, Domain, Endpoint, EndpointConfig, Error, Status};
use mr_core::{Access, DmaBuffer, KeyTag, MemoryRange, MrBackend, RemoteKey};
use std::io::{Write, stderr};
use std::ptr::NonNull;
use std::sync::Arc;

pub(crate) struct Rig {
    pub(crate) domain: Arc<Domain>,
    pub(crate) ours: Arc<Endpoint>,
    peer: Arc<Endpoint>,
    staging: ArenaBuffer,
}

impl Rig {
    /// `None`, after saying so loudly, where no device is expected.
    pub(crate) fn or_skip(test: &str) -> Option<Self> {
        let Ok(name) = std::env::var("MR_VERBS_DEVICE") else {
            let why = "no RDMA device (run `cargo xtask hw`)";
            let _ = writeln!(stderr(), "{test}: SKIPPED, {why}");
            return None;
        };
        let device = Device::open(&name).unwrap();
        let domain = Domain::new(&device).unwrap();
        let peer_domain = Domain::new(&device).unwrap();
        let config = EndpointConfig::default();
        let (ours, peer) = Endpoint::pair(&domain, &peer_domain, config).unwrap();
        let staging = Arena::new(&peer_domain, 4096).unwrap().take(64).unwrap();
        Some(Self {
            domain,
            ours,
            peer,
            staging,
        })
    }

    pub(crate) fn range(buffer: &mut ArenaBuffer) -> MemoryRange<'static> {
        let len = buffer.len();
        let start = NonNull::new(DmaBuffer::as_mut_ptr(buffer)).unwrap();
        // SAFETY: tests keep the buffer until the key is dead, and look into it only when the peer
        // is not writing.
        unsafe { MemoryRange::new(start, len) }
    }

    pub(crate) fn try_map<B: MrBackend>(
        &self,
        backend: &B,
        region: &mut B::Region,
        buffer: &mut ArenaBuffer,
        tag: u8,
    ) -> Result<RemoteKey, B::Error> {
        let range = Self::range(buffer);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let keys = backend.map(region, range, access, KeyTag::new(tag))?;
        Ok(keys.remote)
    }

    pub(crate) fn map<B: MrBackend>(
        &self,
        backend: &B,
        region: &mut B::Region,
        buffer: &mut ArenaBuffer,
        tag: u8,
    ) -> RemoteKey {
        self.try_map(backend, region, buffer, tag).unwrap()
    }

    /// The peer writes 64 bytes to the start of the buffer.
    pub(crate) fn write(&self, buffer: &ArenaBuffer, key: RemoteKey) -> Result<(), Error> {
        let addr = buffer.as_ptr().expose_provenance() as u64;
        self.peer.write(&self.staging, 64, addr, key)
    }

    /// The peer's write is refused; the connection works again afterwards.
    pub(crate) fn assert_refused(&self, buffer: &ArenaBuffer, key: RemoteKey) {
        let outcome = self.write(buffer, key);
        let Err(Error::ConnectionLost { status, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(status, Status::RemoteAccess);
        self.ours.reconnect().unwrap();
    }
}
