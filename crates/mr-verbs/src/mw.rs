//! Memory windows, of both types.

use crate::device::report_leak;
use crate::sys::{self, WindowType};
use crate::{Domain, Errno, Error};
use mr_core::RemoteKey;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A memory window. Freeing it unbinds it, whatever state it and its queue pair are in: the last
/// resort when a key cannot be killed in any other way.
#[derive(Debug)]
pub(crate) struct Window {
    raw: sys::Mw,
    domain: Arc<Domain>,
}

impl Window {
    pub(crate) fn new(domain: &Arc<Domain>, kind: WindowType) -> Result<Self, Error> {
        // SAFETY: the domain lives as long as the window, which holds on to it.
        let raw = unsafe { sys::alloc_mw(domain.raw(), kind) }
            .map_err(|errno| Error::system("allocating a memory window", errno))?;
        domain.population().windows.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            raw,
            domain: Arc::clone(domain),
        })
    }

    pub(crate) const fn raw(&self) -> sys::Mw {
        self.raw
    }

    /// The key that was bound, or tried, last.
    pub(crate) fn key(&self) -> RemoteKey {
        // SAFETY: the window exists while `self` does.
        RemoteKey::from_bits(unsafe { sys::window_key(self.raw) })
    }

    /// Corrects libibverbs' record of the key.
    pub(crate) fn set_key(&mut self, key: RemoteKey) {
        // SAFETY: the window exists while `self` does, and nobody else binds it meanwhile, since
        // that takes a `&mut` of what owns it.
        unsafe { sys::set_window_key(self.raw, key.bits()) };
    }

    /// Frees the window: on `Ok` no key of it is honoured.
    pub(crate) fn free(self) -> Result<(), (Self, Errno)> {
        let this = ManuallyDrop::new(self);
        match this.dealloc() {
            Ok(()) => {
                // SAFETY: `this` is not used again, so its domain is moved out once.
                drop(unsafe { std::ptr::read(&this.domain) });
                Ok(())
            }
            Err(errno) => Err((ManuallyDrop::into_inner(this), errno)),
        }
    }

    fn dealloc(&self) -> Result<(), Errno> {
        // SAFETY: the window exists, and `free` and `drop`, which call this, see to it that it is
        // not used after a success.
        unsafe { sys::dealloc_mw(self.raw) }?;
        self.domain
            .population()
            .windows
            .fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Err(errno) = self.dealloc() {
            report_leak("memory window", errno);
            std::mem::forget(Arc::clone(&self.domain));
        }
    }
}
