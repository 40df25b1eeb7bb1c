//! Regions of which nobody knows what their keys can do, with their memory.

use crate::pool::core::{Core, earlier};
use crate::pool::shard::{Boxed, count};
use crate::pool::slot::StaleSum;
use crate::{DmaBuffer, ErrorKind, MrBackend, RegionState, Time};

/// The pause between two tries doubles at most this many times.
const MAX_DOUBLINGS: u32 = 10;

/// The regions in quarantine, each with when it is to be tried again.
pub(crate) struct Quarantine<B: MrBackend, M> {
    confined: Vec<Confined<B, M>>,
    latest: Option<ErrorKind>,
    ever: u64,
}

struct Confined<B: MrBackend, M> {
    slot: Boxed<B, M>,
    /// `None`: it is not tried again.
    retry_at: Option<Time>,
}

/// The quarantine at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wards {
    /// Regions in quarantine.
    pub(crate) regions: u32,
    /// Those of them that are not tried again: their memory is leaked.
    pub(crate) leaked: u32,
    /// Kind of the latest failure.
    pub(crate) latest: Option<ErrorKind>,
    /// Admissions so far, repeated ones included.
    pub(crate) ever: u64,
    /// Their stale keys, and the release of the oldest.
    pub(crate) sum: StaleSum,
    pub(crate) oldest: Option<Time>,
    /// When the next is to be tried again.
    pub(crate) retry_at: Option<Time>,
}

impl<B: MrBackend, M: DmaBuffer> Quarantine<B, M> {
    pub(crate) const fn new() -> Self {
        Self {
            confined: Vec::new(),
            latest: None,
            ever: 0,
        }
    }

    pub(crate) fn wards(&self) -> Wards {
        let mut wards = Wards {
            regions: count(self.confined.len()),
            latest: self.latest,
            ever: self.ever,
            ..Wards::default()
        };
        for Confined { slot, retry_at } in &self.confined {
            wards.leaked += u32::from(retry_at.is_none());
            wards.sum.merge(&slot.stale());
            wards.oldest = earlier(wards.oldest, slot.oldest());
            wards.retry_at = earlier(wards.retry_at, *retry_at);
        }
        wards
    }

    /// Moves to `batch` what is to be tried again at `now`; if `all`, whatever is not given up.
    pub(crate) fn take_due(&mut self, now: Time, all: bool, batch: &mut Vec<Boxed<B, M>>) {
        let due = |at: Time| all || at <= now;
        let taken = self
            .confined
            .extract_if(.., |confined| confined.retry_at.is_some_and(due));
        batch.extend(taken.map(|confined| confined.slot));
    }

    /// Ends the quarantine's retries: what is in it stays, with its memory.
    pub(crate) fn give_up(&mut self) {
        for confined in &mut self.confined {
            confined.retry_at = None;
        }
    }
}

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Puts a region back into quarantine that a flush took out and did not get to.
    pub(crate) fn readmit(&self, slot: Boxed<B, M>) {
        let retry_at = Some(self.now_or(Time::ZERO));
        self.quarantine
            .lock()
            .confined
            .push(Confined { slot, retry_at });
    }

    /// Puts a region into quarantine after one more failed invalidation of it.
    pub(crate) fn confine(&self, mut slot: Boxed<B, M>, kind: ErrorKind) {
        if !slot.enter(RegionState::Quarantined) {
            slot.confine();
        }
        slot.failures += 1;
        let attempts = slot.failures;
        let pause = self.config.retry_after * (1 << (attempts - 1).min(MAX_DOUBLINGS));
        let retry_at =
            (attempts <= self.config.max_retries).then(|| self.now_or(Time::ZERO) + pause);
        let bytes: u64 = slot.mappings().map(|mapping| mapping.bytes).sum();
        if retry_at.is_some() {
            tracing::warn!(region = slot.id, attempts, %kind, bytes, "region quarantined");
        } else {
            tracing::error!(region = slot.id, attempts, %kind, bytes, "region given up, memory leaked");
        }
        let mut quarantine = self.quarantine.lock();
        quarantine.ever += 1;
        quarantine.latest = Some(kind);
        quarantine.confined.push(Confined { slot, retry_at });
        drop(quarantine);
        if let Some(at) = retry_at {
            self.call_at(at);
        }
    }
}
