//! A region with all that the pool knows of it. Whoever owns the slot owns the region.

use crate::pool::abroad::Journey;
use crate::pool::handback::Handback;
use crate::{Access, DmaBuffer, ErrorKind, KeyTag, Keys, MrBackend, RegionState, Time};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use thin_vec::ThinVec;

/// A region on its way through the pool. It is moved from owner to owner (a list, a lease, a
/// flush), so that in safe code two owners of one region cannot exist.
pub(crate) struct Slot<B: MrBackend, M> {
    pub(crate) region: B::Region,
    pub(crate) id: u32,
    state: RegionState,
    /// Tag of the latest mapping. Never restarts.
    pub(crate) tag: KeyTag,
    /// Mappings since the last invalidation. A region is retired before its tags come round, so
    /// they fit.
    pub(crate) maps: u8,
    /// Invalidations that failed since the last one that succeeded.
    pub(crate) failures: u32,
    /// What the latest invalidation failed of, until the region is in quarantine.
    pub(crate) failure: Option<ErrorKind>,
    /// The live mapping of a leased region, the latest stale one of a stale region.
    pub(crate) current: Option<Mapping<M>>,
    /// Stale mappings that a remap has replaced but may not have killed. Nearly always empty, so it
    /// takes one word until it is not.
    pub(crate) earlier: ThinVec<Superseded<M>>,
    /// Of a stale region that was drawn, until it has been mapped or put back.
    pub(crate) journey: Option<Journey>,
}

/// One use of a region for one buffer.
///
/// Unless the buffer is taken out it is never dropped: whatever goes wrong on the way, memory that
/// a live key may reach is leaked rather than freed. Whoever takes it out has no mapping any more.
pub(crate) struct Mapping<M> {
    buffer: ManuallyDrop<M>,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) keys: Keys,
    pub(crate) access: Access,
    /// Meaningful from the release on.
    pub(crate) released: Time,
    /// The buffer's [`Fate`], in less room: whom it is handed to, else whether it is collected.
    handback: Option<Arc<Handback<M>>>,
    collect: bool,
}

/// A stale mapping of a region that has been mapped again since.
pub(crate) struct Superseded<M> {
    pub(crate) mapping: Mapping<M>,
    /// Fences that had begun before it was superseded.
    pub(crate) fences: u64,
}

/// What becomes of a buffer when its key is dead.
pub(crate) enum Fate<M> {
    /// Dropped: its lease was dropped.
    Drop,
    /// Kept for `Pool::reclaim`.
    Collect,
    /// Handed to whoever waits for it.
    Hand(Arc<Handback<M>>),
}

/// A sum over stale mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaleSum {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    /// Of the times of release, in ns.
    pub(crate) times: u128,
    /// Of bytes × time of release.
    pub(crate) byte_times: u128,
}

impl StaleSum {
    pub(crate) fn of<M>(mapping: &Mapping<M>) -> Self {
        let mut sum = Self::default();
        sum.add(mapping.bytes, mapping.released);
        sum
    }

    pub(crate) fn add(&mut self, bytes: u64, released: Time) {
        self.keys += 1;
        self.bytes += bytes;
        self.times += u128::from(released.as_nanos());
        self.byte_times += u128::from(bytes) * u128::from(released.as_nanos());
    }

    pub(crate) const fn merge(&mut self, other: &Self) {
        self.keys += other.keys;
        self.bytes += other.bytes;
        self.times += other.times;
        self.byte_times += other.byte_times;
    }

    pub(crate) const fn remove(&mut self, other: &Self) {
        self.keys -= other.keys;
        self.bytes -= other.bytes;
        self.times -= other.times;
        self.byte_times -= other.byte_times;
    }

    /// Sum of the ages at `now`, in key-nanoseconds.
    pub(crate) fn key_nanos(&self, now: Time) -> u128 {
        (u128::from(self.keys) * u128::from(now.as_nanos())).saturating_sub(self.times)
    }

    /// Sum of the ages at `now`, each times its bytes.
    pub(crate) fn byte_nanos(&self, now: Time) -> u128 {
        (u128::from(self.bytes) * u128::from(now.as_nanos())).saturating_sub(self.byte_times)
    }
}

impl<M: DmaBuffer> Mapping<M> {
    pub(crate) fn new(buffer: M, addr: u64, keys: Keys, access: Access) -> Self {
        let bytes = buffer.len() as u64;
        Self {
            buffer: ManuallyDrop::new(buffer),
            addr,
            bytes,
            keys,
            access,
            released: Time::ZERO,
            handback: None,
            collect: false,
        }
    }

