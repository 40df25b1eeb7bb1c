//! RDMA devices: finding, opening and questioning them.

use crate::error::{Errno, Error};
use crate::gid::{self, Gid};
use crate::sys;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The names of all RDMA devices.
///
/// # Errors
///
/// [`Error::NoDevice`] if there is none: the answer is never an empty list.
pub fn devices() -> Result<Vec<String>, Error> {
    list().map(|(_, names)| names)
}

fn list() -> Result<(sys::DeviceList, Vec<String>), Error> {
    let none = |errno| Error::NoDevice {
        wanted: None,
        present: Vec::new(),
        errno,
    };
    let list = sys::DeviceList::get().map_err(|errno| none(Some(errno)))?;
    let names = list.names();
    if names.is_empty() {
        return Err(none(None));
    }
    Ok((list, names))
}

/// An open device, and the port of it that is used.
///
/// Shared by all that is made from it, and closed when the last of those is gone.
#[derive(Debug)]
pub struct Device {
    context: sys::Context,
    name: String,
    port: u8,
    attr: sys::DeviceAttr,
}

/// What a device can do, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Bytes that one registration can have.
    pub max_registration: u64,
    /// Registrations that can exist at once.
    pub max_registrations: u32,
    /// Memory windows that can exist at once.
    pub max_windows: u32,
    /// Work requests that a queue can hold.
    pub max_queue: u32,
    /// Whether there are memory windows of type 1.
    pub windows_1: bool,
    /// Whether there are memory windows of type 2B.
    pub windows_2: bool,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortState {
    /// Carries traffic.
    Active,
    /// Its link is down.
    Down,
    /// On its way up, by libibverbs' number.
    Coming(u32),
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active => f.write_str("active"),
            Self::Down => f.write_str("down"),
            Self::Coming(state) => write!(f, "not yet active (state {state})"),
        }
    }
}

impl Device {
    /// The port that is used.
    const PORT: u8 = 1;

    /// Opens the device of this name, with its first port.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] with the names of those that there are; a system error.
    pub fn open(name: &str) -> Result<Arc<Self>, Error> {
        let (list, present) = list()?;
        match present.iter().position(|present| present == name) {
            Some(place) => Self::open_at(&list, place, name.to_owned()),
            None => Err(Error::NoDevice {
                wanted: Some(name.to_owned()),
                present,
                errno: None,
            }),
        }
    }

    /// Opens the first device there is.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_first() -> Result<Arc<Self>, Error> {
        let (list, mut names) = list()?;
        Self::open_at(&list, 0, names.swap_remove(0))
    }

    fn open_at(list: &sys::DeviceList, place: usize, name: String) -> Result<Arc<Self>, Error> {
        let context = list
            .open(place)
            .map_err(|errno| Error::system("opening the device", errno))?;
        // SAFETY: just opened.
        let attr = match unsafe { sys::query_device(context) } {
            Ok(attr) => attr,
            Err(errno) => {
                // SAFETY: opened above, used by nobody, and not used again.
                let _ = unsafe { sys::close(context) };
                return Err(Error::system("querying the device", errno));
            }
        };
        Ok(Arc::new(Self {
            context,
            name,
            port: Self::PORT,
            attr,
        }))
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the port that is used.
    pub const fn port(&self) -> u8 {
        self.port
    }

    /// What the device can do.
    pub const fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            max_registration: self.attr.max_mr_bytes,
            max_registrations: self.attr.max_mr,
            max_windows: self.attr.max_mw,
            max_queue: self.attr.max_qp_wr,
            windows_1: self.attr.windows_1,
            windows_2: self.attr.windows_2,
        }
    }

    /// Whether this is a software device on top of a network interface (Soft-RoCE, `rxe`), whose
    /// windows do not do all that windows should: see the [crate](crate#soft-roce).
    pub fn is_software(&self) -> bool {
        Path::new("/sys/class/infiniband")
            .join(&self.name)
            .join("parent")
            .exists()
    }

    /// Says what the keys of windows on this device are not good for.
    pub(crate) fn warn_of_windows(&self) {
        if self.is_software() {
            tracing::warn!(
                device = self.name,
                "windows of a software device neither hold their range nor stop a write under way"
            );
        }
    }

    /// The state of the port at this moment.
    ///
    /// # Errors
    ///
    /// The device does not answer.
    pub fn port_state(&self) -> Result<PortState, Error> {
        /// libibverbs' `IBV_PORT_DOWN` and `IBV_PORT_ACTIVE`; `IBV_PORT_NOP` is 0.
        const DOWN: u32 = 1;
        const ACTIVE: u32 = 4;
        Ok(match self.query_port()?.state {
            0 | DOWN => PortState::Down,
            ACTIVE => PortState::Active,
            other => PortState::Coming(other),
        })
    }

    /// The address that connections through the port use: RoCEv2 over IPv4 if there is one.
    ///
    /// # Errors
    ///
    /// The port has none, or the device does not answer.
    pub fn gid(&self) -> Result<Gid, Error> {
        let count = self.query_port()?.gids;
        // SAFETY: the device is open for as long as `self` lives.
        let query = |index| unsafe { sys::query_gid(self.context, self.port, index) };
        gid::choose(&self.name, self.port, count, query).ok_or_else(|| Error::NoGid {
            device: self.name.clone(),
            port: self.port,
        })
    }

    /// Fails unless the port carries traffic.
    pub(crate) fn check_port(&self) -> Result<(), Error> {
        match self.port_state()? {
            PortState::Active => Ok(()),
            state => Err(Error::PortDown {
                device: self.name.clone(),
                port: self.port,
                state: state.to_string(),
            }),
        }
    }

    pub(crate) fn query_port(&self) -> Result<sys::PortAttr, Error> {
        // SAFETY: the device is open for as long as `self` lives.
        unsafe { sys::query_port(self.context, self.port) }
            .map_err(|errno| Error::system("querying the port", errno))
    }

    pub(crate) const fn context(&self) -> sys::Context {
        self.context
    }

    pub(crate) const fn attr(&self) -> &sys::DeviceAttr {
        &self.attr
    }

    pub(crate) fn lacks(&self, what: &'static str) -> Error {
        Error::Unsupported {
            device: self.name.clone(),
            what,
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: whatever was made from the device holds an `Arc` of it, so this is the end.
        if let Err(errno) = unsafe { sys::close(self.context) } {
            report_leak("device", errno);
        }
    }
}

/// Says what a `Drop` could not free. `close` methods return this instead.
pub(crate) fn report_leak(what: &'static str, errno: Errno) {
    tracing::error!(what, %errno, "could not be freed and is leaked");
}
