//! The device: tables, caches, costs and counters, all behind one lock.

use crate::cache::Cache;
use crate::cost::{CostModel, Costs};
use crate::dma::Span;
use crate::tpt::{Entry, Mapping, State, Tpt};
use crate::{CacheTag, Counters, MockError, Preset};
use mr_core::{Access, BatchError, Fence, KeyTag, Remap, RemoteKey};

/// What an MTT cache line knows: its eight pages follow from the memory they belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The key for which the line was fetched.
    pub(crate) key: RemoteKey,
    /// The mapping whose pages these are.
    pub(crate) serial: u64,
    /// That mapping's memory.
    pub(crate) span: Span,
}

/// What the engine must know of a preset on each call.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub(crate) fence: Fence,
    pub(crate) remap: Remap,
    pub(crate) cache_tag: CacheTag,
    pub(crate) soft_invalidate: bool,
    pub(crate) remote_invalidate: bool,
    pub(crate) tag_bits: u64,
    pub(crate) max_regions: u64,
    pub(crate) max_pages: u64,
    pub(crate) max_batch: u64,
    pub(crate) page_bytes: u64,
    pub(crate) line_shift: u32,
    pub(crate) mtu_shift: u32,
}

/// A map request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRequest {
    pub(crate) index: u32,
    pub(crate) span: Span,
    pub(crate) access: Access,
    pub(crate) tag: KeyTag,
    pub(crate) domain: u32,
    pub(crate) connection: Option<u32>,
    pub(crate) base: u64,
}

/// The device.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) knobs: Knobs,
    pub(crate) model: CostModel,
    pub(crate) tpt: Tpt,
    pub(crate) mpt_cache: Cache<Mapping>,
    pub(crate) mtt_cache: Cache<Line>,
    pub(crate) costs: Costs,
    pub(crate) counters: Counters,
    pub(crate) removed: bool,
    serial: u64,
}

impl Engine {
    pub(crate) fn new(preset: &Preset) -> Self {
        let page_shift = preset.page_bytes.value.trailing_zeros();
        Self {
            knobs: Knobs {
                fence: preset.fence.value,
                remap: preset.remap.value,
                cache_tag: preset.cache_tag.value,
                soft_invalidate: preset.soft_invalidate.value,
                remote_invalidate: preset.remote_invalidate.value,
                tag_bits: preset.tag_bits.value,
                max_regions: preset.max_regions.value,
                max_pages: preset.max_pages.value,
                max_batch: preset.max_batch.value,
                page_bytes: preset.page_bytes.value,
                line_shift: page_shift + preset.mtt_line_pages.value.trailing_zeros(),
                mtu_shift: preset.mtu_bytes.value.trailing_zeros(),
            },
            model: CostModel::new(preset),
            tpt: Tpt::new(preset.max_regions.value as u32),
            mpt_cache: Cache::new(
                preset.mpt_entries.value as usize,
                preset.mpt_ways.value as usize,
            ),
            mtt_cache: Cache::new(
                preset.mtt_lines.value as usize,
                preset.mtt_ways.value as usize,
            ),
            costs: Costs::default(),
            counters: Counters::default(),
            removed: false,
            serial: 0,
        }
    }

    /// Makes a clean region and returns its index.
    pub(crate) fn alloc(&mut self) -> Result<u32, MockError> {
        self.check_present()?;
        let index = self.tpt.alloc().ok_or(MockError::TableFull {
            limit: self.knobs.max_regions,
        })?;
        self.counters.allocs += 1;
        self.costs += self.model.alloc();
        Ok(index)
    }

    /// Frees a clean region.
    pub(crate) fn dealloc(&mut self, index: u32) -> Result<(), MockError> {
        self.check_present()?;
        let entry = self.tpt.entry(index).ok_or(MockError::ForeignRegion)?;
        if !matches!(entry.state, State::Clean | State::PeerInvalid) {
            return Err(MockError::NotInvalidated);
        }
        self.tpt.free(index);
        self.counters.deallocs += 1;
        self.costs += self.model.dealloc();
        Ok(())
    }

