//! Protection domains: what belongs together.

use crate::device::report_leak;
use crate::{Device, Error, sys};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain of a device: the root of everything that this crate makes.
///
/// What is made in it holds on to it, so it goes last, by itself; [`close`](Self::close) says
/// whether it went.
#[derive(Debug)]
pub struct Domain {
    pd: sys::Pd,
    device: Arc<Device>,
    population: Population,
    closed: bool,
}

/// How many objects of each kind exist in a domain.
#[derive(Debug, Default)]
pub(crate) struct Population {
    pub(crate) windows: AtomicU32,
    pub(crate) registrations: AtomicU32,
    pub(crate) queue_pairs: AtomicU32,
}

impl fmt::Display for Population {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |of: &AtomicU32| of.load(Ordering::Relaxed);
        write!(
            f,
            "{} windows, {} registrations and {} queue pairs are there",
            count(&self.windows),
            count(&self.registrations),
            count(&self.queue_pairs)
        )
    }
}

impl Domain {
    /// Makes a domain on this device.
    ///
    /// # Errors
    ///
    /// The device has no more.
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        // SAFETY: the device is open while `device` lives, and the domain holds on to it.
        let pd = unsafe { sys::alloc_pd(device.context()) }
            .map_err(|errno| Error::system("allocating a protection domain", errno))?;
        Ok(Arc::new(Self {
            pd,
            device: Arc::clone(device),
            population: Population::default(),
            closed: false,
        }))
    }

    /// The device.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Frees the domain.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] says what is still in it; the domain then goes when that is gone. A system
    /// error says that it is leaked.
    pub fn close(self: Arc<Self>) -> Result<(), Error> {
        let mut domain = Arc::try_unwrap(self).map_err(|shared| Error::Busy {
            what: "the protection domain",
            bound: shared.population.to_string(),
        })?;
        domain.closed = true;
        // SAFETY: nobody else holds the domain, so nothing made in it exists; `closed` keeps
        // `drop` from freeing it again.
        unsafe { sys::dealloc_pd(domain.pd) }.map_err(|errno| Error::System {
            what: "freeing the protection domain",
            errno,
        })
    }

    pub(crate) const fn raw(&self) -> sys::Pd {
        self.pd
    }

    pub(crate) const fn population(&self) -> &Population {
        &self.population
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        // SAFETY: whatever is made in the domain holds an `Arc` of it, so nothing of it is left.
        if let Err(errno) = unsafe { sys::dealloc_pd(self.pd) } {
            report_leak("protection domain", errno);
        }
    }
}
