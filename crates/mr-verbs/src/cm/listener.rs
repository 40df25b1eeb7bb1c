//! Being connected to.

use crate::cm::config::{ConnectionConfig, MAX_REJECT_DATA, MAX_REPLY_DATA};
use crate::cm::connection::{Connection, Inner};
use crate::cm::dial::check_private_data;
use crate::cm::id::{CmId, Waited};
use crate::cm::poller::Poller;
use crate::cm::waker::{Waker, deadline};
use crate::sys::cm::{self as sys, EventKind, RawEvent};
use crate::{Domain, Error};
use std::fmt;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

/// Gets the requests of peers that want to connect to an address.
///
/// Dropping it ends that; what was accepted, and requests that are not answered yet, go on.
pub struct Listener {
    id: CmId,
    domain: Arc<Domain>,
    backlog: u32,
    /// Held by each request.
    open: Arc<()>,
    waker: Waker,
}

/// A peer that wants to connect. Dropping it rejects it.
pub struct Request {
    id: CmId,
    event: RawEvent,
    domain: Arc<Domain>,
    _open: Arc<()>,
}

impl Listener {
    /// Listens at an address of the domain's device; port 0 lets the system choose one. Of requests
    /// that are not answered yet there are at most `backlog`, at least 1: others are rejected.
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceAt`] if the address is none of the device; the port is taken.
    pub fn bind(domain: &Arc<Domain>, addr: SocketAddrV4, backlog: u32) -> Result<Self, Error> {
        let backlog = backlog.max(1);
        let id = CmId::new()?;
        id.bind(addr)?;
        id.check_device(domain.device())?;
        // SAFETY: the identifier exists while `id` does.
        unsafe { sys::listen(id.raw(), backlog) }
            .map_err(|errno| Error::system("listening for connections", errno))?;
        Ok(Self {
            id,
            domain: Arc::clone(domain),
            backlog,
            open: Arc::new(()),
            waker: Waker::new()?,
        })
    }

    /// The address that it listens at.
    pub fn local_addr(&self) -> SocketAddrV4 {
        self.id.addresses().0
    }

    /// Ends [`wait`](Self::wait).
    pub const fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Waits for a request, at most `limit`. `None` if there is none, or the listener was woken.
    ///
    /// # Errors
    ///
    /// The device is gone, or the connection manager fails: nothing more is to be expected.
    pub fn wait(&self, limit: Duration) -> Result<Option<Request>, Error> {
        let deadline = deadline(limit);
        loop {
            let event = match self.id.wait(deadline, &self.waker)? {
                Waited::Event(event) => event,
                Waited::TimedOut | Waited::Woken => return Ok(None),
            };
            match event.kind {
                EventKind::ConnectRequest => {
                    // One that cannot be taken is rejected: the peer may try again.
                    match self.request(event) {
                        Ok(Some(request)) => return Ok(Some(request)),
                        Ok(None) => tracing::debug!("a request too many is rejected"),
                        Err(error) => tracing::warn!(%error, "a request is rejected"),
                    }
                }
                EventKind::DeviceRemoval => {
                    return Err(Error::NoDevice {
                        wanted: Some(self.domain.device().name().to_owned()),
                        present: Vec::new(),
                        errno: None,
                    });
                }
                _ => {}
            }
        }
    }

    fn request(&self, event: RawEvent) -> Result<Option<Request>, Error> {
        let id = CmId::of_request(event.id)?;
        // One of them is the listener's own.
        let open = Arc::strong_count(&self.open) - 1;
        Ok((open < self.backlog as usize).then(|| Request {
            id,
            event,
            domain: Arc::clone(&self.domain),
            _open: Arc::clone(&self.open),
        }))
    }
}

impl Request {
    /// The address that the peer wants to connect to.
    pub fn local_addr(&self) -> SocketAddrV4 {
        self.id.addresses().0
    }

    /// The address of the peer.
    pub fn peer_addr(&self) -> SocketAddrV4 {
        self.id.addresses().1
    }

    /// What the peer has sent with it. The connection manager pads it with zeros to
    /// [`MAX_REQUEST_DATA`](crate::cm::MAX_REQUEST_DATA) bytes, so its length says nothing.
    pub fn private_data(&self) -> &[u8] {
        &self.event.private_data
    }

    /// Accepts, with at most [`MAX_REPLY_DATA`] bytes. Does not wait for the peer:
    /// [`Event::Established`](crate::cm::Event::Established) says that it is ready.
    ///
    /// # Errors
    ///
    /// The peer is rejected without data.
    pub fn accept(
        self,
        config: &ConnectionConfig,
        private_data: &[u8],
    ) -> Result<(Connection, Poller), Error> {
        check_private_data(private_data, MAX_REPLY_DATA)?;
        let inner = Inner::new(&self.domain, config, self.id)?;
        inner.make_ready(&self.event)?;
        let parameters = inner.parameters(Some(&self.event), private_data);
        inner.id.accept(&parameters)?;
        Ok(Poller::pair(inner, false))
    }

    /// Rejects, with at most [`MAX_REJECT_DATA`] bytes.
    ///
    /// # Errors
    ///
    /// The data is too long, and the peer is rejected without; or the peer has given up.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        check_private_data(private_data, MAX_REJECT_DATA)?;
        self.id.reject(private_data)
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("at", &self.local_addr())
            .field("open", &(Arc::strong_count(&self.open) - 1))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("from", &self.peer_addr())
            .field("to", &self.local_addr())
            .finish_non_exhaustive()
    }
}
