//! Memory windows of type 2: bound on a connection's queue pair, usable by its peer alone.

mod batch;

use crate::Error;
use crate::arena::Arena;
use crate::bound::{self, Arenas, Hold};
use crate::endpoint::Endpoint;
use crate::kill::Kill;
use crate::link::Link;
use crate::mw::Window;
use crate::peer_keys::KeyCell;
use crate::post::Work;
use crate::sys::{Mw, Target, WindowType};
use batch::Job;
use mr_core::{
    Access, BatchError, Capabilities, ChainedMap, DeallocError, KeyScope, KeyTag, Keys, MapJob,
    MemoryRange, MrBackend, RemoteKey,
};
use std::sync::Arc;

/// Regions that are memory windows of type 2, over memory of arenas, for the peer of one
/// connection.
///
/// The tag of a key is the caller's choice. A batch of invalidations is one chain of LOCAL_INV
/// with one completion; the peer can invalidate a key itself (SEND_WITH_INV), which costs nothing
/// here: see [`Endpoint::receive`].
///
/// [`map`](MrBackend::map) returns when the window is bound.
/// [`map_chained`](ChainedMap::map_chained) sends the peer a message right behind the bind, in one
/// doorbell, and waits for neither. The same of a batch ([`map_batch`](MrBackend::map_batch),
/// [`map_batch_chained`](ChainedMap::map_batch_chained)) makes chains as long as the send queue takes, with
/// a doorbell for each; a chain that fails costs the queue pair, and all its keys are dead.
///
/// When a bind or an invalidation fails, or the peer has a request refused, the queue pair is lost.
/// Its keys are out of use at once; the windows of leases are freed as the leases end; the next map
/// connects anew.
#[derive(Debug)]
pub struct Window2Backend {
    endpoint: Arc<Endpoint>,
    arenas: Arenas,
    /// Held by each region.
    home: Arc<()>,
}

/// A region of a [`Window2Backend`].
#[derive(Debug)]
pub struct Window2Region {
    pub(crate) window: Option<Window>,
    pub(crate) bound: Option<Bound>,
    cell: Arc<KeyCell>,
    endpoint: Arc<Endpoint>,
    home: Arc<()>,
}

/// Gives the message that tells the peer of a key.
type Request<'r> = dyn FnMut(Keys) -> Vec<u8> + 'r;

/// A bind that can be posted.
struct Ready {
    keys: Keys,
    window: Mw,
    target: Target,
    /// What goes behind it.
    message: Option<Vec<u8>>,
    /// Until the region has it.
    hold: Option<Hold>,
}

impl Ready {
    const fn bind(&self) -> Work<'_> {
        Work::Bind {
            window: self.window,
            key: self.keys.remote.bits(),
            target: self.target,
        }
    }
}

/// A window that may honour a key.
pub(crate) struct Bound {
    pub(crate) key: RemoteKey,
    /// Kept until the window is unbound or freed: the queue pair goes after its windows.
    pub(crate) link: Arc<Link>,
    _arena: Option<Hold>,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bound({}, {:?})", self.key, self._arena)
    }
}

impl Window2Backend {
    const WHAT: &'static str = "binding a window of type 2";

    /// Regions that a call of `invalidate` takes: it splits the chain to what the queue takes, and
    /// waits for one completion at the end.
    const MAX_BATCH: usize = 4096;

    /// Windows with a fresh random tag that are tried until one differs from the tag wanted.
    const TAG_TRIES: usize = 8;

    /// A backend that binds windows over `arenas`, which must be of the endpoint's domain, for the
    /// endpoint's peer.
    ///
    /// # Errors
    ///
    /// The device has no windows of type 2B.
    pub fn new(
        endpoint: &Arc<Endpoint>,
        arenas: impl IntoIterator<Item = Arena>,
    ) -> Result<Self, Error> {
        let device = endpoint.domain().device();
        if !bound::has_windows(device.attr(), WindowType::Two) {
            return Err(device.lacks("memory windows of type 2B"));
        }
        device.warn_of_windows();
        Ok(Self {
            endpoint: Arc::clone(endpoint),
            arenas: Arenas::new(arenas),
            home: Arc::new(()),
        })
    }

