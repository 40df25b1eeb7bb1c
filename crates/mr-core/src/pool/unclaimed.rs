//! Buffers whose keys are dead, until their owner reclaims them.

use std::collections::VecDeque;

/// A bounded queue of buffers.
pub(crate) struct Unclaimed<M> {
    buffers: VecDeque<M>,
    most: usize,
    dropped: u64,
}

impl<M> Unclaimed<M> {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            buffers: VecDeque::new(),
            most,
            dropped: 0,
        }
    }

    /// Takes in `new`; leaves there what finds no room, for the caller to drop.
    pub(crate) fn put(&mut self, new: &mut Vec<M>) {
        let room = self.most.saturating_sub(self.buffers.len());
        let surplus = new.len().saturating_sub(room);
        self.dropped += surplus as u64;
        self.buffers.extend(new.drain(surplus..));
    }

    /// Moves up to `most` buffers to `to`, oldest first. Says how many.
    pub(crate) fn take(&mut self, to: &mut Vec<M>, most: usize) -> usize {
        let count = self.buffers.len().min(most);
        to.extend(self.buffers.drain(..count));
        count
    }

    pub(crate) fn len(&self) -> usize {
        self.buffers.len()
    }

    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }
}
