//! Many windows bound in chains: one doorbell for as many as the send queue takes.

use super::{Ready, Request, Window2Backend, Window2Region};
use crate::Error;
use crate::link::Link;
use crate::post::Work;
use crate::send_queue::Trouble;
use crate::wait::Patience;
use mr_core::MapJob;
use std::sync::Arc;

pub(super) type Job<'a> = MapJob<'a, Window2Region, Error>;

/// Gives the request for the key of a place of the batch.
pub(super) type Requests<'r> = dyn FnMut(usize, mr_core::Keys) -> Vec<u8> + 'r;

/// Jobs at the start of what is left of a batch, as far as they can be posted.
struct Chain {
    ready: Vec<Ready>,
    /// Why the job behind them cannot.
    refused: Option<Error>,
}

impl Window2Backend {
    /// Does the jobs, in chains that are posted one after the other. Without `requests` each chain is waited
    /// for.
    ///
    /// A chain that fails costs the queue pair, as every failure does: then no key of the chain is
    /// alive, and one job has the error. Chains before it are done.
    pub(super) fn bind_batch(
        &self,
        batch: &mut [Job<'_>],
        mut requests: Option<&mut Requests<'_>>,
    ) {
        let works_per_job = if requests.is_some() { 2 } else { 1 };
        let mut last_chance = false;
        let mut first = 0;
        while first < batch.len() {
            let link = match self.endpoint.link() {
                Ok(link) => link,
                Err(error) => return batch[first].answer(Err(error)),
            };
            let most = (link.queue().longest_chain() / works_per_job).max(1);
            let end = batch.len().min(first + most);
            let jobs = &mut batch[first..end];
            let mut chain = self.prepare_chain(jobs, first, requests.as_deref_mut());
            let jobs = &mut jobs[..chain.ready.len()];
            let waits = requests.is_none();
            if let Err((culprit, error)) = self.post_chain(jobs, &mut chain.ready, &link, waits) {
                if !undo(jobs) {
                    return tracing::warn!(%error, "a chain of binds failed");
                }
                // That the queue pair was lost since its last use is noticed only now. Nothing of this
                // chain was done: on a new one it may go well.
                if error.is_of_lost_queue() && !std::mem::replace(&mut last_chance, true) {
                    continue;
                }
                return jobs[culprit].answer(Err(error));
            }
            for (job, ready) in jobs.iter_mut().zip(&chain.ready) {
                job.answer(Ok(ready.keys));
            }
            first += chain.ready.len();
            if let Some(error) = chain.refused {
                return batch[first].answer(Err(error));
            }
        }
    }

    fn prepare_chain(
        &self,
        jobs: &mut [Job<'_>],
        first: usize,
        mut requests: Option<&mut Requests<'_>>,
    ) -> Chain {
        let mut ready = Vec::with_capacity(jobs.len());
        for job in jobs {
            let place = first + ready.len();
            let (region, memory, access, tag) = job.arguments();
            let made = match &mut requests {
                None => self.prepare(region, &memory, access, tag, None),
                Some(requests) => {
                    let request: &mut Request<'_> = &mut |keys| requests(place, keys);
                    self.prepare(region, &memory, access, tag, Some(request))
                }
            };
            match made {
                Ok(made) => ready.push(made),
                Err(error) => {
                    let refused = Some(error);
                    return Chain { ready, refused };
                }
            }
        }
        Chain {
            ready,
            refused: None,
        }
    }

    /// Posts the chain, and waits for it if `waits`. An error comes with the place of the job that
    /// failed, as far as it is known.
    fn post_chain(
        &self,
        jobs: &mut [Job<'_>],
        ready: &mut [Ready],
        link: &Arc<Link>,
        waits: bool,
    ) -> Result<(), (usize, Error)> {
        if ready.is_empty() {
            return Ok(());
        }
        for (job, ready) in jobs.iter_mut().zip(&mut *ready) {
            // From here on the HCA may honour the key.
            job.region().begin(ready, link);
        }
        let ready = &*ready;
        let works = works(ready);
        let last = works.len() as u64 - 1;
        let queue = link.queue();
        let mut patience = Patience::new(self.endpoint.config().timeout);
        // SAFETY: each region keeps its window, and with it the arena, until the key is dead; a
        // message is copied at once.
        let posted = unsafe { queue.post(works, waits, &mut patience) };
        for (job, ready) in jobs.iter_mut().zip(ready) {
            job.region().tell_window(ready.keys.remote);
        }
        let (culprit, trouble) = match posted {
            Ok(number) if waits => match queue.wait(number + last, &mut patience) {
                Ok(()) => return Ok(()),
                Err(trouble) => {
                    let done = queue.done().saturating_sub(number).min(last);
                    (done as usize, trouble)
                }
            },
            Ok(_) => return Ok(()),
            Err(trouble) => (0, trouble),
        };
        if !matches!(trouble, Trouble::Full) {
            queue.give_up();
        }
        let error = trouble.into_error(Self::WHAT, last as usize + 1, queue, &patience);
        Err((culprit, error))
    }
}

/// The work requests of a chain: binds, each with its message behind it if they have any.
fn works(ready: &[Ready]) -> impl ExactSizeIterator<Item = Work<'_>> + Clone {
    // Either all have one or none: 1 or 0.
    let messages = usize::from(ready.first().is_some_and(|ready| ready.message.is_some()));
    (0..ready.len() << messages).map(move |place| {
        let ready = &ready[place >> messages];
        match &ready.message {
            Some(message) if place & messages == 1 => Work::Send { message },
            _ => ready.bind(),
        }
    })
}

/// Frees the windows of a chain of which nothing is to be left; a job whose window cannot be freed
/// has that for its answer. Says whether all are as before.
fn undo(jobs: &mut [Job<'_>]) -> bool {
    let mut all = true;
    for job in jobs {
        if let Err(error) = job.region().end() {
            job.answer(Err(error));
            all = false;
        }
    }
    all
}
