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
    /// Places of regions whose key may be alive.
    pending: Vec<usize>,
}

impl<'b, 'r> Kill<'b, 'r> {
    pub(crate) fn new(backend: &Window2Backend, regions: &'b mut [&'r mut Window2Region]) -> Self {
        // A window must not be invalidated twice: what the peer has done already is left out, as
        // far as it is known. (A peer that does it at this very moment costs the queue pair; and
        // with the driver of Soft-RoCE in Linux 6.1, which then follows a null pointer, the host.)
        backend.endpoint().look_for_invalidations();
        let mut verdicts = Vec::new();
        let mut pending = Vec::with_capacity(regions.len());
        for (place, region) in regions.iter_mut().enumerate() {
            if let Err(error) = backend.check_home(region) {
                verdicts.resize_with(place, || None);
                verdicts.push(Some(error));
            } else if region.is_killed_by_peer() {
                region.unbound();
            } else if region.bound.is_some() {
                pending.push(place);
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
            let (on_link, others) = self.split(&link);
            self.pending = others;
            let dead = if link.queue().has_failed() {
                0
            } else {
                self.invalidate(&link, &on_link, &mut Patience::new(limit))
            };
            for (place, region) in on_link.into_iter().enumerate() {
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
        let place = *self.pending.first()?;
        let bound = self.regions[place].bound.as_ref()?;
        Some(Arc::clone(&bound.link))
    }

    /// What is pending on this connection, and what on others (leases may be older than the
    /// present one).
    fn split(&mut self, link: &Arc<Link>) -> (Vec<usize>, Vec<usize>) {
        let pending = std::mem::take(&mut self.pending);
        pending.into_iter().partition(|&place| {
            let bound = self.regions[place].bound.as_ref();
            bound.is_none_or(|bound| Arc::ptr_eq(&bound.link, link))
        })
    }

    /// Invalidates the keys of the regions at these places. Says how many, from the first on, are
    /// known to be dead; if not all, the queue pair was given up.
    fn invalidate(&self, link: &Link, places: &[usize], patience: &mut Patience) -> usize {
        let keys = places
            .iter()
            .filter_map(|&place| self.regions[place].bound.as_ref());
        let works: Vec<Work<'_>> = keys
            .map(|bound| Work::Invalidate {
                key: bound.key.bits(),
            })
            .collect();
        let queue = link.queue();
        // First request of each chain, and how many there are before it.
        let mut chains = Vec::new();
        let mut posted = 0;
        let mut last = None;
        for chain in works.chunks(queue.longest_chain()) {
            let is_last = posted + chain.len() == works.len();
            // SAFETY: an invalidation names no memory.
            match unsafe { queue.post(chain, is_last, patience) } {
                Ok(first) => {
                    chains.push((first, posted));
                    posted += chain.len();
                    last = Some(first + chain.len() as u64 - 1);
                }
                Err(_) => break,
            }
        }
        if posted == works.len()
            && let Some(last) = last
            && queue.wait(last, patience).is_ok()
        {
            return works.len();
        }
        queue.give_up();
        let done = queue.done();
        tracing::warn!(
            regions = works.len(),
            "invalidation failed; freeing what is left"
        );
        // Requests of other threads may lie between two chains, but not inside of one.
        let in_doubt = chains.iter().rev().find(|(first, _)| *first < done);
        in_doubt.map_or(0, |(first, before)| {
            (before + (done - first) as usize).min(posted)
        })
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
