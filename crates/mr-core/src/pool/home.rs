//! Regions and buffers that are back with their shard.

use crate::pool::core::Core;
use crate::pool::lot::Lot;
use crate::{DmaBuffer, DrawOrder, MrBackend, Time};

/// The most regions that are settled under one hold of a shard's lock.
pub(crate) const AT_A_TIME: usize = 64;

impl<B: MrBackend, M: DmaBuffer> Core<B, M> {
    /// Gives a lot whose keys are dead since `dead` back to its shard, where whoever works there
    /// settles it. Gives it back if it is to be settled at once.
    pub(crate) fn send_home(&self, lot: Lot<B, M>, dead: Time) -> Result<(), Lot<B, M>> {
        // The other orders are those of one list for all shards.
        let can_wait = lot.plain && !lot.failed && self.config.order == DrawOrder::Random;
        if !can_wait || !self.unclaimed.admit_all(lot.slots.len()) {
            return Err(lot);
        }
        self.shards[lot.home].lock().welcome(lot, dead);
        Ok(())
    }

    /// See [`Pool::reclaim`](crate::Pool::reclaim).
    pub(crate) fn reclaim(&self, to: &mut Vec<M>, most: usize) -> usize {
        let before = to.len();
        let mine = self.my_shard();
        for step in 0..self.shards.len() {
            let left = most - (to.len() - before);
            if left == 0 || self.unclaimed.count() == 0 {
                break;
            }
            let shard = (mine + step) & (self.shards.len() - 1);
            self.reclaim_from(shard, to, left);
        }
        to.len() - before
    }

    fn reclaim_from(&self, shard: usize, to: &mut Vec<M>, most: usize) {
        let before = to.len();
        loop {
            let left = most - (to.len() - before);
            let mut locked = self.shards[shard].lock();
            let more = locked.reclaim(to, left, AT_A_TIME);
            let strays = locked.dead.take_strays();
            drop(locked);
            strays
                .into_iter()
                .for_each(|slot| self.fail_internally(slot));
            if !more {
                break;
            }
        }
        self.unclaimed.leave(to.len() - before);
    }

    /// Settles up to `most` regions of a shard; their buffers stay there to be reclaimed.
    pub(crate) fn settle_shard(&self, shard: usize, most: usize) {
        let mut left = most;
        while left > 0 {
            let mut locked = self.shards[shard].lock();
            let settled = locked.settle(left.min(AT_A_TIME));
            let strays = locked.dead.take_strays();
            drop(locked);
            strays
                .into_iter()
                .for_each(|slot| self.fail_internally(slot));
            if settled == 0 {
                break;
            }
            left -= settled;
        }
    }

    /// Settles all that is back from flushes.
    pub(crate) fn settle_all(&self) {
        for shard in 0..self.shards.len() {
            self.settle_shard(shard, usize::MAX);
        }
    }

    /// Keeps buffers to be reclaimed by whoever works on this shard, after those that are there.
    /// Leaves those that find no room.
    pub(crate) fn keep_unclaimed(&self, buffers: &mut Vec<M>) {
        let mine = self.my_shard();
        self.settle_shard(mine, usize::MAX);
        let surplus = self.unclaimed.admit(buffers.len());
        let mut shard = self.shards[mine].lock();
        shard.unclaimed.extend(buffers.drain(surplus..));
    }
}
