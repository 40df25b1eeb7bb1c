//! Registration: `ibv_reg_mr` for each mapping, `ibv_dereg_mr` for each invalidation.

use crate::mr::{Registration, registration_flags};
use crate::{Domain, Error};
use mr_core::{
    Access, Addressing, BatchError, Capabilities, DeallocError, KeyTag, Keys, MemoryRange,
    MrBackend,
};
use std::sync::Arc;

/// Regions that are registered anew for each mapping.
///
/// Works on every device, with any memory, and for every connection of the domain. Each mapping
/// pins its pages and each invalidation unpins them, by one system call each: by far the dearest
/// of the three. The HCA chooses the whole key.
#[derive(Debug)]
pub struct RegistrationBackend {
    domain: Arc<Domain>,
    addressing: Addressing,
    /// Held by each region.
    home: Arc<()>,
}

/// A region of a [`RegistrationBackend`].
#[derive(Debug)]
pub struct RegistrationRegion {
    registration: Option<Registration>,
    home: Arc<()>,
}

impl RegistrationBackend {
    /// Regions that a call of `invalidate` takes. They go one by one, so more would gain nothing.
    const MAX_BATCH: usize = 64;

    /// A backend in this domain. Peers name a buffer's bytes by their addresses in this process.
    pub fn new(domain: &Arc<Domain>) -> Self {
        Self::with_addressing(domain, Addressing::Virtual)
    }

    /// A backend whose keys count from the start of the buffer's first page, as RDS has them: a lease
    /// says by [`remote_addr`](mr_core::Lease::remote_addr) where in it the buffer begins. Costs the
    /// same.
    pub fn zero_based(domain: &Arc<Domain>) -> Self {
        Self::with_addressing(domain, Addressing::InPage)
    }

    fn with_addressing(domain: &Arc<Domain>, addressing: Addressing) -> Self {
        Self {
            domain: Arc::clone(domain),
            addressing,
            home: Arc::new(()),
        }
    }

    /// The domain.
    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Ends the backend.
    ///
    /// # Errors
    ///
    /// Gives itself back with [`Error::Busy`] while regions of it are there.
    pub fn close(self) -> Result<(), (Self, Error)> {
        match Arc::strong_count(&self.home) - 1 {
            0 => Ok(()),
            left => {
                let error = Error::Busy {
                    what: "the registration backend",
                    bound: format!("{left} regions of it are there"),
                };
                Err((self, error))
            }
        }
    }

    fn check_home(&self, region: &RegistrationRegion) -> Result<(), Error> {
        if Arc::ptr_eq(&region.home, &self.home) {
            Ok(())
        } else {
            Err(Error::ForeignRegion)
        }
    }

    fn kill(&self, region: &mut RegistrationRegion) -> Result<(), Error> {
        self.check_home(region)?;
        let Some(registration) = region.registration.take() else {
            return Ok(());
        };
        registration.free().map_err(|(registration, errno)| {
            region.registration = Some(registration);
            Error::NotKilled {
                what: "a registration",
                errno,
            }
        })
    }
}

// SAFETY: an invalidation is reported only after `ibv_dereg_mr` has succeeded, which waits for the
// HCA to let go of the memory; a registration that does not end is kept and reported.
unsafe impl MrBackend for RegistrationBackend {
    type Region = RegistrationRegion;
    type Error = Error;

    fn capabilities(&self) -> Capabilities {
        let limits = self.domain.device().limits();
        let mut capabilities =
            Capabilities::new(limits.max_registrations.max(1), limits.max_registration);
        capabilities.max_batch = Self::MAX_BATCH;
        capabilities.addressing = self.addressing;
        capabilities
    }

    fn alloc(&self) -> Result<RegistrationRegion, Error> {
        Ok(RegistrationRegion {
            registration: None,
            home: Arc::clone(&self.home),
        })
    }

    fn map(
        &self,
        region: &mut RegistrationRegion,
        memory: MemoryRange<'_>,
        access: Access,
        _tag: KeyTag,
    ) -> Result<Keys, Error> {
        self.check_home(region)?;
        if region.registration.is_some() {
            return Err(Error::Busy {
                what: "the region",
                bound: "its previous registration is there".to_owned(),
            });
        }
        let len = usize::try_from(memory.len()).unwrap_or(usize::MAX);
        let flags = registration_flags(access);
        let (start, first) = (
            memory.start(),
            self.capabilities().remote_addr(memory.addr()),
        );
        // SAFETY: the maker of the range (the pool, in safe code) keeps the memory, and keeps
        // others from it, until `invalidate` has said that the key is dead. That is said only after
        // the registration has ended; a registration that does not end is never given up.
        let registration = unsafe { Registration::new_at(&self.domain, start, len, first, flags) }?;
        let keys = registration.keys();
        region.registration = Some(registration);
        Ok(keys)
    }

    fn invalidate(&self, batch: &mut [&mut RegistrationRegion]) -> Result<(), BatchError<Error>> {
        let results: Vec<_> = batch.iter_mut().map(|region| self.kill(region)).collect();
        if results.iter().all(Result::is_ok) {
            Ok(())
        } else {
            Err(BatchError::each(results))
        }
    }

    fn dealloc(
        &self,
        region: RegistrationRegion,
    ) -> Result<(), DeallocError<RegistrationRegion, Error>> {
        let error = match self.check_home(&region) {
            Err(error) => error,
            Ok(()) if region.registration.is_some() => Error::Busy {
                what: "the region",
                bound: "its registration is there".to_owned(),
            },
            Ok(()) => return Ok(()),
        };
        Err(DeallocError { region, error })
    }
}
