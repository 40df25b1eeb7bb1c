//! An identifier of the connection manager, with a channel of its own for its events.

use crate::cm::waker::{Waker, wait_readable};
use crate::device::report_leak;
use crate::sys::cm::{self as sys, Parameters, RawEvent, Tuning};
use crate::{Device, Errno, Error};
use rustix::fd::BorrowedFd;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An identifier. Dropping it ends what it is doing: a request is rejected, a connection
/// disconnected, a listener closed.
#[derive(Debug)]
pub(crate) struct CmId {
    // Goes before its channel: see `drop`.
    id: sys::Id,
    channel: sys::Channel,
}

/// What a wait for an event has ended with.
#[derive(Debug)]
pub(crate) enum Waited {
    Event(RawEvent),
    TimedOut,
    Woken,
}

impl CmId {
    pub(crate) fn new() -> Result<Self, Error> {
        let channel = new_channel()?;
        // SAFETY: the channel exists.
        match unsafe { sys::create_id(channel) } {
            Ok(id) => Ok(Self { id, channel }),
            Err(errno) => {
                // SAFETY: made above, without any identifier.
                unsafe { sys::destroy_channel(channel) };
                Err(Error::system("making a connection identifier", errno))
            }
        }
    }

    /// An identifier that came with a request, moved away from its listener's channel.
    pub(crate) fn of_request(id: sys::Id) -> Result<Self, Error> {
        let moved = new_channel().and_then(|channel| {
            // SAFETY: both exist.
            match unsafe { sys::migrate_id(id, channel) } {
                Ok(()) => Ok(Self { id, channel }),
                Err(errno) => {
                    // SAFETY: made above, without any identifier.
                    unsafe { sys::destroy_channel(channel) };
                    Err(Error::system("moving a connection identifier", errno))
                }
            }
        });
        if moved.is_err() {
            // SAFETY: the identifier is nobody else's, and is not used again.
            if let Err(errno) = unsafe { sys::destroy_id(id) } {
                report_leak("connection identifier", errno);
            }
        }
        moved
    }

    pub(crate) const fn raw(&self) -> sys::Id {
        self.id
    }

    pub(crate) fn bind(&self, addr: SocketAddrV4) -> Result<(), Error> {
        // SAFETY: the identifier exists while `self` does.
        unsafe { sys::bind(self.id, addr) }.map_err(|errno| match errno {
            Errno::ENODEV | Errno::EADDRNOTAVAIL => Error::NoDeviceAt {
                addr: *addr.ip(),
                errno,
            },
            errno => Error::system("binding to an address", errno),
        })
    }

    /// Fails unless the identifier is bound to this device.
    pub(crate) fn check_device(&self, device: &Device) -> Result<(), Error> {
        let (local, _) = self.addresses();
        // SAFETY: as above.
        match unsafe { sys::device_name(self.id) } {
            Some(name) if name == device.name() => Ok(()),
            _ => Err(Error::NoDeviceAt {
                addr: *local.ip(),
                errno: Errno::ENODEV,
            }),
        }
    }

    /// The addresses of this end and of the peer.
    pub(crate) fn addresses(&self) -> (SocketAddrV4, SocketAddrV4) {
        // SAFETY: as above.
        unsafe { sys::addresses(self.id) }
    }

    /// The next event, if there is one.
    pub(crate) fn event(&self) -> Result<Option<RawEvent>, Error> {
        // SAFETY: the channel exists while `self` does.
        unsafe { sys::next_event(self.channel) }
            .map_err(|errno| Error::system("asking for a connection event", errno))
    }

    /// Readable when there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: as above.
        unsafe { sys::channel_fd(self.channel) }
    }

    pub(crate) fn wait(&self, deadline: Instant, waker: &Waker) -> Result<Waited, Error> {
        loop {
            if let Some(event) = self.event()? {
                return Ok(Waited::Event(event));
            }
            if waker.take() {
                return Ok(Waited::Woken);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || wait_readable(&[self.fd(), waker.fd()], left) == 0 {
                return Ok(Waited::TimedOut);
            }
        }
    }

    pub(crate) fn accept(&self, parameters: &Parameters<'_>) -> Result<(), Error> {
        // SAFETY: the identifier exists while `self` does.
        unsafe { sys::accept(self.id, parameters) }
            .map_err(|errno| Error::system("accepting a connection", errno))
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { sys::reject(self.id, private_data) }
            .map_err(|errno| Error::system("rejecting a connection", errno))
    }

    /// Tells the peer that the connection is over. Does nothing if there is none.
    pub(crate) fn disconnect(&self) {
        // SAFETY: as above.
        if let Err(errno) = unsafe { sys::disconnect(self.id) } {
            tracing::debug!(%errno, "not disconnected");
        }
    }

    /// Takes a fresh queue pair so far that receives can be posted.
    pub(crate) fn initialise(&self, qp: crate::sys::Qp) -> Result<(), Error> {
        // SAFETY: both exist.
        unsafe { sys::qp_to_init(self.id, qp) }
            .map_err(|errno| Error::system("initialising a queue pair", errno))
    }

    /// Takes the queue pair to where it receives and sends.
    pub(crate) fn make_ready(&self, qp: crate::sys::Qp, tuning: &Tuning) -> Result<(), Error> {
        // SAFETY: both exist.
        unsafe { sys::qp_to_rts(self.id, qp, tuning) }
            .map_err(|errno| Error::system("connecting a queue pair", errno))
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: the identifier is nobody else's, and is not used again.
        if let Err(errno) = unsafe { sys::destroy_id(self.id) } {
            report_leak("connection identifier", errno);
            return;
        }
        // SAFETY: its only identifier is gone.
        unsafe { sys::destroy_channel(self.channel) };
    }
}

fn new_channel() -> Result<sys::Channel, Error> {
    sys::create_channel().map_err(|errno| match errno {
        Errno::ENODEV | Errno::ENOENT => Error::NoManager { errno },
        errno => Error::system("making an event channel", errno),
    })
}

/// Milliseconds until then, at least one: 0 would be no bound for some calls.
pub(crate) fn millis_until(deadline: Instant) -> u32 {
    let left: Duration = deadline.saturating_duration_since(Instant::now());
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1)
}

impl Device {
    /// Opens the device that connections from this address go through.
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceAt`] if the address belongs to no RDMA device, [`Error::NoManager`] if the
    /// system has no connection manager; as [`open`](Self::open).
    pub fn of_address(ip: Ipv4Addr) -> Result<Arc<Self>, Error> {
        let id = CmId::new()?;
        id.bind(SocketAddrV4::new(ip, 0))?;
        // SAFETY: the identifier exists while `id` does.
        match unsafe { sys::device_name(id.raw()) } {
            Some(name) => Self::open(&name),
            None => Err(Error::NoDeviceAt {
                addr: ip,
                errno: Errno::ENODEV,
            }),
        }
    }
}
