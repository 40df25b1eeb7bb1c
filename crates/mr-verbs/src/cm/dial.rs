//! Connecting to a listener.

use crate::cm::config::{ConnectionConfig, MAX_REQUEST_DATA};
use crate::cm::connection::{Connection, Inner};
use crate::cm::error::{DialError, RejectReason};
use crate::cm::id::{CmId, Waited, millis_until};
use crate::cm::poller::Poller;
use crate::cm::waker::{Waker, deadline};
use crate::sys::cm::{self as sys, EventKind, RawEvent, errno_of};
use crate::{Domain, Errno, Error};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whom to connect to, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Dial<'d> {
    /// The address of this end, which must be one of the domain's device.
    pub local: Ipv4Addr,
    /// The address of the listener.
    pub remote: SocketAddrV4,
    /// What the listener gets with the request, at most [`MAX_REQUEST_DATA`] bytes.
    pub private_data: &'d [u8],
    /// How long all of it may take.
    pub timeout: Duration,
}

impl Dial<'_> {
    /// The end that the connection manager is asked for: any port of the address.
    const fn source(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.local, 0)
    }
}

/// A connection that was made.
#[derive(Debug)]
pub struct Dialled {
    /// Its sending end.
    pub connection: Connection,
    /// Its receiving end.
    pub poller: Poller,
    /// What the listener has answered, padded with zeros to [`MAX_REPLY_DATA`] bytes.
    ///
    /// [`MAX_REPLY_DATA`]: crate::cm::MAX_REPLY_DATA
    pub private_data: Vec<u8>,
}

/// Connects. Blocks until there is an answer, the time is over, or `cancel` is woken.
///
/// Whoever must know the moment at which the listener can hear of it takes the steps one by one: [`prepare`],
/// [`Prepared::request`], [`Requested::answer`].
///
/// # Errors
///
/// See [`DialError`]. The listener may have accepted meanwhile, and then hears that it was in vain.
pub fn dial(
    domain: &Arc<Domain>,
    wanted: &Dial<'_>,
    config: &ConnectionConfig,
    cancel: &Waker,
) -> Result<Dialled, DialError> {
    prepare(domain, wanted, config, cancel)?
        .request()?
        .answer(cancel)
}

/// A dial that has its way and its queue pair. The listener has not heard of it.
#[derive(Debug)]
pub struct Prepared<'d> {
    inner: Inner,
    wanted: Dial<'d>,
    deadline: Instant,
}

/// A dial whose request is on its way.
#[derive(Debug)]
pub struct Requested {
    inner: Inner,
    deadline: Instant,
}

/// Finds the way to a listener, and makes what it takes to connect to it. Blocks until that is done, the time is over,
/// or `cancel` is woken.
///
/// # Errors
///
/// See [`DialError`]. No listener has heard of it.
pub fn prepare<'d>(
    domain: &Arc<Domain>,
    wanted: &Dial<'d>,
    config: &ConnectionConfig,
    cancel: &Waker,
) -> Result<Prepared<'d>, DialError> {
    check_private_data(wanted.private_data, MAX_REQUEST_DATA)?;
    let deadline = deadline(wanted.timeout);
    let id = CmId::new()?;
    let local = wanted.source();
    // SAFETY: the identifier exists while `id` does.
    unsafe { sys::resolve_addr(id.raw(), local, wanted.remote, millis_until(deadline)) }
        .map_err(|errno| unreachable(errno, local))?;
    await_event(&id, deadline, cancel, EventKind::AddrResolved)?;
    // SAFETY: as above.
    unsafe { sys::resolve_route(id.raw(), millis_until(deadline)) }
        .map_err(|errno| unreachable(errno, local))?;
    await_event(&id, deadline, cancel, EventKind::RouteResolved)?;
    Ok(Prepared {
        inner: Inner::new(domain, config, id)?,
        wanted: *wanted,
        deadline,
    })
}

impl Prepared<'_> {
    /// Sends the request, and does not wait for anything.
    ///
    /// # Errors
    ///
    /// It could not be sent.
    pub fn request(self) -> Result<Requested, DialError> {
        let Self {
            inner,
            wanted,
            deadline,
        } = self;
        let parameters = inner.parameters(None, wanted.private_data);
        // SAFETY: the identifier exists while `inner` does.
        unsafe { sys::connect(inner.id.raw(), &parameters) }
            .map_err(|errno| unreachable(errno, wanted.source()))?;
        Ok(Requested { inner, deadline })
    }
}

impl Requested {
    /// Blocks until there is an answer, the time of the dial is over, or `cancel` is woken.
    ///
    /// # Errors
    ///
    /// See [`DialError`]. The listener may have accepted meanwhile, and then hears that it was in vain.
    pub fn answer(self, cancel: &Waker) -> Result<Dialled, DialError> {
        let Self { inner, deadline } = self;
        let answer = await_event(&inner.id, deadline, cancel, EventKind::ConnectResponse)?;
        inner.make_ready(&answer)?;
        // SAFETY: the identifier exists while `inner` does.
        unsafe { sys::establish(inner.id.raw()) }
            .map_err(|errno| Error::system("answering a reply", errno))?;
        let (connection, poller) = Poller::pair(inner, true);
        Ok(Dialled {
            connection,
            poller,
            private_data: answer.private_data,
        })
    }
}

/// Waits for the event that the next step needs.
fn await_event(
    id: &CmId,
    deadline: Instant,
    cancel: &Waker,
    wanted: EventKind,
) -> Result<RawEvent, DialError> {
    loop {
        let event = match id.wait(deadline, cancel)? {
            Waited::Event(event) => event,
            Waited::TimedOut => return Err(DialError::TimedOut),
            Waited::Woken => return Err(DialError::Cancelled),
        };
        if event.kind == wanted {
            return Ok(event);
        }
        if let Some(error) = failure(event) {
            return Err(error);
        }
    }
}

/// What an event says of a dial that has failed; `None` if it does not say that.
fn failure(event: RawEvent) -> Option<DialError> {
    match event.kind {
        EventKind::Rejected => Some(DialError::Rejected {
            reason: RejectReason::from_raw(event.status),
            private_data: event.private_data,
        }),
        EventKind::AddrError
        | EventKind::RouteError
        | EventKind::ConnectError
        | EventKind::Unreachable => Some(DialError::Unreachable(errno_of(event.status))),
        EventKind::DeviceRemoval | EventKind::Disconnected => {
            Some(DialError::Unreachable(Errno::ENODEV))
        }
        _ => None,
    }
}

/// A call that has failed at once.
fn unreachable(errno: Errno, local: SocketAddrV4) -> DialError {
    match errno {
        Errno::ENODEV | Errno::EADDRNOTAVAIL => DialError::Failed(Error::NoDeviceAt {
            addr: *local.ip(),
            errno,
        }),
        Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ETIMEDOUT => {
            DialError::Unreachable(errno)
        }
        errno => DialError::Failed(Error::system("connecting", errno)),
    }
}

pub(crate) const fn check_private_data(data: &[u8], max: usize) -> Result<(), Error> {
    if data.len() > max {
        return Err(Error::TooLong {
            len: data.len() as u64,
            max: max as u64,
        });
    }
    Ok(())
}