    /// Decides, once, where the buffer goes when its key is dead; until then it is dropped.
    #[inline]
    pub(crate) fn send(&mut self, fate: Fate<M>) {
        match fate {
            Fate::Drop => {}
            Fate::Collect => self.collect = true,
            Fate::Hand(handback) => self.handback = Some(handback),
        }
    }

    /// Whether it is only to be kept for `Pool::reclaim`, which nobody waits for.
    pub(crate) const fn is_collected(&self) -> bool {
        self.collect && self.handback.is_none()
    }

    /// The buffer and where it goes. To be called when the key is dead.
    #[inline]
    pub(crate) fn into_estate(self) -> (M, Fate<M>) {
        let fate = match self.handback {
            Some(handback) => Fate::Hand(handback),
            None if self.collect => Fate::Collect,
            None => Fate::Drop,
        };
        (ManuallyDrop::into_inner(self.buffer), fate)
    }

    /// The buffer, wherever it was to go. To be called when the key is dead.
    #[inline]
    pub(crate) fn into_buffer(self) -> M {
        ManuallyDrop::into_inner(self.buffer)
    }
}

impl<B: MrBackend, M: DmaBuffer> Slot<B, M> {
    pub(crate) const fn new(region: B::Region, id: u32, tag: KeyTag) -> Self {
        let state = RegionState::Clean;
        Self {
            region,
            id,
            state,
            tag,
            maps: 0,
            failures: 0,
            failure: None,
            current: None,
            earlier: ThinVec::new(),
            journey: None,
        }
    }

    pub(crate) const fn state(&self) -> RegionState {
        self.state
    }

    /// Goes to `next`; `false` and no change if `next` cannot follow the present state.
    #[must_use]
    pub(crate) const fn enter(&mut self, next: RegionState) -> bool {
        let legal = self.state.may_become(next);
        if legal {
            self.state = next;
        }
        legal
    }

    /// Goes from the dirty list or the quarantine through a flush, and is clean; as
    /// [`enter`](Self::enter).
    #[must_use]
    pub(crate) const fn enter_through_flush(&mut self) -> bool {
        self.enter(RegionState::InFlush) && self.enter(RegionState::Clean)
    }

    /// Takes the mapping that begins a lease. The previous one, if there was one, must be out.
    #[inline]
    pub(crate) fn begin(&mut self, mapping: Mapping<M>) {
        // Not dropped, since there is nothing to drop: so it is written in its place at once.
        std::mem::forget(self.current.replace(mapping));
    }

    /// Forgets what was before a successful invalidation, and gives out the latest mapping.
    #[inline]
    pub(crate) const fn forget(&mut self) -> Option<Mapping<M>> {
        self.maps = 0;
        self.failures = 0;
        self.current.take()
    }

    /// Whether nobody waits for its burial: its one buffer is to be reclaimed.
    pub(crate) fn is_plain(&self) -> bool {
        let collected = self.current.as_ref().is_some_and(Mapping::is_collected);
        collected && self.earlier.is_empty()
    }

    /// Into quarantine whatever the state: the answer to every doubt.
    pub(crate) const fn confine(&mut self) {
        self.state = RegionState::Quarantined;
    }

    /// The stale mappings of a region that is not leased: all it has.
    pub(crate) fn stale(&self) -> StaleSum {
        let mut sum = StaleSum::default();
        for mapping in self.mappings() {
            sum.add(mapping.bytes, mapping.released);
        }
        sum
    }

    /// Release of the latest mapping.
    pub(crate) fn latest(&self) -> Option<Time> {
        self.current.as_ref().map(|mapping| mapping.released)
    }

    /// Release of the oldest mapping.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.mappings().next().map(|mapping| mapping.released)
    }

    pub(crate) fn mappings(&self) -> impl Iterator<Item = &Mapping<M>> {
        self.earlier
            .iter()
            .map(|earlier| &earlier.mapping)
            .chain(&self.current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_stays_small() {
        // With the region, its counters and a share of the lists it comes to less than 128 bytes.
        assert!(size_of::<Mapping<Vec<u8>>>() <= 72);
        assert_eq!(
            size_of::<ThinVec<Superseded<Vec<u8>>>>(),
            size_of::<usize>()
        );
    }
}
