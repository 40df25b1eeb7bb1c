//! The mock HCA does what any backend must, as each of the devices that it can be, and with a
//! layer in between that could inject faults and does not.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use mr_core::conformance::{Harness, PeerError, Place};
use mr_core::{MrBackend, RemoteKey};
use mr_mock::{FaultBackend, FaultPlan, MockHca, Preset, Refusal, RefusalReason, RemotePeer};
use std::sync::{Arc, Mutex};

/// A device with one connection, seen through a backend of type `B`.
struct Mock<B> {
    wrap: fn(MockHca) -> B,
    backend: Arc<B>,
    hca: MockHca,
    peer: RemotePeer,
    /// What the peer addresses by the start of a mapping.
    serial: Mutex<()>,
}

impl<B> Mock<B> {
    fn new(preset: &str, wrap: fn(MockHca) -> B) -> Result<Self, String> {
        let preset = Preset::named(preset).map_err(|error| error.to_string())?;
        let hca = MockHca::new(&preset);
        let peer = hca.connect();
        let mapping = hca
            .for_connection(&peer)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            wrap,
            backend: Arc::new(wrap(mapping)),
            hca,
            peer,
            serial: Mutex::new(()),
        })
    }
}

impl<B: MrBackend<Region: std::fmt::Debug>> Harness for Mock<B> {
    type Backend = B;
    type Memory = Vec<u8>;

    fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    fn another_backend(&self) -> Arc<B> {
        Arc::new((self.wrap)(self.hca.another_domain()))
    }

    fn memory(&self, len: usize) -> Vec<u8> {
        vec![0; len]
    }

    fn write(&self, place: Place, offset: u64, data: &[u8]) -> Result<(), PeerError> {
        let _one_at_a_time = self.serial.lock().unwrap();
        self.peer
            .write(place.key, place.addr + offset, data)
            .map(drop)
            .map_err(heard)
    }

    fn read(&self, place: Place, offset: u64, into: &mut [u8]) -> Result<(), PeerError> {
        let _one_at_a_time = self.serial.lock().unwrap();
        self.peer
            .read(place.key, place.addr + offset, into)
            .map(drop)
            .map_err(heard)
    }

    fn invalidate(&self, key: RemoteKey) -> Result<(), PeerError> {
        self.peer.invalidate(key).map(drop).map_err(heard)
    }

    fn recover(&self) {
        self.peer.recover();
    }
}

fn heard(refusal: Refusal) -> PeerError {
    match refusal.reason {
        RefusalReason::ConnectionInError | RefusalReason::DeviceRemoved => {
            PeerError::Other(refusal.to_string())
        }
        _ => PeerError::Refused,
    }
}

macro_rules! devices {
    ($($module:ident = $preset:literal),+ $(,)?) => {$(
        mod $module {
            use super::{Mock, MockHca};

            fn harness() -> Result<Mock<MockHca>, String> {
                Mock::new($preset, |hca| hca)
            }

            mr_core::conformance!(harness);
        }
    )+};
}

devices! {
    connectx_2008 = "connectx-2008",
    connectx_3_frwr = "connectx-3-frwr",
    connectx_3_registration = "connectx-3-registration",
    connectx_5 = "connectx-5",
    connectx_5_window = "connectx-5-window",
    soft_roce = "soft-roce",
}

mod based_elsewhere {
    use super::{Mock, MockHca};

    fn harness() -> Result<Mock<MockHca>, String> {
        Mock::new("connectx-5", |hca| hca.based_at(0xabc))
    }

    mr_core::conformance!(harness);
}

mod behind_a_fault_layer {
    use super::{FaultBackend, FaultPlan, Mock, MockHca};

    fn harness() -> Result<Mock<FaultBackend<MockHca>>, String> {
        Mock::new("connectx-5", |hca| {
            FaultBackend::new(hca, FaultPlan::none())
        })
    }

    mr_core::conformance!(harness);
}
