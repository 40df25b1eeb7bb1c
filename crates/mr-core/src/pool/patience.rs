//! What a lease does when no region is to be had at once: it helps to flush, and waits its turn.

use crate::LeaseRefusal;
use crate::clock::Deadline;
use crate::pool::core::Core;
use crate::pool::flush::Flush;
use crate::pool::gate::Turn;
use crate::pool::shard::Boxed;
use crate::sync::atomic::Ordering;
use crate::{DmaBuffer, MrBackend, Scope};
use std::time::Duration;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Gets a region although there is none, or too much is stale: helps to flush, else waits for
    /// its turn.
    #[cold]
    pub(crate) fn draw_patiently(
        &self,
        bytes: u64,
        patience: Option<Duration>,
    ) -> Result<Boxed<B, M>, LeaseRefusal<B::Error>> {
        let Some(patience) = patience else {
            return self.refuse();
        };
        self.waits.fetch_add(1, Ordering::Relaxed);
        let deadline = Deadline::after(patience);
        let waiter = self.queue.join();
        let found = loop {
            if let Err(refusal) = self.check_open() {
                break Err(refusal);
            }
            self.relieve(deadline);
            if !self.objections.is_over_bound()
                && let Some(slot) = self.draw(bytes)
            {
                break Ok(slot);
            }
            // One helper flushes what there is; one that finds nothing sleeps.
            if self.has_worn() && self.help() {
                continue;
            }
            let left = deadline.left();
            if left.is_zero() {
                break self.refuse();
            }
            if let Some(slot) = waiter.sleep(left) {
                self.count_bytes(bytes);
                break Ok(slot);
            }
        };
        let served = match (found, self.queue.leave(&waiter)) {
            (Ok(slot), None) => Ok(slot),
            (Ok(slot), Some(spare)) => {
                self.undraw(spare, 0);
                Ok(slot)
            }
            (Err(_), Some(slot)) if self.check_open().is_ok() => {
                self.count_bytes(bytes);
                Ok(slot)
            }
            (Err(refusal), Some(slot)) => {
                self.undraw(slot, 0);
                Err(refusal)
            }
            (Err(refusal), None) => Err(refusal),
        };
        // This waiter may have been told to look in the name of all, and goes.
        if !self.queue.is_empty() {
            self.serve();
        }
        served
    }

    /// Sees to it, if it can, that no more is stale than the bounds allow: flushes, after the flush
    /// under way if there is one.
    fn relieve(&self, deadline: Deadline) {
        let stop = || self.check_open().is_err();
        let ticket = self.gate.ticket();
        if self.objections.is_over_bound()
            && self.gate.wait(ticket, false, deadline, stop) == Turn::Start
        {
            self.help();
        }
    }

    fn has_worn(&self) -> bool {
        self.shards
            .iter()
            .any(|shard| shard.lock().glance().worn > 0)
    }

    /// Flushes what waits for it, unless another thread is at it. Says whether it did.
    fn help(&self) -> bool {
        self.begin_help().map(Flush::run).is_some()
    }

    /// Begins the flush that helps a lease to a region; `None` if it would free none.
    pub(crate) fn begin_help(&self) -> Option<Flush<'_, B, M>> {
        let flush = self.begin(Scope::Stale, false)?;
        (flush.regions() > 0).then_some(flush)
    }

    fn count_bytes(&self, bytes: u64) {
        let mut shard = self.shards[self.my_shard()].lock();
        shard.tally.leased_bytes.add(bytes);
    }

    #[cold]
    fn refuse<T>(&self) -> Result<T, LeaseRefusal<B::Error>> {
        self.check_open()?;
        let stale = self.view(self.now()).0.regions() + self.gate.in_flush().regions;
        Err(LeaseRefusal::Exhausted {
            capacity: self.config.capacity,
            leased: self.leased(),
            stale,
            quarantined: self.quarantine.lock().wards().regions,
        })
    }
}