    /// Rewrites the table entry in place. What the caches hold of an earlier mapping stays there,
    /// unless the preset says that a map kills the previous key.
    pub(crate) fn map(&mut self, request: MapRequest) -> Result<RemoteKey, MockError> {
        self.check_present()?;
        let pages = self.pages(&request.span);
        if pages > self.knobs.max_pages {
            return Err(MockError::TooLarge {
                bytes: request.span.len(),
                pages,
                limit: self.knobs.max_pages,
            });
        }
        let remap = match self.tpt.entry(request.index) {
            None => return Err(MockError::ForeignRegion),
            Some(entry) => entry.maps > 0,
        };
        if remap {
            self.prepare_remap(request.index)?;
        }
        let lines = self.lines(pages);
        let serial = self.serial + 1;
        let chosen = self.knobs.tag_bits > 0;
        let entry = self
            .tpt
            .entry_mut(request.index)
            .ok_or(MockError::ForeignRegion)?;
        let key = write_entry(entry, &request, serial, lines, chosen);
        self.serial = serial;
        self.counters.maps += 1;
        self.counters.remaps += u64::from(remap);
        self.costs += self.model.map(pages);
        Ok(key)
    }

    fn prepare_remap(&mut self, index: u32) -> Result<(), MockError> {
        match self.knobs.remap {
            Remap::Impossible => return Err(MockError::NotInvalidated),
            Remap::LeavesPrevious => {}
            Remap::KillsPrevious => self.forget(index, State::Clean),
        }
        Ok(())
    }

    /// One store: the table refuses the key from now on. The caches are not told.
    pub(crate) fn soft_invalidate(&mut self, index: u32) {
        if !self.knobs.soft_invalidate || self.removed {
            return;
        }
        if let Some(entry) = self.tpt.entry_mut(index)
            && entry.state == State::Live
        {
            entry.state = State::SoftInvalid;
            self.counters.soft_invalidations += 1;
            self.costs += self.model.soft_invalidate();
        }
    }

    /// Invalidates the regions at `indices` with one fence. `None` stands for a region that is
    /// not this device's: it fails, the others do not.
    pub(crate) fn invalidate(
        &mut self,
        indices: impl ExactSizeIterator<Item = Option<u32>>,
    ) -> Result<(), BatchError<MockError>> {
        self.check_present().map_err(BatchError::all)?;
        let regions = indices.len();
        if regions as u64 > self.knobs.max_batch {
            return Err(BatchError::all(MockError::BatchTooLong {
                regions,
                limit: self.knobs.max_batch,
            }));
        }
        let mut done = 0;
        let mut results = Vec::new();
        for (place, index) in indices.enumerate() {
            match index {
                Some(index) => {
                    self.unmap(index);
                    done += 1;
                    if !results.is_empty() {
                        results.push(Ok(()));
                    }
                }
                None => {
                    results.resize_with(place, || Ok(()));
                    results.push(Err(MockError::ForeignRegion));
                }
            }
        }
        self.fence(done);
        self.counters.invalidated += done;
        if results.is_empty() {
            Ok(())
        } else {
            Err(BatchError::each(results))
        }
    }

    fn unmap(&mut self, index: u32) {
        let pages = self
            .tpt
            .entry(index)
            .and_then(|entry| entry.mapping)
            .map_or(0, |mapping| self.pages(&mapping.span));
        self.costs += self.model.unmap(pages);
        match self.knobs.fence {
            // The fence empties the caches for everyone: no need to look for this region in them.
            Fence::Global => {
                if let Some(entry) = self.tpt.entry_mut(index) {
                    entry.forget(State::Clean);
                }
            }
            Fence::PerKey => self.forget(index, State::Clean),
        }
    }

    fn fence(&mut self, regions: u64) {
        self.counters.fences += 1;
        match self.knobs.fence {
            Fence::Global => {
                self.mpt_cache.clear();
                self.mtt_cache.clear();
                self.costs += self.model.global_fence();
            }
            Fence::PerKey => self.costs += self.model.per_key_fence(regions),
        }
    }

