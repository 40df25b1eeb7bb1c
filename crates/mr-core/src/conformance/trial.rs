//! One check's harness, and what all checks do with it.

use super::{Harness, PeerError, Place};
use crate::{
    Access, AtRelease, FlushDecision, InvalidationPolicy, KeyTag, MemoryRange, MrBackend,
    ReleasedRegion, StaleView,
};
use std::fmt;

/// How a check ended that did not fail.
#[derive(Debug)]
pub enum Verdict {
    /// What it checks is so.
    Holds,
    /// The backend does not claim to do this.
    RuledOut(&'static str),
}

/// A harness in use.
#[derive(Debug)]
pub struct Trial<H> {
    pub(super) harness: H,
}

/// A region of the backend under test.
pub(super) type Region<H> = <<H as Harness>::Backend as MrBackend>::Region;

/// What most checks ask for.
pub(super) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE);

/// Bytes that most checks map.
pub(super) const LEN: usize = 4096;

impl<H: Harness> Trial<H> {
    pub(super) const fn new(harness: H) -> Self {
        Self { harness }
    }

    pub(super) fn backend(&self) -> &H::Backend {
        self.harness.backend()
    }

    pub(super) fn alloc(&self) -> Region<H> {
        self.backend().alloc().unwrap()
    }

    /// Maps, and tells the peer.
    ///
    /// The memory stays with the check, which keeps it until the key is dead or nobody has it.
    pub(super) fn map_as(
        &self,
        region: &mut Region<H>,
        memory: &mut H::Memory,
        access: Access,
        tag: u8,
    ) -> Place {
        let range = MemoryRange::of(memory).unwrap();
        let addr = self.backend().capabilities().remote_addr(range.addr());
        let tag = KeyTag::new(tag);
        let keys = self.backend().map(region, range, access, tag).unwrap();
        let key = keys.remote;
        Place { key, addr }
    }

    pub(super) fn map(&self, region: &mut Region<H>, memory: &mut H::Memory, tag: u8) -> Place {
        self.map_as(region, memory, ALL, tag)
    }

    /// A fresh region, mapped to fresh memory.
    pub(super) fn mapped(&self, tag: u8) -> (Region<H>, H::Memory, Place) {
        let mut region = self.alloc();
        let mut memory = self.harness.memory(LEN);
        let place = self.map(&mut region, &mut memory, tag);
        (region, memory, place)
    }

    pub(super) fn invalidate(&self, region: &mut Region<H>) {
        self.backend().invalidate(&mut [region]).unwrap();
    }

    /// The peer writes.
    pub(super) fn assert_writes(&self, place: Place, data: &[u8]) {
        assert_eq!(self.harness.write(place, 0, data), Ok(()), "{place:?}");
    }

    /// The peer's write is refused; the connection works again afterwards.
    pub(super) fn assert_write_refused(&self, place: Place) {
        self.assert_write_refused_at(place, 0, &[0xee; 64]);
    }

    pub(super) fn assert_write_refused_at(&self, place: Place, offset: u64, data: &[u8]) {
        let outcome = self.harness.write(place, offset, data);
        assert_eq!(outcome, Err(PeerError::Refused), "{place:?}");
        self.harness.recover();
    }

    /// The peer's read is refused; the connection works again afterwards.
    pub(super) fn assert_read_refused(&self, place: Place) {
        let outcome = self.harness.read(place, 0, &mut [0; 64]);
        assert_eq!(outcome, Err(PeerError::Refused), "{place:?}");
        self.harness.recover();
    }
}

/// Retires every region at its release and never flushes by itself.
pub(super) struct Hoard;

impl InvalidationPolicy for Hoard {
    fn at_release(&self, _region: &ReleasedRegion) -> Option<AtRelease> {
        Some(AtRelease::Retire)
    }

    fn flush(&self, _stale: &StaleView) -> FlushDecision {
        FlushDecision::SILENT
    }
}

impl fmt::Display for Hoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hoard")
    }
}
