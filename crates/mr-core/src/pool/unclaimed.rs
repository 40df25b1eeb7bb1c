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
        if self.buffers.is_empty() && surplus == 0 {
            // A whole batch changes hands without being copied.
            self.buffers = std::mem::take(new).into();
        } else {
            self.buffers.extend(new.drain(surplus..));
        }
    }

    /// Moves up to `most` buffers to `to`, oldest first. Says how many.
    pub(crate) fn take(&mut self, to: &mut Vec<M>, most: usize) -> usize {
        let count = self.buffers.len().min(most);
        let all = count == self.buffers.len();
        if all && to.is_empty() && to.capacity() <= self.buffers.capacity() {
            *to = std::mem::take(&mut self.buffers).into();
        } else {
            to.extend(self.buffers.drain(..count));
        }
        count
    }

    pub(crate) fn len(&self) -> usize {
        self.buffers.len()
    }

    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::SizeRange;

    proptest! {
        #[test]
        fn buffers_come_out_in_order_and_once(
            steps in prop::collection::vec((0_usize..5, 0_usize..5, any::<bool>()), SizeRange::from(0..20)),
        ) {
            let mut unclaimed = Unclaimed::new(8);
            let (mut made, mut lost, mut taken) = (0_u32, Vec::new(), Vec::new());
            for (new, most, into_empty) in steps {
                let mut batch: Vec<_> = (made..).take(new).collect();
                made += batch.len() as u32;
                unclaimed.put(&mut batch);
                lost.append(&mut batch);
                let mut to = if into_empty { Vec::new() } else { vec![u32::MAX] };
                let before = to.len();
                prop_assert_eq!(unclaimed.take(&mut to, most), to.len() - before);
                prop_assert!(to.len() - before <= most && unclaimed.len() <= 8);
                taken.extend(to.drain(before..));
            }
            unclaimed.take(&mut taken, usize::MAX);
            prop_assert!(taken.is_sorted());
            prop_assert_eq!(unclaimed.dropped(), lost.len() as u64);
            taken.extend(lost);
            taken.sort_unstable();
            prop_assert_eq!(taken, (0..made).collect::<Vec<_>>());
        }
    }
}