    /// Whether the peer has killed the region's key.
    pub(crate) fn invalidated_by_peer(&self, index: u32) -> bool {
        self.tpt
            .entry(index)
            .is_some_and(|entry| entry.state == State::PeerInvalid)
    }

    /// Notes that the owner of `key` has released it. Nothing changes but how packets through it
    /// are counted.
    pub(crate) fn note_released(&mut self, key: RemoteKey) {
        if let Some(entry) = self.tpt.entry_mut(key.index())
            && entry.honours(key).is_some()
        {
            entry.released = true;
        }
    }

    /// The device is gone: no key is honoured any more, and no call succeeds.
    pub(crate) fn remove(&mut self) {
        self.removed = true;
        self.tpt.clear();
        self.mpt_cache.clear();
        self.mtt_cache.clear();
    }

    /// Erases all that table and caches know of a region's memory.
    pub(crate) fn forget(&mut self, index: u32, state: State) {
        self.evict(index);
        if let Some(entry) = self.tpt.entry_mut(index) {
            entry.forget(state);
        }
    }

    /// Evicts every key that the region had since it was last evicted, with its lines.
    ///
    /// One key, or one tag for all keys: its entries are looked up one by one, at the cost of a
    /// look-up per line. Several keys: their tags are not kept, so both caches are searched.
    fn evict(&mut self, index: u32) {
        let Some(entry) = self.tpt.entry(index) else {
            return;
        };
        let lines = entry.lines;
        let one_tag = entry.maps <= 1 || self.knobs.cache_tag == CacheTag::Index;
        match entry.mapping {
            None => {}
            Some(mapping) if one_tag && (lines as usize) < self.mtt_cache.capacity() => {
                let tag = self.mpt_tag(mapping.key);
                self.mpt_cache.remove(tag);
                for line in 0..lines {
                    self.mtt_cache.remove(mtt_tag(tag, line));
                }
            }
            Some(_) => {
                let knob = self.knobs.cache_tag;
                let other = |tag| index_of_tag(knob, tag) != index;
                self.mpt_cache.retain(other);
                self.mtt_cache.retain(|tag| other(tag >> 32));
            }
        }
    }

    /// Under which tag the MPT cache keeps a key.
    pub(crate) fn mpt_tag(&self, key: RemoteKey) -> u64 {
        match self.knobs.cache_tag {
            CacheTag::FullKey => u64::from(key.bits()),
            CacheTag::Index => u64::from(key.index()),
        }
    }

    fn pages(&self, span: &Span) -> u64 {
        let bytes = span.page_offset(self.knobs.page_bytes) + span.len();
        bytes.div_ceil(self.knobs.page_bytes)
    }

    fn lines(&self, pages: u64) -> u32 {
        (pages.saturating_mul(self.knobs.page_bytes)).div_ceil(1 << self.knobs.line_shift) as u32
    }

    fn check_present(&self) -> Result<(), MockError> {
        if self.removed {
            Err(MockError::Removed)
        } else {
            Ok(())
        }
    }
}

/// Under which tag the MTT cache keeps a line; `tag` is that of the key in the MPT cache.
pub(crate) const fn mtt_tag(tag: u64, line: u32) -> u64 {
    tag << 32 | line as u64
}

fn index_of_tag(knob: CacheTag, tag: u64) -> u32 {
    match knob {
        CacheTag::FullKey => RemoteKey::from_bits(tag as u32).index(),
        CacheTag::Index => tag as u32,
    }
}

/// Writes a mapping into a table entry. `chosen` says whether the caller chooses the tag.
fn write_entry(
    entry: &mut Entry,
    request: &MapRequest,
    serial: u64,
    lines: u32,
    chosen: bool,
) -> RemoteKey {
    let tag = if chosen {
        request.tag
    } else {
        entry.tag.next()
    };
    let key = RemoteKey::new(request.index, tag);
    entry.tag = tag;
    entry.state = State::Live;
    entry.released = false;
    entry.maps += 1;
    entry.lines = entry.lines.max(lines);
    entry.mapping = Some(Mapping {
        key,
        serial,
        span: request.span,
        access: request.access,
        domain: request.domain,
        connection: request.connection,
        base: request.base,
    });
    key
}
