//! Connecting, and connecting again after a failure.
//!
//! A queue pair that has failed is never repaired: it stays in error, where it accepts nothing from
//! the peer, until the last window bound on it is gone, and a new one takes its place. So every key
//! of type 2 that was bound on it is out of use from the failure on; each is also killed for good
//! (its window is freed) when its lease ends, before the pool hears that the key is dead.

use crate::endpoint::{Endpoint, EndpointConfig};
use crate::link::Link;
use crate::peer_keys::PeerKeys;
use crate::qp::QpAddress;
use crate::wait::lock;
use crate::{Domain, Error};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// How the two ends learn each other's address, by some other way than RDMA.
///
/// Called by the end that connects, when it is made and after every failure. The other end must
/// take the address with [`Endpoint::accept`] and answer with its own. The call must end in bounded
/// time: whoever needs the connection waits for it.
pub trait Connector: Send + Sync + 'static {
    /// Tells the peer this end's address, and returns the peer's.
    ///
    /// # Errors
    ///
    /// The peer cannot be reached, or refuses.
    fn exchange(&self, ours: QpAddress) -> io::Result<QpAddress>;
}

impl<F: Fn(QpAddress) -> io::Result<QpAddress> + Send + Sync + 'static> Connector for F {
    fn exchange(&self, ours: QpAddress) -> io::Result<QpAddress> {
        self(ours)
    }
}

impl Endpoint {
    /// Makes the end that connects, and connects it.
    ///
    /// # Errors
    ///
    /// There is no connection to be had.
    pub fn connect(
        domain: &Arc<Domain>,
        config: EndpointConfig,
        connector: impl Connector,
    ) -> Result<Arc<Self>, Error> {
        let endpoint = Self::unconnected(domain, config, Some(Box::new(connector)));
        endpoint.reconnect()?;
        Ok(Arc::new(endpoint))
    }

    /// Makes the end that is connected to, by [`accept`](Self::accept).
    pub fn passive(domain: &Arc<Domain>, config: EndpointConfig) -> Arc<Self> {
        Arc::new(Self::unconnected(domain, config, None))
    }

    /// Makes both ends of a connection within this process: the first connects, and connects
    /// again.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn pair(
        connecting: &Arc<Domain>,
        accepting: &Arc<Domain>,
        config: EndpointConfig,
    ) -> Result<(Arc<Self>, Arc<Self>), Error> {
        let passive = Self::passive(accepting, config);
        let other: Weak<Self> = Arc::downgrade(&passive);
        let active = Self::connect(connecting, config, move |ours| {
            let other = other.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            other.accept(ours).map_err(io::Error::other)
        })?;
        Ok((active, passive))
    }

    fn unconnected(
        domain: &Arc<Domain>,
        config: EndpointConfig,
        connector: Option<Box<dyn Connector>>,
    ) -> Self {
        Self {
            domain: Arc::clone(domain),
            config: config.clamped(),
            connector,
            link: RwLock::new(None),
            recovery: Mutex::new(()),
            keys: PeerKeys::default(),
            connections: AtomicU64::new(0),
        }
    }

    /// Gives up the present queue pair, if any, and connects a new one to the peer at `peer`.
    /// Returns its address, for the peer.
    ///
    /// # Errors
    ///
    /// The port is down, or the device refuses; there is no connection then.
    pub fn accept(&self, peer: QpAddress) -> Result<QpAddress, Error> {
        let _recovering = lock(&self.recovery);
        self.rebuild(|_| Ok(peer))
    }

    /// Gives up the present queue pair, if any, and connects a new one, with the [`Connector`].
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept), or the connector fails; or this is the end that is connected
    /// to.
    pub fn reconnect(&self) -> Result<(), Error> {
        let _recovering = lock(&self.recovery);
        self.rebuild_by_connector()
    }

    /// The present connection, or a new one if that has failed.
    pub(crate) fn link(&self) -> Result<Arc<Link>, Error> {
        if let Some(link) = self.working_link() {
            return Ok(link);
        }
        let _recovering = lock(&self.recovery);
        // Another thread may have done it meanwhile.
        if let Some(link) = self.working_link() {
            return Ok(link);
        }
        self.rebuild_by_connector()?;
        self.working_link().ok_or_else(not_connected)
    }

    fn working_link(&self) -> Option<Arc<Link>> {
        let link = self.link.read().unwrap_or_else(PoisonError::into_inner);
        link.as_ref()
            .filter(|link| !link.queue().has_failed())
            .cloned()
    }

    fn rebuild_by_connector(&self) -> Result<(), Error> {
        let Some(connector) = &self.connector else {
            return Err(not_connected());
        };
        let exchange = |ours| connector.exchange(ours).map_err(Error::NotConnected);
        self.rebuild(exchange).map(drop)
    }

    /// The caller holds the lock of `recovery`.
    fn rebuild(
        &self,
        peer: impl FnOnce(QpAddress) -> Result<QpAddress, Error>,
    ) -> Result<QpAddress, Error> {
        let failed = self
            .link
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(failed) = failed {
            failed.queue().give_up();
            tracing::info!(device = self.domain.device().name(), "connection given up");
        }
        self.domain.device().check_port()?;
        let link = Link::new(&self.domain, &self.config)?;
        let ours = link.address();
        link.connect(&peer(ours)?, &self.config)?;
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(link));
        self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(ours)
    }
}

fn not_connected() -> Error {
    Error::NotConnected(io::Error::new(
        io::ErrorKind::NotConnected,
        "this end waits for the peer to connect",
    ))
}