    /// The connection.
    pub const fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Ends the backend and lets go of its arenas and its endpoint.
    ///
    /// # Errors
    ///
    /// Gives itself back with [`Error::Busy`] while windows of it are there.
    pub fn close(self) -> Result<(), (Self, Error)> {
        match Arc::strong_count(&self.home) - 1 {
            0 => Ok(()),
            left => {
                let error = Error::Busy {
                    what: "the window backend",
                    bound: format!("{left} windows of type 2 are there"),
                };
                Err((self, error))
            }
        }
    }

    pub(crate) fn check_home(&self, region: &Window2Region) -> Result<(), Error> {
        if Arc::ptr_eq(&region.home, &self.home) {
            Ok(())
        } else {
            Err(Error::ForeignRegion)
        }
    }

    /// Binds `region` to `memory`; `request` makes the message that goes with it, else the bind is
    /// waited for.
    fn bind(
        &self,
        region: &mut Window2Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: Option<&mut Request<'_>>,
    ) -> Result<Keys, Error> {
        let mut jobs = [MapJob::new(region, memory, access, tag)];
        match request {
            None => self.bind_batch(&mut jobs, None),
            Some(request) => self.bind_batch(&mut jobs, Some(&mut |_, keys| request(keys))),
        }
        let [job] = jobs;
        job.into_answer().unwrap_or(Err(Error::ForeignRegion))
    }

    /// Sees to it that `region` can be bound to `memory`, and makes the message of `request`.
    fn prepare(
        &self,
        region: &mut Window2Region,
        memory: &MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: Option<&mut Request<'_>>,
    ) -> Result<Ready, Error> {
        self.check_home(region)?;
        if region.bound.is_some() {
            return Err(Error::Busy {
                what: "the region",
                bound: "its window is bound".to_owned(),
            });
        }
        let arena = self.arenas.find(memory)?;
        let target = bound::target(arena, memory, access)?;
        let key = region.prepare(tag)?;
        let Some(window) = &region.window else {
            return Err(Error::ForeignRegion);
        };
        let keys = Keys {
            local: arena.local_key(),
            remote: key,
        };
        let message = request.map(|request| request(keys));
        if let Some(message) = &message {
            self.endpoint.check_message(message)?;
        }
        Ok(Ready {
            keys,
            window: window.raw(),
            target,
            message,
            hold: Some(Hold::new(arena)),
        })
    }
}

impl Window2Region {
    /// The HCA is about to be asked to bind.
    fn begin(&mut self, ready: &mut Ready, link: &Arc<Link>) {
        let key = ready.keys.remote;
        self.cell.set_alive(key);
        self.bound = Some(Bound {
            key,
            link: Arc::clone(link),
            _arena: ready.hold.take(),
        });
    }

    /// libibverbs does not follow: unless it is told, it will take the next key for the old.
    fn tell_window(&mut self, key: RemoteKey) {
        if let Some(window) = &mut self.window {
            window.set_key(key);
        }
    }

    /// Sees to it that there is a window, and that its next key can have this tag: an HCA refuses
    /// to bind the key that a window has already.
    fn prepare(&mut self, tag: KeyTag) -> Result<RemoteKey, Error> {
        // Kept until one fits, so that the next one is another.
        let mut unfit = Vec::new();
        loop {
            let key = self.ensure_window()?;
            if key.tag() != tag || unfit.len() == Window2Backend::TAG_TRIES {
                return Ok(key.with_tag(tag));
            }
            self.forget_key();
            unfit.extend(self.window.take());
        }
    }

    /// The key that the window has or had last; that of a new one if there is none.
    fn ensure_window(&mut self) -> Result<RemoteKey, Error> {
        if let Some(window) = &self.window {
            return Ok(window.key());
        }
        let window = Window::new(self.endpoint.domain(), WindowType::Two)?;
        let key = window.key();
        self.endpoint.keys.add(key.index(), &self.cell);
        self.window = Some(window);
        Ok(key)
    }

