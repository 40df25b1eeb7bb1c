//! Memory windows of type 1: bound by a control queue pair, usable by the whole domain.

use crate::arena::Arena;
use crate::bound::{self, Arenas, Hold};
use crate::link::Link;
use crate::mw::Window;
use crate::sys::{Target, WindowType};
use crate::wait::Patience;
use crate::{Domain, Error};
use mr_core::{
    Access, BatchError, Capabilities, DeallocError, KeyTag, Keys, MemoryRange, MrBackend, Remap,
};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Regions that are memory windows of type 1, over memory of arenas.
///
/// The HCA chooses the key. A window can be bound again without an invalidation, and that kills its
/// previous key, so keeping regions for reuse works here. An invalidation is a bind to nothing.
///
/// Binds go through a queue pair that is connected to itself. A refused access puts the queue pair
/// of the peer that tried it into error; were windows bound through that one, the unbind would be
/// flushed, and the key would stay alive on all others.
pub struct Window1Backend {
    domain: Arc<Domain>,
    arenas: Arenas,
    control: RwLock<Arc<Link>>,
    depth: u32,
    timeout: Duration,
    /// Held by each region.
    home: Arc<()>,
}

/// A region of a [`Window1Backend`].
#[derive(Debug)]
pub struct Window1Region {
    window: Option<Window>,
    /// Whether the window may honour a key.
    bound: Option<Hold>,
    home: Arc<()>,
}

impl fmt::Debug for Window1Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window1Backend")
            .field("arenas", &self.arenas)
            .field("depth", &self.depth)
            .field("regions", &(Arc::strong_count(&self.home) - 1))
            .finish_non_exhaustive()
    }
}

impl Window1Backend {
    const WHAT: &'static str = "binding a window of type 1";

    /// Regions that a call of `invalidate` takes: they are posted one by one, and it waits for one
    /// completion at the end.
    const MAX_BATCH: usize = 4096;

    /// Binds that may be under way.
    pub const DEFAULT_DEPTH: u32 = 512;

    /// How long a bind may take by default.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    /// A backend that binds windows over `arenas`, which must be of this domain.
    ///
    /// # Errors
    ///
    /// The device has no windows of type 1, or no queue pair to bind them with.
    pub fn new(
        domain: &Arc<Domain>,
        arenas: impl IntoIterator<Item = Arena>,
    ) -> Result<Self, Error> {
        Self::with_depth(domain, arenas, Self::DEFAULT_DEPTH, Self::DEFAULT_TIMEOUT)
    }

