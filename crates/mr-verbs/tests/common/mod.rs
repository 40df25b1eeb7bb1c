//! A device with both ends of a connection on it, in one process.

#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

use mr_core::conformance::{ChainedHarness, Harness, PeerError, Place};
use mr_core::{ChainedMap, MrBackend, RemoteKey};
use mr_verbs::{Arena, ArenaBuffer, Device, Domain, Endpoint, EndpointConfig, Error, Status};
use std::fmt;
use std::io::{Write, stderr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Names the device to use, and says that there must be one.
pub(crate) const DEVICE: &str = "MR_VERBS_DEVICE";

/// Bytes of the arena that tests map out of.
pub(crate) const ARENA: usize = 4 << 20;

/// This host's end and the peer's.
pub(crate) struct Rig {
    pub(crate) domain: Arc<Domain>,
    pub(crate) arena: Arena,
    /// Our end: maps memory.
    pub(crate) ours: Arc<Endpoint>,
    /// The peer: presents keys.
    pub(crate) peer: Arc<Endpoint>,
    /// The peer's memory.
    pub(crate) staging: Mutex<Option<ArenaBuffer>>,
}

/// Opens the device of the environment. The error says why not, for a test that is skipped.
pub(crate) fn device() -> Result<Arc<Device>, String> {
    let Ok(name) = std::env::var(DEVICE) else {
        return Err("no RDMA device (run `cargo xtask hw`)".to_owned());
    };
    Ok(Device::open(&name).unwrap_or_else(|error| panic!("{DEVICE}={name}: {error}")))
}

/// The device, or `None` after saying loudly that a test is skipped.
pub(crate) fn device_or_skip(test: &str) -> Option<Arc<Device>> {
    match device() {
        Ok(device) => Some(device),
        Err(why) => {
            let _ = writeln!(stderr(), "{test}: SKIPPED, {why}");
            None
        }
    }
}

impl Rig {
    pub(crate) fn new(device: &Arc<Device>, config: EndpointConfig) -> Self {
        let domain = Domain::new(device).unwrap();
        let peer_domain = Domain::new(device).unwrap();
        let (ours, peer) = Endpoint::pair(&domain, &peer_domain, config).unwrap();
        let staging = Arena::new(&peer_domain, 1 << 20).unwrap();
        let staging = staging.take(staging.size()).unwrap();
        Self {
            arena: Arena::new(&domain, ARENA).unwrap(),
            domain,
            ours,
            peer,
            staging: Mutex::new(Some(staging)),
        }
    }

    pub(crate) fn write(&self, place: Place, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut staging = self.staging.lock().unwrap();
        let staging = staging.as_mut().unwrap();
        staging[..data.len()].copy_from_slice(data);
        self.peer
            .write(staging, data.len(), place.addr + offset, place.key)
    }

    pub(crate) fn read(&self, place: Place, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut guard = self.staging.lock().unwrap();
        let staging = guard.take().unwrap();
        match self
            .peer
            .read(staging, into.len(), place.addr + offset, place.key)
        {
            Ok(staging) => {
                into.copy_from_slice(&staging[..into.len()]);
                *guard = Some(staging);
                Ok(())
            }
            Err((error, staging)) => {
                *guard = staging;
                Err(error)
            }
        }
    }
}

/// For chains of many binds and messages: an emulated machine stands still now and then, and what is
/// sent again for that sticks on Soft-RoCE if there are binds among it.
pub(crate) fn patient() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.ack_timeout = 18;
    config.timeout = Duration::from_secs(30);
    config
}

/// A rig with a backend over it.
pub(crate) struct Verbs<B> {
    pub(crate) rig: Rig,
    pub(crate) backend: Arc<B>,
    make: fn(&Rig) -> B,
    windows: bool,
}

impl<B> Verbs<B> {
    pub(crate) fn new(windows: bool, make: fn(&Rig) -> B) -> Result<Self, String> {
        let rig = Rig::new(&device()?, patient());
        Ok(Self {
            backend: Arc::new(make(&rig)),
            rig,
            make,
            windows,
        })
    }
}

impl<B: MrBackend<Region: fmt::Debug>> Harness for Verbs<B> {
    type Backend = B;
    type Memory = ArenaBuffer;

    const REQUIRED_BY: Option<&'static str> = Some(DEVICE);

    fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    fn another_backend(&self) -> Arc<B> {
        Arc::new((self.make)(&self.rig))
    }

    fn memory(&self, len: usize) -> ArenaBuffer {
        let mut memory = self.rig.arena.take(len).unwrap();
        memory.fill(0);
        memory
    }

    fn write(&self, place: Place, offset: u64, data: &[u8]) -> Result<(), PeerError> {
        self.rig.write(place, offset, data).map_err(heard)
    }

    fn read(&self, place: Place, offset: u64, into: &mut [u8]) -> Result<(), PeerError> {
        self.rig.read(place, offset, into).map_err(heard)
    }

    fn invalidate(&self, key: RemoteKey) -> Result<(), PeerError> {
        self.rig
            .peer
            .send_invalidating(b"bye", key)
            .map_err(heard)?;
        match self.rig.ours.receive(Duration::from_secs(5)) {
            Ok(Some(message)) => {
                assert_eq!(message.bytes, b"bye");
                Ok(())
            }
            Ok(None) => Err(PeerError::Other("nothing arrived".to_owned())),
            Err(error) => Err(heard(error)),
        }
    }

    fn recover(&self) {
        self.rig.ours.reconnect().unwrap();
    }

    fn known_defect(&self, check: &str) -> Option<&'static str> {
        if !self.rig.domain.device().is_software() {
            return None;
        }
        match check {
            "a_key_reaches_no_further_than_its_mapping" if self.windows => Some(
                "rdma_rxe of Linux 6.1 checks an access through a window against the registration below it",
            ),
            "a_write_under_way_stops_at_the_invalidation" if self.windows => Some(
                "rdma_rxe of Linux 6.1 checks the key at the first packet of a write, and not at the others",
            ),
            "a_peer_that_invalidates_a_key_again_ends_no_other_mapping"
                if self.backend.capabilities().remote_invalidate =>
            {
                Some(
                    "rdma_rxe of Linux 6.1 follows a null pointer (rxe_invalidate_mw), and the kernel dies",
                )
            }
            _ => None,
        }
    }
}

impl<B> ChainedHarness for Verbs<B>
where
    B: ChainedMap<Region: fmt::Debug, Request = Vec<u8>>,
{
    fn request(&self, key: RemoteKey) -> Vec<u8> {
        key.bits().to_be_bytes().to_vec()
    }

    fn hear(&self) -> Result<RemoteKey, PeerError> {
        let message = self.rig.peer.receive(Duration::from_secs(5));
        let message = message.map_err(heard)?;
        let message = message.ok_or_else(|| PeerError::Other("nothing arrived".to_owned()))?;
        let bits = u32::from_be_bytes(message.bytes.try_into().unwrap());
        Ok(RemoteKey::from_bits(bits))
    }
}

pub(crate) fn heard(error: Error) -> PeerError {
    match error {
        Error::ConnectionLost {
            status: Status::RemoteAccess,
            ..
        } => PeerError::Refused,
        other => PeerError::Other(other.to_string()),
    }
}
