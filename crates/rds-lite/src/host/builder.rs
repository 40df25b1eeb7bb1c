//! How a host comes to be.

use crate::fabric::{Fabric, Sink};
use crate::host::links::Links;
use crate::host::memory::Memory;
use crate::host::timer::Timer;
use crate::host::{Host, Keeper, Shared, Tallies};
use crate::proto::{Config, ConfigError, Core};
use crate::rdma::Regions;
use mr_core::{Clock, SystemClock};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock, Weak};

/// Who calls the host when something is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driving {
    /// A thread of the host; calls may block.
    #[default]
    Threads,
    /// The user, through [`Host::poll`]: nothing happens in between, and no call blocks. For
    /// simulations in virtual time.
    Manual,
}

/// A host in the making.
pub struct HostBuilder {
    fabric: Arc<dyn Fabric>,
    clock: Option<Arc<dyn Clock>>,
    config: Config,
    regions: Option<Arc<dyn Regions>>,
    driving: Driving,
}

/// A host that could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting cannot hold.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The timer thread could not be started.
    #[error("the timer thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
}

impl HostBuilder {
    pub(crate) fn new(fabric: Arc<dyn Fabric>) -> Self {
        Self {
            fabric,
            clock: None,
            config: Config::default(),
            regions: None,
            driving: Driving::default(),
        }
    }

    /// Changes any of the settings.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Takes regions from this pool; without one there is no RDMA. The buffers of its leases come
    /// back through the sockets, so nobody else may reclaim from it.
    #[must_use]
    pub fn regions(mut self, regions: impl Regions) -> Self {
        self.regions = Some(Arc::new(regions));
        self
    }

    /// Takes the time from `clock`; without this, from a [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Says who calls the host when something is due.
    #[must_use]
    pub fn driving(mut self, driving: Driving) -> Self {
        self.driving = driving;
        self
    }

    /// Builds the host.
    ///
    /// # Errors
    ///
    /// A setting cannot hold, or its thread could not be started.
    pub fn build(self) -> Result<Host, BuildError> {
        let shutdown_timeout = self.config.shutdown_timeout;
        let core = Core::new(self.config, self.fabric.kind())?;
        let buffers = Arc::clone(core.buffers());
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let (fabric, regions, driving) = (self.fabric, self.regions, self.driving);
        let shared = Arc::new_cyclic(|weak: &Weak<Shared>| {
            let sink: Weak<dyn Sink> = weak.clone();
            Shared {
                core: Mutex::new(core),
                fabric,
                clock,
                memory: Memory::new(regions, sink),
                estates: Arc::default(),
                buffers,
                links: Links::default(),
                signals: RwLock::new(HashMap::new()),
                crowd: Arc::default(),
                timer: Timer::default(),
                driving,
                shutdown_timeout,
                tallies: Tallies::default(),
            }
        });
        if driving == Driving::Threads {
            let started = shared.timer.start(Arc::downgrade(&shared));
            started.map_err(BuildError::Thread)?;
        }
        let keeper = Arc::new(Keeper {
            shared: Arc::clone(&shared),
        });
        Ok(Host {
            shared,
            _keeper: keeper,
        })
    }
}
