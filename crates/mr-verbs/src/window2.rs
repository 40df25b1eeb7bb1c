//! Memory windows of type 2: bound on a connection's queue pair, usable by its peer alone.

use crate::arena::Arena;
use crate::bound::{self, Arenas, Hold};
use crate::endpoint::Endpoint;
use crate::kill::Kill;
use crate::link::Link;
use crate::mw::Window;
use crate::peer_keys::KeyCell;
use crate::post::Work;
use crate::sys::{Target, WindowType};
use crate::wait::Patience;
use crate::{Error, Status};
use mr_core::{
    Access, BatchError, Capabilities, ChainedMap, DeallocError, KeyScope, KeyTag, Keys,
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
/// doorbell, and waits for neither.
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

/// A window that may honour a key.
pub(crate) struct Bound {
    pub(crate) key: RemoteKey,
    /// Kept until the window is unbound or freed: the queue pair goes after its windows.
    pub(crate) link: Arc<Link>,
    _arena: Hold,
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

    /// Binds `region` to `memory`; `behind` is the message that goes with it, else the bind is
    /// waited for.
    fn map_with(
        &self,
        region: &mut Window2Region,
        memory: &MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        mut behind: Option<&mut dyn FnMut(Keys) -> Vec<u8>>,
    ) -> Result<Keys, Error> {
        self.check_home(region)?;
        if region.bound.is_some() {
            return Err(Error::Busy {
                what: "the region",
                bound: "its window is bound".to_owned(),
            });
        }
        let arena = self.arenas.find(memory)?;
        let target = bound::target(arena, memory, access)?;
        let mut last_chance = false;
        loop {
            let link = self.endpoint.link()?;
            let key = region.prepare(tag)?;
            let keys = Keys {
                local: arena.local_key(),
                remote: key,
            };
            let message = behind.as_mut().map(|message| message(keys));
            if let Some(message) = &message {
                self.endpoint.check_message(message)?;
            }
            // From here on the HCA may honour the key.
            region.cell.set_alive(key);
            region.bound = Some(Bound {
                key,
                link: Arc::clone(&link),
                _arena: Hold::new(arena),
            });
            let Err(error) = self.bind(region, key, target, &link, message.as_deref()) else {
                return Ok(keys);
            };
            region.end()?;
            // That the queue pair was lost since its last use is noticed only now. Nothing of
            // this bind was done: on a new one it may go well.
            let stale = matches!(
                error,
                Error::ConnectionLost {
                    status: Status::Flushed,
                    ..
                }
            );
            if !stale || std::mem::replace(&mut last_chance, true) {
                return Err(error);
            }
        }
    }

    /// Binds many regions, none of them bound, in chains as long as the queue takes, a doorbell
    /// each. Waits for none; what comes next on the connection finds them bound.
    ///
    /// After an error any of them may be bound, or count as such: `invalidate` ends that.
    pub(crate) fn map_many(
        &self,
        many: &mut [(&mut Window2Region, MemoryRange<'_>, KeyTag)],
        access: Access,
    ) -> Result<(), Error> {
        let link = self.endpoint.link()?;
        let queue = link.queue();
        for chain in many.chunks_mut(queue.longest_chain()) {
            let mut works = Vec::with_capacity(chain.len());
            for (region, memory, tag) in chain.iter_mut() {
                self.check_home(region)?;
                let arena = self.arenas.find(memory)?;
                let target = bound::target(arena, memory, access)?;
                let key = region.prepare(*tag)?;
                let Some(window) = &region.window else {
                    return Err(Error::ForeignRegion);
                };
                works.push(Work::Bind {
                    window: window.raw(),
                    key: key.bits(),
                    target,
                });
                region.cell.set_alive(key);
                region.bound = Some(Bound {
                    key,
                    link: Arc::clone(&link),
                    _arena: Hold::new(arena),
                });
            }
            let mut patience = Patience::new(self.endpoint.config().timeout);
            // SAFETY: each region keeps its window, and with it the arena, until the key is dead.
            let posted = unsafe { queue.post(&works, false, &mut patience) };
            for (region, ..) in chain.iter_mut() {
                if let (Some(window), Some(bound)) = (&mut region.window, &region.bound) {
                    window.set_key(bound.key);
                }
            }
            posted.map_err(|trouble| {
                queue.give_up();
                trouble.into_error(Self::WHAT, works.len(), queue, &patience)
            })?;
        }
        Ok(())
    }

    fn bind(
        &self,
        region: &mut Window2Region,
        key: RemoteKey,
        target: Target,
        link: &Link,
        message: Option<&[u8]>,
    ) -> Result<(), Error> {
        let Some(window) = &mut region.window else {
            return Err(Error::ForeignRegion);
        };
        let queue = link.queue();
        let mut patience = Patience::new(self.endpoint.config().timeout);
        let bind = Work::Bind {
            window: window.raw(),
            key: key.bits(),
            target,
        };
        let waits = message.is_none();
        let chain = [
            bind,
            Work::Send {
                message: message.unwrap_or_default(),
            },
        ];
        let works = if waits { &chain[..1] } else { &chain[..] };
        // SAFETY: the region keeps its window, and with it the arena, until the key is dead; a
        // message is copied at once.
        let posted = unsafe { queue.post(works, waits, &mut patience) };
        let done = match posted {
            Ok(number) if waits => queue.wait(number, &mut patience),
            posted => posted.map(drop),
        };
        // libibverbs does not follow: unless it is told, it will take the next key for the old.
        window.set_key(key);
        done.map_err(|trouble| {
            let error = trouble.into_error(Self::WHAT, 1, queue, &patience);
            if !matches!(error, Error::QueueFull { .. }) {
                queue.give_up();
            }
            error
        })
    }
}

impl Window2Region {
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
        self.map_with(region, &memory, access, tag, None)
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
        self.map_with(region, &memory, access, tag, Some(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rig;
    use crate::{Arena, Status};
    use mr_core::{BackendError, ErrorKind};

    fn backend(rig: &Rig, arena: &Arena) -> Window2Backend {
        Window2Backend::new(&rig.ours, [arena.clone()]).unwrap()
    }

    /// The HCA does the first half of a chain, fails at one request, and flushes the rest: no key
    /// is left alive, no region is lost, and the next map has a new queue pair.
    #[test]
    fn a_chain_that_fails_half_way_leaves_no_key_alive() {
        let Some(rig) = Rig::or_skip("a_chain_that_fails_half_way_leaves_no_key_alive") else {
            return;
        };
        let arena = Arena::new(&rig.domain, 1 << 20).unwrap();
        let backend = backend(&rig, &arena);
        for broken in [0, 3, 6] {
            let mut buffers: Vec<_> = (0..7).map(|_| arena.take(4096).unwrap()).collect();
            let mut regions: Vec<_> = (0..7).map(|_| backend.alloc().unwrap()).collect();
            let keys: Vec<_> = regions
                .iter_mut()
                .zip(&mut buffers)
                .map(|(region, buffer)| rig.map(&backend, region, buffer, 1))
                .collect();
            let before = rig.ours.connections();
            let bound = regions[broken].bound.as_mut().unwrap();
            bound.key = RemoteKey::new(bound.key.index() ^ 0x5a_0000, bound.key.tag());
            let mut batch: Vec<&mut Window2Region> = regions.iter_mut().collect();
            backend.invalidate(&mut batch).unwrap();
            assert_eq!(arena.bound(), 0);

            for (key, buffer) in keys.iter().zip(&buffers) {
                rig.ours.reconnect().unwrap();
                rig.assert_refused(buffer, *key);
            }
            assert!(rig.ours.connections() > before);
            for (region, buffer) in regions.iter_mut().zip(&mut buffers) {
                rig.ours.reconnect().unwrap();
                let key = rig.map(&backend, region, buffer, 2);
                rig.write(buffer, key).unwrap();
                backend.invalidate(&mut [region]).unwrap();
            }
            for region in regions {
                backend.dealloc(region).unwrap();
            }
        }
    }

    /// A bind that the HCA refuses costs the queue pair; the region is as before, and other leases
    /// end as they should.
    #[test]
    fn a_failed_bind_is_recovered_from() {
        let Some(rig) = Rig::or_skip("a_failed_bind_is_recovered_from") else {
            return;
        };
        let arena = Arena::new(&rig.domain, 1 << 20).unwrap();
        let backend = backend(&rig, &arena);
        let mut bystander = backend.alloc().unwrap();
        let mut bystander_buffer = arena.take(4096).unwrap();
        let bystander_key = rig.map(&backend, &mut bystander, &mut bystander_buffer, 1);

        let mut region = backend.alloc().unwrap();
        let mut buffer = arena.take(4096).unwrap();
        let window = region.window.as_mut().unwrap();
        let wrong = RemoteKey::new(window.key().index() ^ 0x5a_0000, window.key().tag());
        window.set_key(wrong);
        let error = rig
            .try_map(&backend, &mut region, &mut buffer, 1)
            .unwrap_err();
        let lost = Error::ConnectionLost {
            what: "",
            status: Status::WindowBind,
        };
        assert_eq!(
            std::mem::discriminant(&error),
            std::mem::discriminant(&lost),
            "{error}"
        );
        assert!(error.to_string().contains("status 6"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert_eq!(arena.bound(), 1, "the bystander's");

        let before = rig.ours.connections();
        let key = rig.map(&backend, &mut region, &mut buffer, 2);
        assert_eq!(rig.ours.connections(), before + 1);
        rig.write(&buffer, key).unwrap();
        rig.assert_refused(&bystander_buffer, bystander_key);
        backend
            .invalidate(&mut [&mut region, &mut bystander])
            .unwrap();
        assert_eq!(arena.bound(), 0);
    }
}