    /// The same, with a control queue of `depth` slots (at least 1) and this bound on each wait.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_depth(
        domain: &Arc<Domain>,
        arenas: impl IntoIterator<Item = Arena>,
        depth: u32,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let device = domain.device();
        if !bound::has_windows(device.attr(), WindowType::One) {
            return Err(device.lacks("memory windows of type 1"));
        }
        device.warn_of_windows();
        let depth = depth.max(1);
        Ok(Self {
            control: RwLock::new(Arc::new(Link::with_itself(domain, depth)?)),
            domain: Arc::clone(domain),
            arenas: Arenas::new(arenas),
            depth,
            timeout,
            home: Arc::new(()),
        })
    }

    /// The domain.
    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Ends the backend and lets go of its arenas.
    ///
    /// # Errors
    ///
    /// Gives itself back with [`Error::Busy`] while windows of it are there.
    #[expect(clippy::result_large_err, reason = "called once")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        match Arc::strong_count(&self.home) - 1 {
            0 => Ok(()),
            left => {
                let error = Error::Busy {
                    what: "the window backend",
                    bound: format!("{left} windows of type 1 are there"),
                };
                Err((self, error))
            }
        }
    }

    /// Puts the control queue pair into error, as a defect of the device would.
    #[cfg(test)]
    fn break_control(&self) {
        let control = self.control.read().unwrap();
        control.queue().pair().break_off().unwrap();
    }

    /// The control queue pair, or a new one if that has failed.
    fn control(&self) -> Result<Arc<Link>, Error> {
        let read = self.control.read().unwrap_or_else(PoisonError::into_inner);
        if !read.queue().has_failed() {
            return Ok(Arc::clone(&read));
        }
        drop(read);
        let mut control = self.control.write().unwrap_or_else(PoisonError::into_inner);
        if control.queue().has_failed() {
            *control = Arc::new(Link::with_itself(&self.domain, self.depth)?);
            tracing::info!("control queue pair replaced");
        }
        Ok(Arc::clone(&control))
    }

    fn check_home(&self, region: &Window1Region) -> Result<(), Error> {
        if Arc::ptr_eq(&region.home, &self.home) {
            Ok(())
        } else {
            Err(Error::ForeignRegion)
        }
    }

    /// Binds and waits. After a failure no key of the window is honoured, unless it says so.
    fn bind(&self, place: &mut Option<Window>, target: Target) -> Result<(), Error> {
        let control = self.control()?;
        let window = match place {
            Some(window) => window,
            None => place.insert(Window::new(&self.domain, WindowType::One)?),
        };
        let queue = control.queue();
        let mut patience = Patience::new(self.timeout);
        // SAFETY: window and arena stay: what fails here frees the window, and a bound one holds
        // on to its arena.
        let posted = unsafe { queue.post_type_1(window.raw(), target, true, &mut patience) };
        let done = posted.and_then(|number| queue.wait(number, &mut patience));
        done.map_err(|trouble| {
            let error = trouble.into_error(Self::WHAT, 1, queue, &patience);
            if matches!(error, Error::QueueFull { .. }) {
                return error;
            }
            queue.give_up();
            bound::free_window(place).err().unwrap_or(error)
        })
    }

    /// Unbinds all of these with one completion to wait for, and says how many, from the first on,
    /// are known to be unbound.
    fn unbind(&self, regions: &[&Window1Region]) -> usize {
        let Ok(control) = self.control() else {
            return 0;
        };
        let queue = control.queue();
        let mut patience = Patience::new(self.timeout);
        let mut numbers = Vec::with_capacity(regions.len());
        for (place, region) in regions.iter().enumerate() {
            let nowhere = region.bound.as_ref().and_then(Hold::nowhere);
            let (Some(window), Some(nowhere)) = (&region.window, nowhere) else {
                break;
            };
            let last = place + 1 == regions.len();
            // SAFETY: the region keeps the window until the unbind is done; what is not done is
            // freed, after the queue pair was given up.
            let posted = unsafe { queue.post_type_1(window.raw(), nowhere, last, &mut patience) };
            match posted {
                Ok(number) => numbers.push(number),
                Err(_) => break,
            }
        }
        let complete = numbers.len() == regions.len();
        match numbers.last() {
            Some(&last) if complete && queue.wait(last, &mut patience).is_ok() => regions.len(),
            _ => {
                queue.give_up();
                let done = queue.done();
                numbers.iter().take_while(|&&number| number < done).count()
            }
        }
    }
}

// SAFETY: an invalidation is reported only after the unbind has completed or the window was freed,
// and a remap only after the new bind has completed, which kills the previous key; a window of which
// neither is known counts as bound.
unsafe impl MrBackend for Window1Backend {
    type Region = Window1Region;
    type Error = Error;

    fn capabilities(&self) -> Capabilities {
        let max_regions = self.domain.device().limits().max_windows;
        let mut capabilities = Capabilities::new(max_regions, self.arenas.max_bytes());
        capabilities.remap = Remap::KillsPrevious;
        capabilities.max_batch = Self::MAX_BATCH;
        capabilities
    }

    fn alloc(&self) -> Result<Window1Region, Error> {
        Ok(Window1Region {
            window: Some(Window::new(&self.domain, WindowType::One)?),
            bound: None,
            home: Arc::clone(&self.home),
        })
    }

