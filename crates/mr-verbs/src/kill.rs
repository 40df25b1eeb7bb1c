//! One invalidation of a batch of type 2 windows.

use crate::Error;
use crate::link::Link;
use crate::post::Work;
use crate::wait::Patience;
use crate::window2::{Window2Backend, Window2Region};
use mr_core::BatchError;
use std::sync::Arc;
use std::time::Duration;

/// A batch on its way: which of its regions are settled, and how.
///
/// What can be killed by LOCAL_INV is, in chains as long as the queue takes, with one completion
/// to wait for. Whatever goes wrong then, what was not seen to die gets its window freed, after the
/// queue pair was given up: so a failed chain costs a new queue pair, and leaves no key alive.
pub(crate) struct Kill<'b, 'r> {
    regions: &'b mut [&'r mut Window2Region],
    verdicts: Vec<Option<Error>>,
    /// Places of regions whose key may be alive, with it.
    pending: Vec<(usize, u32)>,
}

impl<'b, 'r> Kill<'b, 'r> {
    pub(crate) fn new(backend: &Window2Backend, regions: &'b mut [&'r mut Window2Region]) -> Self {
        // A window must not be invalidated twice: what the peer has done already is left out, as
        // far as it is known. A peer that does it at this very moment costs the queue pair.
        backend.endpoint().look_for_invalidations();
        let mut verdicts = Vec::new();
        let mut pending = Vec::with_capacity(regions.len());
        for (place, region) in regions.iter_mut().enumerate() {
            if let Err(error) = backend.check_home(region) {
                verdicts.resize_with(place, || None);
                verdicts.push(Some(error));
            } else if region.is_killed_by_peer() {
                region.unbound();
            } else if let Some(bound) = &region.bound {
                pending.push((place, bound.key.bits()));
            }
        }
        Self {
            regions,
            verdicts,
            pending,
        }
    }

    /// Kills all. Waits for the HCA at most `limit` for each connection in the batch.
    pub(crate) fn run(mut self, limit: Duration) -> Result<(), BatchError<Error>> {
        while let Some(link) = self.next_link() {
            let on_link = self.take_pending(&link);
            let dead = if link.queue().has_failed() {
                0
            } else {
                self.invalidate(&link, &on_link, &mut Patience::new(limit))
            };
            for (place, (region, _)) in on_link.into_iter().enumerate() {
                if place < dead {
                    self.regions[region].unbound();
                } else if let Err(error) = self.regions[region].end() {
                    self.fail(region, error);
                }
            }
        }
        self.report()
    }

    /// The connection of the next region to be killed.
    fn next_link(&self) -> Option<Arc<Link>> {
        let (place, _) = *self.pending.first()?;
        let bound = self.regions[place].bound.as_ref()?;
        Some(Arc::clone(&bound.link))
    }

    /// Takes what is pending on this connection. The rest is on others: leases may be older than the
    /// present one.
    fn take_pending(&mut self, link: &Arc<Link>) -> Vec<(usize, u32)> {
        let pending = std::mem::take(&mut self.pending);
        let is_here = |&(place, _): &(usize, u32)| {
            let bound = self.regions[place].bound.as_ref();
            bound.is_none_or(|bound| Arc::ptr_eq(&bound.link, link))
        };
        // Nearly always.
        if pending.iter().all(is_here) {
            return pending;
        }
        let (here, others) = pending.iter().partition(|&pending| is_here(pending));
        self.pending = others;
        here
    }

    /// Invalidates these keys. Says how many, from the first on, are known to be dead; if not all,
    /// the queue pair was given up.
    fn invalidate(&self, link: &Link, keys: &[(usize, u32)], patience: &mut Patience) -> usize {
        let queue = link.queue();
        let mut chains = Vec::new();
        let mut posted = 0;
        for chain in keys.chunks(queue.longest_chain()) {
            let len = chain.len();
            let is_last = posted + len == keys.len();
            let works = chain.iter().map(|&(_, key)| Work::Invalidate { key });
            // SAFETY: an invalidation names no memory.
            let Ok(first) = (unsafe { queue.post(works, is_last, patience) }) else {
                break;
            };
            chains.push(Chain { first, len });
            posted += len;
        }
        if posted == keys.len()
            && let Some(last) = chains.last()
            && queue.wait(last.end() - 1, patience).is_ok()
        {
            return keys.len();
        }
        queue.give_up();
        tracing::warn!(
            regions = keys.len(),
            "invalidation failed; freeing what is left"
        );
        requests_done(&chains, queue.done())
    }

    fn fail(&mut self, place: usize, error: Error) {
        if self.verdicts.len() <= place {
            self.verdicts.resize_with(place + 1, || None);
        }
        self.verdicts[place] = Some(error);
    }

    fn report(mut self) -> Result<(), BatchError<Error>> {
        if self.verdicts.iter().all(Option::is_none) {
            return Ok(());
        }
        self.verdicts.resize_with(self.regions.len(), || None);
        let verdict = |error: Option<Error>| error.map_or(Ok(()), Err);
        Err(BatchError::each(
            self.verdicts.into_iter().map(verdict).collect(),
        ))
    }
}

/// Consecutive requests of one chain, by number. Those of other threads may lie between two
/// chains, but not inside of one.
#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u64,
    len: usize,
}

impl Chain {
    /// The number of the request behind.
    const fn end(&self) -> u64 {
        self.first + self.len as u64
    }
}

/// How many requests of the chains are among those with a number below `done`.
fn requests_done(chains: &[Chain], done: u64) -> usize {
    let of_chain = |chain: &Chain| done.clamp(chain.first, chain.end()) - chain.first;
    chains.iter().map(of_chain).sum::<u64>() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever others posted in between: a request counts as done exactly if it is.
    #[test]
    fn requests_of_others_are_not_counted() {
        for (len_a, gap, len_b) in [(2, 0, 3), (2, 3, 2), (1, 9, 4), (4, 1, 1)] {
            let first = 10;
            let a = Chain { first, len: len_a };
            let first = a.end() + gap;
            let b = Chain { first, len: len_b };
            let numbers: Vec<u64> = (a.first..a.end()).chain(b.first..b.end()).collect();
            for done in 0..b.end() + 5 {
                let expected = numbers.iter().filter(|&&number| number < done).count();
                assert_eq!(requests_done(&[a, b], done), expected, "{a:?} {b:?} {done}");
            }
        }
        assert_eq!(requests_done(&[], 7), 0);
    }
}
