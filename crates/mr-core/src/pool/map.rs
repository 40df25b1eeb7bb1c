//! map: how a drawn region gets its key, and what becomes of it where that fails.

use crate::backend::BackendError;
use crate::pool::core::Core;
use crate::pool::lease::Leased;
use crate::pool::shard::Boxed;
use crate::pool::slot::{Fate, Mapping, Superseded};
use crate::sync::atomic::Ordering;
use crate::{
    Access, DmaBuffer, ErrorKind, KeyTag, Keys, LeaseError, LeaseRefusal, LocalKey, MapJob,
    MemoryRange, MrBackend, Poisoned, PoisonedBy, RegionState, Remap, RemoteKey, Time,
};

/// A region that was drawn for a buffer, on its way to its key.
pub(crate) struct Drawn<B: MrBackend, M> {
    slot: Boxed<B, M>,
    buffer: M,
    access: Access,
    tag: KeyTag,
    addr: u64,
    /// The region's state on its list.
    before: RegionState,
}

impl<B: MrBackend, M: DmaBuffer> Drawn<B, M> {
    /// Takes the region off its list for good; gives both back if it was on none.
    #[inline]
    pub(crate) fn new(
        mut slot: Boxed<B, M>,
        buffer: M,
        access: Access,
    ) -> Result<Self, (Boxed<B, M>, M)> {
        let before = slot.state();
        if !slot.enter(RegionState::Leased) {
            return Err((slot, buffer));
        }
        let tag = slot.tag.next();
        Ok(Self {
            slot,
            buffer,
            access,
            tag,
            addr: 0,
            before,
        })
    }