    fn map(
        &self,
        region: &mut Window1Region,
        memory: MemoryRange<'_>,
        access: Access,
        _tag: KeyTag,
    ) -> Result<Keys, Error> {
        self.check_home(region)?;
        let arena = self.arenas.find(&memory)?;
        let target = bound::target(arena, &memory, access)?;
        // From here on the HCA may honour a key.
        let previous = region.bound.replace(Hold::new(arena));
        let tried = match self.bind(&mut region.window, target) {
            // The first user of a control queue pair that has failed gets to hear of it; with the
            // new one it goes on.
            Err(Error::ConnectionLost { .. }) => self.bind(&mut region.window, target),
            tried => tried,
        };
        let window = match (tried, &region.window) {
            (Ok(()), Some(window)) => window,
            // Nothing is known of the window's keys: it still counts as bound.
            (Err(error @ Error::NotKilled { .. }), _) => return Err(error),
            (tried, window) => {
                region.bound = window.as_ref().and(previous);
                return Err(tried.err().unwrap_or(Error::ForeignRegion));
            }
        };
        Ok(Keys {
            local: arena.local_key(),
            remote: window.key(),
        })
    }

    fn invalidate(&self, batch: &mut [&mut Window1Region]) -> Result<(), BatchError<Error>> {
        let foreign = batch.iter().any(|region| self.check_home(region).is_err());
        let mut mine: Vec<&mut Window1Region> = Vec::with_capacity(batch.len());
        for region in batch.iter_mut() {
            if self.check_home(region).is_ok() && region.bound.is_some() {
                mine.push(region);
            }
        }
        let shared: Vec<&Window1Region> = mine.iter().map(|region| &**region).collect();
        let unbound = if shared.is_empty() {
            0
        } else {
            self.unbind(&shared)
        };
        let mut stuck = false;
        for (place, region) in mine.into_iter().enumerate() {
            if place < unbound || bound::free_window(&mut region.window).is_ok() {
                region.bound = None;
            } else {
                stuck = true;
            }
        }
        if !foreign && !stuck {
            return Ok(());
        }
        Err(BatchError::each(
            batch.iter().map(|region| self.verdict(region)).collect(),
        ))
    }

    fn dealloc(&self, mut region: Window1Region) -> Result<(), DeallocError<Window1Region, Error>> {
        let freed = self.check_home(&region).and_then(|()| {
            if region.bound.is_some() {
                return Err(Error::Busy {
                    what: "the region",
                    bound: "its window is bound".to_owned(),
                });
            }
            bound::free_window(&mut region.window)
        });
        freed.map_err(|error| DeallocError { region, error })
    }
}

impl Window1Backend {
    /// Whether an invalidation has killed what there was.
    fn verdict(&self, region: &Window1Region) -> Result<(), Error> {
        self.check_home(region)?;
        match region.bound {
            None => Ok(()),
            Some(_) => Err(Error::NotKilled {
                what: "a memory window",
                errno: crate::Errno::EBUSY,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rig;

    /// On a queue pair in error an unbind is flushed and the key lives on, for every other queue
    /// pair. The answer must not be taken for an invalidation.
    #[test]
    fn an_unbind_that_was_flushed_is_made_good() {
        let Some(rig) = Rig::or_skip("an_unbind_that_was_flushed_is_made_good") else {
            return;
        };
        let arena = Arena::new(&rig.domain, 1 << 20).unwrap();
        let backend = Window1Backend::new(&rig.domain, [arena.clone()]).unwrap();
        let mut buffers = [arena.take(4096).unwrap(), arena.take(4096).unwrap()];
        let mut regions = [backend.alloc().unwrap(), backend.alloc().unwrap()];
        let [first, second] = &mut regions;
        let first_key = rig.map(&backend, first, &mut buffers[0], 0);
        let second_key = rig.map(&backend, second, &mut buffers[1], 0);
        backend.break_control();
        rig.write(&buffers[0], first_key).unwrap();
        backend.invalidate(&mut [first, second]).unwrap();
        rig.assert_refused(&buffers[0], first_key);
        rig.assert_refused(&buffers[1], second_key);
        assert_eq!(arena.bound(), 0);

        // A map, too, notices, and goes on.
        backend.break_control();
        let key = rig.map(&backend, first, &mut buffers[0], 0);
        rig.write(&buffers[0], key).unwrap();
        // And a map over a map, which must kill the first.
        backend.break_control();
        let next = rig.map(&backend, first, &mut buffers[1], 0);
        rig.write(&buffers[1], next).unwrap();
        rig.assert_refused(&buffers[0], key);
        backend.invalidate(&mut [first]).unwrap();
        rig.assert_refused(&buffers[1], next);
    }
}