    /// From here on the peer cannot invalidate a key of this window.
    fn forget_key(&self) {
        if let Some(window) = &self.window {
            self.endpoint.keys.remove(window.key().index(), &self.cell);
        }
    }

    /// Whether the peer has had the HCA invalidate the key.
    pub(crate) fn is_killed_by_peer(&self) -> bool {
        let key = self.bound.as_ref().map(|bound| bound.key);
        key.is_some_and(|key| self.cell.is_killed(key))
    }

    /// The key is dead; the window stays.
    pub(crate) fn unbound(&mut self) {
        self.cell.clear();
        self.bound = None;
    }

    /// Frees the window, which kills its key whatever has become of the queue pair.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        self.forget_key();
        bound::free_window(&mut self.window)?;
        self.unbound();
        Ok(())
    }
}

impl Drop for Window2Region {
    fn drop(&mut self) {
        self.forget_key();
    }
}

// SAFETY: an invalidation is reported only after LOCAL_INV of the key has completed, the HCA has said
// that the peer has invalidated it, or the window was freed; a window of which none of these is known
// counts as bound.
unsafe impl MrBackend for Window2Backend {
    type Region = Window2Region;
    type Error = Error;

    fn capabilities(&self) -> Capabilities {
        let max_regions = self.endpoint.domain().device().limits().max_windows;
        let mut capabilities = Capabilities::new(max_regions, self.arenas.max_bytes());
        capabilities.tag_bits = 8;
        capabilities.remote_invalidate = true;
        capabilities.key_scope = KeyScope::Connection;
        capabilities.max_batch = Self::MAX_BATCH;
        capabilities
    }

    fn alloc(&self) -> Result<Window2Region, Error> {
        let mut region = Window2Region {
            window: None,
            bound: None,
            cell: Arc::default(),
            endpoint: Arc::clone(&self.endpoint),
            home: Arc::clone(&self.home),
        };
        region.ensure_window()?;
        Ok(region)
    }

    fn map(
        &self,
        region: &mut Window2Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, Error> {
        self.bind(region, memory, access, tag, None)
    }

    fn map_batch(&self, batch: &mut [Job<'_>]) {
        self.bind_batch(batch, None);
    }

    fn invalidate(&self, batch: &mut [&mut Window2Region]) -> Result<(), BatchError<Error>> {
        Kill::new(self, batch).run(self.endpoint.config().timeout)
    }

    fn invalidated_by_peer(&self, region: &mut Window2Region) -> bool {
        if self.check_home(region).is_err() {
            return false;
        }
        self.endpoint.look_for_invalidations();
        let killed = region.is_killed_by_peer();
        if killed {
            region.unbound();
        }
        killed
    }

    fn dealloc(&self, mut region: Window2Region) -> Result<(), DeallocError<Window2Region, Error>> {
        let freed = self.check_home(&region).and_then(|()| {
            if region.bound.is_some() {
                return Err(Error::Busy {
                    what: "the region",
                    bound: "its window is bound".to_owned(),
                });
            }
            region.end()
        });
        freed.map_err(|error| DeallocError { region, error })
    }
}

// SAFETY: the same code maps, and what it maps is invalidated as above.
unsafe impl ChainedMap for Window2Backend {
    /// At most [`EndpointConfig::message_bytes`](crate::EndpointConfig::message_bytes).
    type Request = Vec<u8>;

    fn map_chained(
        &self,
        region: &mut Window2Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: &mut dyn FnMut(Keys) -> Vec<u8>,
    ) -> Result<Keys, Error> {
        self.bind(region, memory, access, tag, Some(request))
    }

    fn map_batch_chained(
        &self,
        batch: &mut [Job<'_>],
        request: &mut dyn FnMut(usize, Keys) -> Vec<u8>,
    ) {
        self.bind_batch(batch, Some(request));
    }
}

#[cfg(test)]
mod tests;
