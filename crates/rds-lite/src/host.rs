//! A host: the protocol core, driven over a fabric.

mod builder;
mod crowd;
mod drive;
mod estates;
mod links;
mod memory;
mod shutdown;
mod signal;
#[cfg(test)]
mod tests;
mod timer;

pub use builder::{BuildError, Driving, HostBuilder};
pub use shutdown::ShutdownReport;

pub(crate) use signal::{Place, SocketSignals};

use crate::fabric::Fabric;
use crate::proto::{BindError, ConnectionInfo, Core, Counters, MessageInfo, SockId, SocketInfo};
use crate::socket::Socket;
use links::Links;
use memory::Memory;
use mr_core::{Clock, PoolStats, Time};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// One host of an RDS network. Clones are the same host.
///
/// All methods may be called from any thread. When the last clone and the last socket are gone the
/// host shuts down.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
    /// Shuts the host down.
    _keeper: Arc<Keeper>,
}

/// What all handles share.
pub(crate) struct Shared {
    pub(crate) core: Mutex<Core>,
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: Memory,
    pub(crate) estates: Arc<estates::Estates>,
    pub(crate) buffers: Arc<crate::proto::BufPool>,
    pub(crate) links: Links,
    pub(crate) signals: RwLock<HashMap<SockId, Arc<SocketSignals>>>,
    pub(crate) crowd: Arc<crowd::Crowd>,
    pub(crate) timer: timer::Timer,
    pub(crate) driving: Driving,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) tallies: Tallies,
}

/// Counters of what happens outside of the core.
#[derive(Default)]
pub(crate) struct Tallies {
    pub(crate) copied_in: AtomicU64,
    pub(crate) copied_out: AtomicU64,
    pub(crate) congested_waits: AtomicU64,
    pub(crate) stalls: AtomicU64,
}

/// Ends the host when nobody has it any more.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
}

impl Host {
    /// Starts to build a host on `fabric`.
    pub fn builder(fabric: impl Fabric) -> HostBuilder {
        HostBuilder::new(Arc::new(fabric))
    }

    /// Binds a socket. Port 0 stands for any port that is free.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn bind(&self, addr: SocketAddr) -> Result<Socket, BindError> {
        let sink: Arc<dyn crate::fabric::Sink> = self.shared.clone();
        let listened = self.shared.fabric.listen(addr.ip(), Arc::downgrade(&sink));
        listened.map_err(|reason| BindError::NotLocal(addr.ip(), reason))?;
        let (id, bound) = {
            let mut core = self.shared.lock();
            let id = core.bind(addr)?;
            (id, core.address(id).unwrap_or(addr))
        };
        let signals = Arc::new(SocketSignals::new(&self.shared.crowd));
        self.shared
            .signals
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, Arc::clone(&signals));
        Ok(Socket::new(self.clone(), id, bound, signals))
    }

    /// What has happened so far, under the kernel's names.
    pub fn counters(&self) -> Counters {
        let mut counters = self.shared.lock().counters();
        let tallies = &self.shared.tallies;
        counters.copy_from_user = tallies.copied_in.load(Ordering::Relaxed);
        counters.copy_to_user = tallies.copied_out.load(Ordering::Relaxed);
        counters.cong_send_blocked = tallies.congested_waits.load(Ordering::Relaxed);
        counters.lite_stalled = tallies.stalls.load(Ordering::Relaxed);
        counters
    }

    /// All sockets.
    pub fn sockets(&self) -> Vec<SocketInfo> {
        self.shared.lock().socket_infos()
    }

    /// All connections.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.shared.lock().connection_infos()
    }

    /// What the pool of regions has done and holds; `None` without one.
    pub fn pool_stats(&self) -> Option<PoolStats> {
        self.shared.memory.regions().map(|regions| regions.stats())
    }

    /// Keys that the pool gave out while an earlier use of theirs could still be honoured: 0, or a
    /// peer with an old cookie reaches memory that it was never given.
    pub fn keys_reissued_while_stale(&self) -> u64 {
        self.shared.memory.reissued()
    }

    /// All messages in queues.
    pub fn messages(&self) -> Vec<MessageInfo> {
        self.shared.lock().message_infos()
    }

    /// Bytes of received messages that are queued or held by the application right now.
    pub fn receive_memory(&self) -> usize {
        self.shared.buffers.in_use()
    }

    /// Does what is due, and says when to come again: what the timer thread does, for a host that is
    /// [driven by hand](Driving::Manual).
    pub fn poll(&self) -> Option<Time> {
        self.shared.poll()
    }

    /// Shuts the host down: sends nothing more, refuses everything, kills all released keys. Returns
    /// within [`Config::shutdown_timeout`](crate::proto::Config::shutdown_timeout), whatever the fabric
    /// and the pool's backend do, and says what is left behind; but under
    /// [`Driving::Manual`] the pool kills its keys in the caller's thread, and takes as long as its backend does. May
    /// be called again.
    pub fn shut_down(&self) -> ShutdownReport {
        self.shared.shut_down()
    }

    pub(crate) fn now(&self) -> Time {
        self.shared.clock.now()
    }
}

impl Shared {
    /// The core. A thread that panicked with it in hand cannot have left it half changed in a way
    /// that endangers memory: what owns memory is the pool.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn signals_of(&self, sock: SockId) -> Option<Arc<SocketSignals>> {
        let signals = self.signals.read();
        let signals = signals.unwrap_or_else(PoisonError::into_inner);
        signals.get(&sock).map(Arc::clone)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let report = self.shared.shut_down();
        if !report.is_complete() {
            tracing::warn!(?report, "the end of a host has left something behind");
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("fabric", &self.shared.fabric.name())
            .finish_non_exhaustive()
    }
}
