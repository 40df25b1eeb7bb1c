//! Registrations.

use crate::device::report_leak;
use crate::limits::registration_error;
use crate::{Domain, Errno, Error, sys};
use mr_core::{Access, Keys, LocalKey, RemoteKey};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Registered memory. Dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct Registration {
    raw: sys::Mr,
    domain: Arc<Domain>,
}

impl Registration {
    /// Registers the `len` bytes at `start`.
    ///
    /// # Safety
    ///
    /// Until the registration has ended the memory must stay valid, and whoever touches it must
    /// reckon with what `flags` allow the device and peers to do to it.
    pub(crate) unsafe fn new(
        domain: &Arc<Domain>,
        start: NonNull<u8>,
        len: usize,
        flags: u32,
    ) -> Result<Self, Error> {
        let iova = start.as_ptr().expose_provenance() as u64;
        // SAFETY: the caller's promise.
        unsafe { Self::new_at(domain, start, len, iova, flags) }
    }

    /// The same, but peers name the first byte by `iova`, which must be as far into a page.
    ///
    /// # Safety
    ///
    /// As [`new`](Self::new).
    pub(crate) unsafe fn new_at(
        domain: &Arc<Domain>,
        start: NonNull<u8>,
        len: usize,
        iova: u64,
        flags: u32,
    ) -> Result<Self, Error> {
        // SAFETY: the domain lives as long as the registration, which holds on to it; the memory
        // is the caller's promise.
        let raw = unsafe { sys::reg_mr(domain.raw(), start.as_ptr(), len, iova, flags) }
            .map_err(|errno| registration_error(len, errno))?;
        domain
            .population()
            .registrations
            .fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            raw,
            domain: Arc::clone(domain),
        })
    }

    pub(crate) const fn raw(&self) -> sys::Mr {
        self.raw
    }

    pub(crate) fn keys(&self) -> Keys {
        // SAFETY: registered until `self` is gone.
        let (local, remote) = unsafe { sys::mr_keys(self.raw) };
        Keys {
            local: LocalKey::from_bits(local),
            remote: RemoteKey::from_bits(remote),
        }
    }

    /// Ends the registration: on `Ok` neither device nor peers reach the memory any more.
    pub(crate) fn free(self) -> Result<(), (Self, Errno)> {
        let this = ManuallyDrop::new(self);
        match this.dereg() {
            Ok(()) => {
                // SAFETY: `this` is not used again, so its domain is moved out once.
                drop(unsafe { std::ptr::read(&this.domain) });
                Ok(())
            }
            Err(errno) => Err((ManuallyDrop::into_inner(this), errno)),
        }
    }

    fn dereg(&self) -> Result<(), Errno> {
        // SAFETY: registered, and `free` and `drop`, which call this, see to it that it is not
        // used after a success.
        unsafe { sys::dereg_mr(self.raw) }?;
        self.domain
            .population()
            .registrations
            .fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(errno) = self.dereg() {
            report_leak("registration", errno);
            // The memory may still be reached by the device: what the registration holds on to
            // must not go either.
            std::mem::forget(Arc::clone(&self.domain));
        }
    }
}

/// libibverbs' flags for a registration with this access. What a peer may write, libibverbs wants
/// to be writable locally, too.
pub(crate) fn registration_flags(access: Access) -> u32 {
    let local = if access.lets_anyone_write() {
        sys::access::LOCAL_WRITE
    } else {
        0
    };
    local | remote_flags(access)
}

/// libibverbs' flags for what a peer may do.
pub(crate) fn remote_flags(access: Access) -> u32 {
    [
        (Access::REMOTE_READ, sys::access::REMOTE_READ),
        (Access::REMOTE_WRITE, sys::access::REMOTE_WRITE),
        (Access::REMOTE_ATOMIC, sys::access::REMOTE_ATOMIC),
    ]
    .into_iter()
    .filter(|(of, _)| access.contains(*of))
    .fold(0, |flags, (_, flag)| flags | flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_may_write_is_writable_locally() {
        assert_eq!(registration_flags(Access::empty()), 0);
        assert_eq!(
            registration_flags(Access::REMOTE_READ),
            sys::access::REMOTE_READ
        );
        assert_eq!(
            registration_flags(Access::REMOTE_WRITE),
            sys::access::REMOTE_WRITE | sys::access::LOCAL_WRITE
        );
        assert_eq!(
            registration_flags(Access::LOCAL_WRITE),
            sys::access::LOCAL_WRITE
        );
        assert_eq!(remote_flags(Access::all()), 0b1110);
    }
}
