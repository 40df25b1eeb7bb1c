//! A device with both ends of a connection on it.

use super::{ACCESS, device_error};
use crate::LabError;
use crate::measure::Plan;
use mr_core::{Keys, RemoteKey};
use mr_verbs::{
    Arena, ArenaBuffer, Bare, Device, Domain, Endpoint, EndpointConfig, Error, RegistrationBackend,
};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a request: a key, as the peer needs it.
const REQUEST: usize = 4;

/// A minute: see `EndpointConfig::ack_timeout`.
const ACK_TIMEOUT: u8 = 24;

/// How long the peer waits for a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long this end then waits for one of its own to come through.
const PROBE: Duration = Duration::from_secs(5);

/// This host's end, which maps memory, and the peer's, which presents keys.
pub(super) struct Rig {
    pub(super) device: Arc<Device>,
    pub(super) domain: Arc<Domain>,
    pub(super) arena: Arena,
    pub(super) ours: Arc<Endpoint>,
    peer: Arc<Endpoint>,
    /// The peer's memory: what it writes from.
    staging: ArenaBuffer,
    elsewhere: Elsewhere,
}

/// Memory of this host that the peer can write to at any time.
struct Elsewhere {
    addr: u64,
    key: RemoteKey,
    _mapping: Bare<RegistrationBackend, Vec<u8>>,
}

impl Elsewhere {
    fn new(domain: &Arc<Domain>, size: usize) -> Result<Self, Error> {
        let buffer = vec![1_u8; size];
        let addr = buffer.as_ptr().expose_provenance() as u64;
        let mut mapping = Bare::new(RegistrationBackend::new(domain), [buffer])?;
        let key = mapping.map(0, ACCESS)?.remote;
        Ok(Self {
            addr,
            key,
            _mapping: mapping,
        })
    }
}

/// The request that is chained behind a bind.
pub(super) fn announce(keys: Keys) -> Vec<u8> {
    request(keys.remote.bits())
}

/// The same, of a key that needs not be one.
pub(super) fn request(key: u32) -> Vec<u8> {
    key.to_be_bytes().to_vec()
}

impl Rig {
    pub(super) fn new(plan: &Plan) -> Result<Self, LabError> {
        let named = plan.device.clone();
        let named = named.or_else(|| std::env::var("MR_VERBS_DEVICE").ok());
        let device = match &named {
            Some(name) => Device::open(name),
            None => Device::open_first(),
        };
        let device = device.map_err(device_error)?;
        let domain = Domain::new(&device).map_err(device_error)?;
        let peer_domain = Domain::new(&device).map_err(device_error)?;
        let mut config = EndpointConfig::default();
        // A batch of requests is under way before the peer fetches the first.
        config.receive_depth = plan.batch + 8;
        config.send_depth = config.send_depth.max(4 * plan.batch);
        // Nothing gets lost between two queue pairs of one device, but an emulated machine stands
        // still now and then. What is sent again for that sticks on Soft-RoCE if there are
        // binds among it, so it is never done within the peer's patience.
        config.ack_timeout = ACK_TIMEOUT;
        config.timeout = PATIENCE;
        let (ours, peer) = Endpoint::pair(&domain, &peer_domain, config).map_err(device_error)?;
        let bytes = usize::try_from(plan.arena_bytes()).unwrap_or(usize::MAX);
        let arena = Arena::new(&domain, bytes).map_err(device_error)?;
        let size = plan.size as usize;
        let staging = Arena::new(&peer_domain, size).map_err(device_error)?;
        let staging = staging.take(size).map_err(device_error)?;
        let elsewhere = Elsewhere::new(&domain, size).map_err(device_error)?;
        Ok(Self {
            device,
            domain,
            arena,
            ours,
            peer,
            staging,
            elsewhere,
        })
    }

    /// The peer takes the next request, and with it the key.
    pub(super) fn hear(&self) -> Result<RemoteKey, LabError> {
        let Some(message) = self.peer.receive(PATIENCE).map_err(device_error)? else {
            return Err(LabError::Device(self.why_silent().into()));
        };
        match <[u8; REQUEST]>::try_from(message.bytes.as_slice()) {
            Ok(bytes) => Ok(RemoteKey::from_bits(u32::from_be_bytes(bytes))),
            Err(_) => {
                let got = message.bytes.len();
                let what = format!("a request of {got} bytes, not {REQUEST}, has come to the peer");
                Err(LabError::Device(what.into()))
            }
        }
    }

    /// Why no request has come to the peer. Requests are not waited for, so this end has not heard
    /// yet what has become of them: it asks with one that it waits for.
    fn why_silent(&self) -> String {
        let why = match self.ours.send(&request(0)) {
            Err(error) => error.to_string(),
            Ok(()) => match self.peer.receive(PROBE) {
                Ok(Some(_)) => "one more came through at once, so those before were late".into(),
                Ok(None) => "one more was acknowledged and has not come, either".into(),
                Err(error) => format!("one more was acknowledged; the peer: {error}"),
            },
        };
        let reconnected = self.ours.connections() - 1;
        format!(
            "no request has come to the peer in {PATIENCE:?}: {why} ({reconnected} new connections so far)"
        )
    }

    /// The peer's RDMA write of a whole I/O.
    pub(super) fn write(&self, addr: u64, key: RemoteKey) -> Result<(), LabError> {
        self.peer
            .write(&self.staging, self.staging.len(), addr, key)
            .map_err(device_error)
    }

    /// The same to memory that is mapped all the time.
    pub(super) fn write_elsewhere(&self) -> Result<(), LabError> {
        self.write(self.elsewhere.addr, self.elsewhere.key)
    }
}
