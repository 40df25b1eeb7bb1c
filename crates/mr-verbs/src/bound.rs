//! What the two window backends have in common: a window, and the arena that it is bound over.

use crate::arena::{Arena, Inner};
use crate::mr::remote_flags;
use crate::mw::Window;
use crate::sys::Target;
use crate::{Error, sys};
use mr_core::{Access, MemoryRange};
use std::sync::Arc;

/// The arenas over which a backend binds windows, by address.
#[derive(Debug)]
pub(crate) struct Arenas {
    sorted: Vec<Arena>,
}

impl Arenas {
    pub(crate) fn new(arenas: impl IntoIterator<Item = Arena>) -> Self {
        let mut sorted: Vec<Arena> = arenas.into_iter().collect();
        sorted.sort_by_key(|arena| arena.inner().addr());
        Self { sorted }
    }

    /// Bytes of the largest: the most that a window can be bound to.
    pub(crate) fn max_bytes(&self) -> u64 {
        let sizes = self.sorted.iter().map(|arena| arena.size() as u64);
        sizes.max().unwrap_or(0)
    }

    /// The arena that holds all of `memory`.
    pub(crate) fn find(&self, memory: &MemoryRange<'_>) -> Result<&Arc<Inner>, Error> {
        let (addr, len) = (memory.addr(), memory.len());
        let after = self
            .sorted
            .partition_point(|arena| arena.inner().addr() <= addr);
        // An error is large: made before it is needed, it costs as much as the search.
        match after.checked_sub(1).map(|place| self.sorted[place].inner()) {
            Some(arena) if arena.contains(addr, len) => Ok(arena),
            _ => Err(Error::NotInArena { addr, len }),
        }
    }
}

/// Where a window is to be bound.
pub(crate) fn target(
    arena: &Inner,
    memory: &MemoryRange<'_>,
    access: Access,
) -> Result<Target, Error> {
    let (addr, len) = (memory.addr(), memory.len());
    let Some(registration) = arena.registration() else {
        return Err(Error::NotInArena { addr, len });
    };
    Ok(Target {
        parent: registration.raw(),
        addr,
        len,
        flags: remote_flags(access),
    })
}

/// The arena of a bound window; counts itself there.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Inner>);

impl Hold {
    pub(crate) fn new(arena: &Arc<Inner>) -> Self {
        arena.count_bound();
        Self(Arc::clone(arena))
    }

    /// What a window of type 1 is bound to so that it is bound to nothing: no bytes of its arena
    /// (the provider of Soft-RoCE crashes if it is given no registration at all).
    pub(crate) fn nowhere(&self) -> Option<Target> {
        Some(Target {
            parent: self.0.registration()?.raw(),
            addr: self.0.addr(),
            len: 0,
            flags: 0,
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.count_unbound();
    }
}

/// Frees the window in `place`, which kills whatever key it has. It stays there if that fails.
pub(crate) fn free_window(place: &mut Option<Window>) -> Result<(), Error> {
    let Some(window) = place.take() else {
        return Ok(());
    };
    window.free().map_err(|(window, errno)| {
        *place = Some(window);
        Error::NotKilled {
            what: "a memory window",
            errno,
        }
    })
}

/// What a device must have to bind windows at all.
pub(crate) const fn has_windows(attr: &sys::DeviceAttr, kind: sys::WindowType) -> bool {
    match kind {
        sys::WindowType::One => attr.windows_1 && attr.max_mw > 0,
        sys::WindowType::Two => attr.windows_2 && attr.max_mw > 0,
    }
}
