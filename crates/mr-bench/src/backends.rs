//! Backends whose cost is known: nothing, a spin or a sleep per invalidation.
//!
//! The one file of this crate with `unsafe`.

use std::hint::{self, black_box};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mr_core::{
    Access, BackendError, BatchError, Capabilities, ChainedMap, DeallocError, ErrorKind, Fence,
    KeyTag, Keys, LocalKey, MemoryRange, MrBackend, Remap, RemoteKey,
};

/// What one `invalidate` call costs, whatever the size of its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Price {
    Nothing,
    /// The processor waits, as it does for a doorbell and a completion that it polls for.
    Spin(Duration),
    /// The thread waits, while the gate lets it; else nothing.
    Sleep(Duration),
}

/// A backend that makes up keys and does nothing else but let time pass.
pub(crate) struct StubBackend {
    fence: Fence,
    price: Price,
    next: AtomicU32,
    /// Whether `Sleep` is in force.
    sleeps: AtomicBool,
    /// Whether a call is asleep.
    asleep: AtomicBool,
}

/// It cannot fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Never {}

impl BackendError for Never {
    fn kind(&self) -> ErrorKind {
        match *self {}
    }
}

impl StubBackend {
    pub(crate) const fn new(fence: Fence, price: Price) -> Self {
        Self {
            fence,
            price,
            next: AtomicU32::new(0),
            sleeps: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        }
    }

    /// Whether invalidations sleep from here on.
    pub(crate) fn let_sleep(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
    }

    /// Whether an invalidation is asleep now.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }
}

// SAFETY: nothing here, and nothing behind it, ever touches the memory.
unsafe impl MrBackend for StubBackend {
    /// The index part of the region's keys.
    type Region = u32;
    type Error = Never;

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(1 << 24, 1 << 30);
        capabilities.tag_bits = 8;
        capabilities.remap = Remap::LeavesPrevious;
        capabilities.fence = self.fence;
        capabilities.max_batch = 1 << 24;
        capabilities
    }

    fn alloc(&self) -> Result<u32, Never> {
        Ok(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn map(
        &self,
        region: &mut u32,
        memory: MemoryRange<'_>,
        _: Access,
        tag: KeyTag,
    ) -> Result<Keys, Never> {
        black_box(memory.addr());
        Ok(Keys {
            local: LocalKey::new(*region, tag),
            remote: RemoteKey::new(*region, tag),
        })
    }

    fn invalidate(&self, batch: &mut [&mut u32]) -> Result<(), BatchError<Never>> {
        black_box(batch.len());
        match self.price {
            Price::Nothing => {}
            Price::Spin(time) => spin(time),
            Price::Sleep(time) => {
                if self.sleeps.load(Ordering::SeqCst) {
                    self.asleep.store(true, Ordering::SeqCst);
                    thread::sleep(time);
                    self.asleep.store(false, Ordering::SeqCst);
                }
            }
        }
        Ok(())
    }

    fn dealloc(&self, _: u32) -> Result<(), DeallocError<u32, Never>> {
        Ok(())
    }
}

// SAFETY: as above: the memory is never touched, and the request goes nowhere.
unsafe impl ChainedMap for StubBackend {
    /// The key.
    type Request = RemoteKey;

    fn map_chained(
        &self,
        region: &mut u32,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: &mut dyn FnMut(Keys) -> RemoteKey,
    ) -> Result<Keys, Never> {
        let keys = self.map(region, memory, access, tag)?;
        black_box(request(keys));
        Ok(keys)
    }
}

/// What the peer may do, in every line of the table.
pub(crate) const ACCESS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// Maps `buffer` as whoever has no pool does.
#[inline]
pub(crate) fn map_bare(
    backend: &StubBackend,
    region: &mut u32,
    buffer: &mut Vec<u8>,
    tag: KeyTag,
) -> Result<Keys, Never> {
    let len = buffer.len();
    let start = NonNull::from(buffer.as_mut_slice()).cast();
    // SAFETY: as above, nobody touches the memory through this backend.
    let memory = unsafe { MemoryRange::new(start, len) };
    backend.map(region, memory, ACCESS, tag)
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        hint::spin_loop();
    }
}
