//! rds-lite.

use super::{Buffers, Endpoint, Refusal, Stack};
use crate::kernel::Transport;
use anyhow::{Result, bail};
use rds_lite::fabric::tcp::{TcpConfig, TcpFabric};
use rds_lite::proto::SendError;
use rds_lite::stress::{LiteCarrier, Load, Side};
use rds_lite::{Host, RecvError, Socket};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A host of rds-lite, of which there is always one.
pub struct LiteStack {
    transport: Transport,
    /// RDS/TCP's, unless there are other hosts on this machine.
    port: Option<u16>,
    host: Mutex<Host>,
}

impl LiteStack {
    /// A new host.
    ///
    /// # Errors
    ///
    /// It could not be built.
    pub fn new(transport: Transport, port: Option<u16>) -> Result<Self> {
        Ok(Self {
            transport,
            port,
            host: Mutex::new(build(transport, port)?),
        })
    }

    fn host(&self) -> Host {
        self.host
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn build(transport: Transport, port: Option<u16>) -> Result<Host> {
    match transport {
        Transport::Tcp => {
            let mut config = TcpConfig::default();
            config.port = port.unwrap_or(config.port);
            Ok(Host::builder(TcpFabric::new(config)).build()?)
        }
        Transport::Verbs => build_on_device(port),
    }
}

/// A host on the first RDMA device, with a pool whose keys live on for a while.
#[cfg(feature = "verbs")]
fn build_on_device(port: Option<u16>) -> Result<Host> {
    use mr_core::Pool;
    use mr_policies::{MaxExposure, PolicyExt, UseOnce};
    use mr_verbs::{Device, Domain, RegistrationBackend};
    use rds_lite::fabric::verbs::{VerbsConfig, VerbsFabric};
    use rds_lite::rdma::PoolRegions;

    let domain = Domain::new(&Device::open_first()?)?;
    let policy = UseOnce.and(MaxExposure::new(Duration::from_millis(100))?);
    let pool = Pool::builder(RegistrationBackend::zero_based(&domain), policy);
    let pool = pool.capacity(256).build::<Vec<u8>>()?;
    let mut config = VerbsConfig::default();
    config.port = port.unwrap_or(config.port);
    let fabric = VerbsFabric::new(&domain, config);
    let regions = PoolRegions::new(Arc::new(pool));
    Ok(Host::builder(fabric).regions(regions).build()?)
}

#[cfg(not(feature = "verbs"))]
fn build_on_device(_port: Option<u16>) -> Result<Host> {
    bail!("this program was built without the feature verbs")
}

impl Stack for LiteStack {
    fn name(&self) -> &'static str {
        "rds-lite"
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn carry(
        &self,
        load: &Load,
        own: &[SocketAddr],
        peers: &[SocketAddr],
        asks: bool,
    ) -> Result<Side> {
        let mut carriers = Vec::new();
        for &addr in own {
            let socket = self.host().bind(addr)?;
            socket.set_send_buffer(load.buffer_bytes());
            socket.set_receive_buffer(load.buffer_bytes());
            carriers.push(LiteCarrier::new(socket, load));
        }
        Ok(Side::start(carriers, peers, load, asks)?)
    }

    fn bind(&self, addr: SocketAddr, buffers: Buffers) -> Result<Arc<dyn Endpoint>> {
        let socket = self.host().bind(addr)?;
        if let Some(bytes) = buffers.send {
            socket.set_send_buffer(bytes);
        }
        if let Some(bytes) = buffers.receive {
            socket.set_receive_buffer(bytes);
        }
        Ok(Arc::new(LiteEndpoint {
            socket,
            content: Mutex::default(),
        }))
    }

    fn restart(&self) -> Result<()> {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        // The old one first: it has the port.
        host.shut_down();
        *host = build(self.transport, self.port)?;
        Ok(())
    }

    fn cut(&self) -> Result<()> {
        bail!("rds-lite ends no connection on request");
    }

    fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let counters = self.host().counters();
        Ok(counters
            .iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect())
    }
}

pub(super) struct LiteEndpoint {
    pub(super) socket: Socket,
    /// What was lent and is back.
    pub(super) content: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Endpoint for LiteEndpoint {
    fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn send(&self, message: &[u8], to: SocketAddr) -> Result<(), Refusal> {
        match self.socket.try_send_to(message, to) {
            Ok(_) => Ok(()),
            Err(SendError::WouldBlock) => Err(Refusal::Full),
            Err(SendError::Congested(_)) => Err(Refusal::Congested),
            Err(error) => Err(Refusal::Failed(error.into())),
        }
    }

    fn wait_to_send(&self, to: SocketAddr, _: &Refusal, at_most: Duration) {
        // Whether the time is over or not, the next try tells.
        let _ = self.socket.wait_writable(to, at_most);
    }

    fn receive(&self, into: &mut Vec<u8>, at_most: Duration) -> Result<Option<SocketAddr>> {
        self.socket.set_receive_timeout(Some(at_most));
        match self.socket.recv_message() {
            Ok(message) => {
                into.clear();
                into.extend_from_slice(&message.payload);
                Ok(Some(message.from))
            }
            Err(RecvError::TimedOut | RecvError::WouldBlock) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