    /// What the backend is to be asked; `None` if the buffer has no bytes, which was checked.
    pub(crate) fn job(&mut self) -> Option<MapJob<'_, B::Region, B::Error>> {
        let memory = MemoryRange::of(&mut self.buffer)?;
        self.addr = memory.addr();
        Some(MapJob::new(
            &mut self.slot.region,
            memory,
            self.access,
            self.tag,
        ))
    }
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Has the backend map `buffer` with the drawn region.
    #[inline(always)]
    pub(crate) fn map(
        &self,
        slot: Boxed<B, M>,
        buffer: M,
        access: Access,
        map: impl FnOnce(&B, &mut B::Region, MemoryRange<'_>, Access, KeyTag) -> Result<Keys, B::Error>,
    ) -> Leased<B, M> {
        let mut drawn = self.prepare(slot, buffer, access)?;
        let Some(memory) = MemoryRange::of(&mut drawn.buffer) else {
            return self.take_back(drawn, LeaseRefusal::ZeroLength);
        };
        drawn.addr = memory.addr();
        let (region, tag) = (&mut drawn.slot.region, drawn.tag);
        let answer = self.ask_backend(|backend| map(backend, region, memory, access, tag));
        self.conclude(drawn, answer)
    }

    /// The region leaves its list for good, unless it is [taken back](Self::take_back).
    #[inline]
    pub(crate) fn prepare(
        &self,
        slot: Boxed<B, M>,
        buffer: M,
        access: Access,
    ) -> Result<Drawn<B, M>, LeaseError<B::Error, M>> {
        Drawn::new(slot, buffer, access).map_err(|(slot, buffer)| self.refuse_stray(slot, buffer))
    }

    /// The answer to a region in an impossible state, which is out of use from here on.
    #[cold]
    pub(crate) fn refuse_stray(&self, slot: Boxed<B, M>, buffer: M) -> LeaseError<B::Error, M> {
        self.fail_internally(slot);
        LeaseError {
            reason: Poisoned(PoisonedBy::Pool).into(),
            buffer: Some(buffer),
        }
    }

    /// The region is mapped with `keys`.
    #[inline]
    fn mapped(&self, drawn: Drawn<B, M>, keys: Keys) -> Boxed<B, M> {
        let mut slot = drawn.slot;
        self.use_tag(&mut slot, drawn.tag);
        if slot.current.is_some() {
            self.supersede(&mut slot);
        }
        slot.maps = slot.maps.saturating_add(1);
        let mapping = Mapping::new(drawn.buffer, drawn.addr, keys, drawn.access);
        slot.begin(mapping);
        slot
    }

    /// Makes of the backend's answer what follows from it; `None` if it panicked.
    #[inline]
    pub(crate) fn conclude(
        &self,
        drawn: Drawn<B, M>,
        answer: Option<Result<Keys, B::Error>>,
    ) -> Leased<B, M> {
        // A tag is used up unless the backend vouches that the key was never honoured: a region that
        // was refused 256 times must not come back to the key that is stale.
        match answer {
            Some(Ok(keys)) => Ok(self.mapped(drawn, keys)),
            Some(Err(error)) if error.kind().leaves_region_known() => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.take_back(drawn, LeaseRefusal::Backend(error))
            }
            Some(Err(error)) => {
                let kind = error.kind();
                self.confine_unknown(drawn, kind);
                Err(LeaseError {
                    reason: LeaseRefusal::Backend(error),
                    buffer: None,
                })
            }
            None => {
                self.confine_unknown(drawn, ErrorKind::Io);
                let reason = Poisoned(PoisonedBy::Backend).into();
                Err(LeaseError {
                    reason,
                    buffer: None,
                })
            }
        }
    }

    #[inline]
    fn use_tag(&self, slot: &mut Boxed<B, M>, tag: KeyTag) {
        slot.tag = tag;
        if tag == KeyTag::new(0) {
            self.tag_wraps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns buffer and region where the region is as it was.
    #[cold]
    pub(crate) fn take_back(
        &self,
        drawn: Drawn<B, M>,
        reason: LeaseRefusal<B::Error>,
    ) -> Leased<B, M> {
        let Drawn {
            mut slot, buffer, ..
        } = drawn;
        if slot.enter(drawn.before) {
            self.undraw(slot, buffer.len() as u64);
        } else {
            self.fail_internally(slot);
        }
        Err(LeaseError {
            reason,
            buffer: Some(buffer),
        })
    }

    /// The previous mapping of a region that has just been mapped again.
    #[inline(never)]
    fn supersede(&self, slot: &mut Boxed<B, M>) {
        let stale = slot.stale();
        let journey = slot.journey.take();
        let Some(mapping) = slot.current.take() else {
            return self.arrive(journey, &stale);
        };
        if self.capabilities.remap == Remap::KillsPrevious {
            self.bury_one(mapping, self.now());
            return self.arrive(journey, &stale);
        }
        slot.earlier.push(Superseded { mapping, fences: 0 });
        let Some(journey) = journey else {
            return;
        };
        let (awaited, first) = self.abroad.supersede(journey, &mut slot.earlier);
        if awaited {
            self.gate.notify();
        }
        if first {
            // A flush in the meantime may have forgotten how old these are.
            self.call_at(Time::ZERO);
        }
    }

    /// A `map` call has failed and left it unknown whether a key reaches the buffer.
    #[cold]
    fn confine_unknown(&self, drawn: Drawn<B, M>, kind: ErrorKind) {
        let now = self.now();
        let mut slot = drawn.slot;
        self.use_tag(&mut slot, drawn.tag);
        let stale = slot.stale();
        let journey = slot.journey.take();
        if let Some(mapping) = slot.current.take() {
            slot.earlier.push(Superseded { mapping, fences: 0 });
        }
        let unknown = Keys {
            local: LocalKey::from_bits(0),
            remote: RemoteKey::from_bits(0),
        };
        let mut mapping = Mapping::new(drawn.buffer, drawn.addr, unknown, drawn.access);
        mapping.released = now;
        mapping.send(Fate::Collect);
        self.refused.fetch_add(1, Ordering::Relaxed);
        let bytes = mapping.bytes;
        slot.current = Some(mapping);
        self.shards[self.my_shard()].lock().count_unmapped(bytes);
        self.confine(slot, kind);
        self.arrive(journey, &stale);
    }
}
