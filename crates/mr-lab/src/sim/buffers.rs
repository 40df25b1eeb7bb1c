//! Buffers of I/Os, used again as soon as the pool gives them back.

use super::{LabPool, Meter};
use crate::LabError;
use mr_core::DmaBuffer;
use mr_mock::{GhostBuffer, GhostMemory};

/// The buffers that are with nobody.
#[derive(Debug)]
pub(super) struct Buffers {
    free: Vec<GhostBuffer>,
    back: Vec<GhostBuffer>,
    memory: GhostMemory,
}

impl Buffers {
    pub(super) fn new(largest: u64) -> Self {
        let largest = usize::try_from(largest).unwrap_or(usize::MAX / 2);
        Self {
            free: Vec::new(),
            back: Vec::new(),
            memory: GhostMemory::new(largest),
        }
    }

    /// A buffer of `bytes` bytes.
    pub(super) fn take(
        &mut self,
        pool: &LabPool,
        meter: &mut Meter,
        bytes: u64,
    ) -> Result<GhostBuffer, LabError> {
        if self.free.is_empty() {
            self.reclaim(pool, meter);
        }
        let buffer = match self.free.pop() {
            Some(buffer) => buffer,
            None => self.memory.buffer().map_err(LabError::AddressSpace)?,
        };
        Ok(buffer.cut(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    pub(super) fn put(&mut self, buffer: Option<GhostBuffer>) {
        self.free.extend(buffer);
    }

    /// Takes back whatever no key reaches any more.
    pub(super) fn reclaim(&mut self, pool: &LabPool, meter: &mut Meter) {
        pool.reclaim(&mut self.back, usize::MAX);
        for buffer in self.back.drain(..) {
            meter.died(buffer.len() as u64);
            self.free.push(buffer);
        }
    }
}
