//! The pool that one writes by hand: two queues behind locks, and a clock reading per release.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mr_core::{Fence, KeyTag, Keys, MrBackend};

use crate::backends::{Price, StubBackend, map_bare};
use crate::churn::{ROUND, buffers};
use crate::rounds::nanos_each;

struct Region {
    region: u32,
    tag: KeyTag,
    keys: Option<Keys>,
    buffer: Vec<u8>,
    released: Instant,
}

/// A region behind a pointer, since it goes from list to list.
type Boxed = Box<Region>;

/// Counts exposure by a sum and a maximum; no waiting, no errors, no quarantine, no second policy.
pub(crate) struct HandWritten {
    backend: StubBackend,
    clean: Mutex<VecDeque<Boxed>>,
    dirty: Mutex<VecDeque<Boxed>>,
    exposed: Duration,
    longest: Duration,
    batch: usize,
    buffers: Vec<Vec<u8>>,
}

impl HandWritten {
    /// Flushes whenever `batch` regions are dirty, of 5/4 as many.
    pub(crate) fn new(batch: usize) -> Self {
        let region = |region| {
            Box::new(Region {
                region,
                tag: KeyTag::new(0),
                keys: None,
                buffer: Vec::new(),
                released: Instant::now(),
            })
        };
        Self {
            backend: StubBackend::new(Fence::Global, Price::Nothing),
            clean: Mutex::new((0..).take(batch + batch / 4).map(region).collect()),
            dirty: Mutex::default(),
            exposed: Duration::ZERO,
            longest: Duration::ZERO,
            batch,
            buffers: buffers(batch),
        }
    }

    /// Nanoseconds per lease, release and share of the flush.
    pub(crate) fn round(&mut self) -> Result<f64> {
        let batches = ROUND.div_ceil(self.batch);
        nanos_each(batches * self.batch, || {
            for _ in 0..batches {
                for _ in 0..self.batch {
                    let buffer = self.buffers.pop().context("out of buffers")?;
                    let region = self.lease(buffer)?;
                    black_box(region.keys);
                    self.release(region);
                }
                self.flush()?;
            }
            Ok(())
        })
    }

    fn lease(&self, buffer: Vec<u8>) -> Result<Boxed> {
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        let mut region = clean.pop_front().context("out of regions")?;
        drop(clean);
        region.buffer = buffer;
        region.tag = region.tag.next();
        let Region {
            region: handle,
            buffer,
            tag,
            ..
        } = &mut *region;
        let keys = map_bare(&self.backend, handle, buffer, *tag)?;
        region.keys = Some(keys);
        Ok(region)
    }

    fn release(&self, mut region: Boxed) {
        region.released = Instant::now();
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        dirty.push_back(region);
    }

    fn flush(&mut self) -> Result<()> {
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = std::mem::take(&mut *dirty);
        drop(dirty);
        let mut regions: Vec<_> = batch.iter_mut().map(|region| &mut region.region).collect();
        self.backend.invalidate(&mut regions)?;
        let dead = Instant::now();
        for region in &mut batch {
            let exposure = dead - region.released;
            self.exposed += exposure;
            self.longest = self.longest.max(exposure);
            self.buffers.push(std::mem::take(&mut region.buffer));
        }
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        clean.extend(batch);
        black_box((self.exposed, self.longest));
        Ok(())
    }
}
