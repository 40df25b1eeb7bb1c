//! map: how a drawn region gets its key, and what becomes of it where that fails.

use crate::backend::BackendError;
use crate::pool::core::Core;
use crate::pool::lease::Leased;
use crate::pool::shard::Boxed;
use crate::pool::slot::{Fate, Mapping, Superseded};
use crate::sync::atomic::Ordering;
use crate::{
    Access, DmaBuffer, ErrorKind, KeyTag, Keys, LeaseError, LeaseRefusal, LocalKey, MemoryRange,
    MrBackend, Poisoned, PoisonedBy, RegionState, Remap, RemoteKey, Time,
};

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Has the backend map `buffer` with the drawn region.
    pub(crate) fn map(
        &self,
        mut slot: Boxed<B, M>,
        mut buffer: M,
        access: Access,
        map: impl FnOnce(&B, &mut B::Region, MemoryRange<'_>, Access, KeyTag) -> Result<Keys, B::Error>,
    ) -> Leased<B, M> {
        let before = slot.state();
        if !slot.enter(RegionState::Leased) {
            self.fail_internally(slot);
            let reason = Poisoned(PoisonedBy::Pool).into();
            return Err(LeaseError {
                reason,
                buffer: Some(buffer),
            });
        }
        let Some(memory) = MemoryRange::of(&mut buffer) else {
            return self.take_back(slot, before, buffer, LeaseRefusal::ZeroLength);
        };
        let addr = memory.addr();
        let tag = slot.tag.next();
        let answer =
            self.ask_backend(|backend| map(backend, &mut slot.region, memory, access, tag));
        // A tag is used up unless the backend vouches that the key was never honoured: a region that
        // was refused 256 times must not come back to the key that is stale.
        let refused = |error: &B::Error| error.kind().leaves_region_known();
        if !matches!(&answer, Some(Err(error)) if refused(error)) {
            slot.tag = tag;
        }
        match answer {
            Some(Ok(keys)) => {
                if before == RegionState::Reusable {
                    self.supersede(&mut slot);
                }
                slot.maps = slot.maps.saturating_add(1);
                slot.current = Some(Mapping::new(buffer, addr, keys, access));
                Ok(slot)
            }
            Some(Err(error)) if refused(&error) => {
                self.take_back(slot, before, buffer, LeaseRefusal::Backend(error))
            }
            Some(Err(error)) => {
                let kind = error.kind();
                self.confine_unknown(slot, buffer, addr, access, kind);
                Err(LeaseError {
                    reason: LeaseRefusal::Backend(error),
                    buffer: None,
                })
            }
            None => {
                self.confine_unknown(slot, buffer, addr, access, ErrorKind::Io);
                let reason = Poisoned(PoisonedBy::Backend).into();
                Err(LeaseError {
                    reason,
                    buffer: None,
                })
            }
        }
    }

    /// Returns buffer and region after a refusal that left the region as it was.
    #[cold]
    fn take_back(
        &self,
        mut slot: Boxed<B, M>,
        before: RegionState,
        buffer: M,
        reason: LeaseRefusal<B::Error>,
    ) -> Leased<B, M> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if slot.enter(before) {
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
    fn confine_unknown(
        &self,
        mut slot: Boxed<B, M>,
        buffer: M,
        addr: u64,
        access: Access,
        kind: ErrorKind,
    ) {
        let now = self.now();
        let stale = slot.stale();
        let journey = slot.journey.take();
        if let Some(mapping) = slot.current.take() {
            slot.earlier.push(Superseded { mapping, fences: 0 });
        }
        let unknown = Keys {
            local: LocalKey::from_bits(0),
            remote: RemoteKey::from_bits(0),
        };
        let mut mapping = Mapping::new(buffer, addr, unknown, access);
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
