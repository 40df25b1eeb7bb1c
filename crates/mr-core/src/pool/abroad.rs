//! Stale keys that are on no list: of regions that are being mapped again, and earlier keys of
//! regions that have been.
//!
//! A region that is drawn although a key of it is stale *travels*: until it has been mapped, or put
//! back, no flush can take it. Once it has been mapped its earlier keys are *superseded*: a fence for
//! the whole HCA reaches them although their region is leased. Both happen only where regions are
//! mapped again before they are invalidated, so only there does a lease come here.

use crate::Time;
use crate::pool::core::earlier;
use crate::pool::slot::{Mapping, StaleSum, Superseded};
use crate::sync::ShortLock;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;
use thin_vec::ThinVec;

/// How many successful fences are remembered. A key that an older one killed counts as dead since
/// the oldest of these: its exposure is overstated rather than understated.
const REMEMBERED: usize = 64;

/// The pause after a failed fence doubles at most this many times.
const MAX_DOUBLINGS: u32 = 10;

/// The books of the keys that are on no list.
pub(crate) struct Abroad(ShortLock<Books>);

#[derive(Default)]
struct Books {
    /// Journeys begun so far, and the numbers of those that have not ended.
    journeys: u64,
    underway: Vec<u64>,
    /// Those of them that come home from a lease.
    homing: u64,
    /// Keys of the regions that travel.
    travelling: StaleSum,
    /// Callers of `flush` who wait for travellers: whatever is put back must stay for them.
    awaiting: u32,
    /// Fences begun so far; the keys superseded before the one that is under way, and since.
    fences: u64,
    fencing: Option<Batch>,
    superseded: Batch,
    /// Number of each successful fence, and when it had completed.
    done: VecDeque<(u64, Time)>,
    /// Fences that failed since, and when to try again.
    failures: u32,
    retry_at: Option<Time>,
}

#[derive(Clone, Copy, Default)]
struct Batch {
    sum: StaleSum,
    /// None of them was released earlier.
    oldest: Option<Time>,
}

/// The journey of one region, from its draw until it is mapped or put back.
#[derive(Debug)]
#[must_use = "a journey that does not end holds up every flush"]
pub(crate) struct Journey(NonZeroU64);

impl Journey {
    /// Number and direction in one word: every region has room for one.
    fn new(number: u64, home: bool) -> Self {
        Self(NonZeroU64::MIN.saturating_add((number << 1 | u64::from(home)) - 1))
    }

    const fn number(&self) -> u64 {
        self.0.get() >> 1
    }

    const fn is_home(&self) -> bool {
        self.0.get() & 1 == 1
    }
}

/// What a fence has done to the superseded keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fenced {
    /// They are dead.
    Done(Time),
    /// The backend was not asked.
    GivenUp,
    /// The backend failed. The pause before the next try doubles from try to try.
    Failed(Retry),
}

/// When a fence that has failed is tried again: some time after now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub(crate) now: Time,
    pub(crate) pause: Duration,
}

impl Batch {
    fn merge(&mut self, other: Self) {
        if other.sum.keys > 0 {
            self.sum.merge(&other.sum);
            self.oldest = earlier(self.oldest, other.oldest);
        }
    }

    fn remove(&mut self, sum: &StaleSum) {
        self.sum.remove(sum);
        if self.sum.keys == 0 {
            self.oldest = None;
        }
    }
}

impl Abroad {
    pub(crate) fn new() -> Self {
        Self(ShortLock::new(Books::default()))
    }

    /// A region with these stale keys leaves its list. To be called under the list's lock: no flush
    /// may find it neither there nor here.
    pub(crate) fn depart(&self, stale: &StaleSum) -> Journey {
        let books = &mut *self.0.lock();
        books.travelling.merge(stale);
        books.depart(false)
    }

    /// A region with `earlier` superseded mappings comes back from its lease, and is on no list for
    /// a moment. Takes out those that are dead by now, each with the time of its death.
    pub(crate) fn come_home<M>(
        &self,
        earlier: &mut ThinVec<Superseded<M>>,
        mut dead: impl FnMut(Mapping<M>, Time),
    ) -> Journey {
        let books = &mut *self.0.lock();
        let killed = earlier.partition_point(|key| books.killer(key.fences).is_some());
        for key in earlier.drain(..killed) {
            if let Some(time) = books.killer(key.fences) {
                dead(key.mapping, time);
            }
        }
        for key in &*earlier {
            let sum = StaleSum::of(&key.mapping);
            books.batch_of(key.fences).remove(&sum);
            books.travelling.merge(&sum);
        }
        books.depart(true)
    }

    /// A region with these stale keys is on a list again. Says whether somebody waits for that.
    pub(crate) fn arrive(&self, journey: Journey, stale: &StaleSum) -> bool {
        self.0.lock().arrive(journey, stale)
    }

    /// A region has been mapped again: `earlier` are its earlier mappings, and a remap leaves them
    /// alive. Says whether somebody waits for that, and whether these are the first since the
    /// latest fence.
    pub(crate) fn supersede<M>(
        &self,
        journey: Journey,
        earlier: &mut [Superseded<M>],
    ) -> (bool, bool) {
        let books = &mut *self.0.lock();
        let mut batch = Batch::default();
        for key in earlier {
            key.fences = books.fences;
            batch.merge(Batch {
                sum: StaleSum::of(&key.mapping),
                oldest: Some(key.mapping.released),
            });
        }
        let first = books.superseded.sum.keys == 0;
        books.superseded.merge(batch);
        (books.arrive(journey, &batch.sum), first)
    }

    /// A fence is about to begin: it will kill what is superseded now. Says how many keys, those
    /// included that are just coming home: the fence reaches them all the same.
    pub(crate) fn begin_fence(&self) -> u64 {
        let books = &mut *self.0.lock();
        books.fences += 1;
        let batch = std::mem::take(&mut books.superseded);
        books.fencing = Some(batch);
        batch.sum.keys + books.homing
    }

    /// The fence that began last has ended.
    pub(crate) fn end_fence(&self, outcome: Fenced) {
        let books = &mut *self.0.lock();
        let Some(batch) = books.fencing.take() else {
            return;
        };
        match outcome {
            Fenced::Done(completed) => {
                books.failures = 0;
                books.retry_at = None;
                if books.done.len() == REMEMBERED {
                    books.done.pop_front();
                }
                books.done.push_back((books.fences, completed));
            }
            Fenced::GivenUp => books.superseded.merge(batch),
            Fenced::Failed(_) if batch.sum.keys == 0 => {}
            Fenced::Failed(retry) => {
                books.superseded.merge(batch);
                let pause = retry.pause * (1 << books.failures.min(MAX_DOUBLINGS));
                books.failures = books.failures.saturating_add(1);
                books.retry_at = Some(retry.now + pause);
            }
        }
    }

    /// The superseded keys, and the release of the oldest, as the policy is to see them: not while
    /// the next try after a failed fence is still to come.
    pub(crate) fn due(&self, now: Time) -> (StaleSum, Option<Time>) {
        let books = self.0.lock();
        match books.retry_at {
            Some(retry_at) if now < retry_at => (StaleSum::default(), None),
            _ => (books.superseded.sum, books.superseded.oldest),
        }
    }

    /// When a fence that failed may be tried again, if that is still to come.
    pub(crate) fn retry_at(&self, now: Time) -> Option<Time> {
        let books = self.0.lock();
        let hidden = books.superseded.sum.keys > 0;
        books.retry_at.filter(|retry_at| hidden && *retry_at > now)
    }

    /// All keys in these books, and the release of the oldest superseded one.
    pub(crate) fn all(&self) -> (StaleSum, Option<Time>) {
        let books = self.0.lock();
        let mut all = books.superseded;
        if let Some(fencing) = books.fencing {
            all.merge(fencing);
        }
        all.sum.merge(&books.travelling);
        (all.sum, all.oldest)
    }

    /// From now until [`stop_waiting`](Self::stop_waiting) nothing that is put back can travel again.
    /// Gives the number of the latest journey, if none is under way.
    pub(crate) fn wait(&self) -> Option<u64> {
        let mut books = self.0.lock();
        books.awaiting += 1;
        books.underway.is_empty().then_some(books.journeys)
    }

    pub(crate) fn stop_waiting(&self) {
        self.0.lock().awaiting -= 1;
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.0.lock().awaiting > 0
    }

    /// The number of the latest journey.
    pub(crate) fn latest(&self) -> u64 {
        self.0.lock().journeys
    }

    /// Whether no journey up to that one is under way.
    pub(crate) fn have_arrived(&self, latest: u64) -> bool {
        let books = self.0.lock();
        books.underway.iter().all(|journey| *journey > latest)
    }
}

impl Books {
    fn depart(&mut self, home: bool) -> Journey {
        self.journeys += 1;
        self.underway.push(self.journeys);
        self.homing += u64::from(home);
        Journey::new(self.journeys, home)
    }

    fn arrive(&mut self, journey: Journey, stale: &StaleSum) -> bool {
        self.travelling.remove(stale);
        self.underway.retain(|other| *other != journey.number());
        self.homing -= u64::from(journey.is_home());
        self.awaiting > 0
    }

    /// When a key that was superseded after `fences` fences had begun was dead; `None` if it is not.
    fn killer(&self, fences: u64) -> Option<Time> {
        let (latest, _) = self.done.back()?;
        let first = self.done.partition_point(|(number, _)| *number <= fences);
        (*latest > fences).then(|| self.done[first].1)
    }

    /// Where a key is counted that was superseded after `fences` fences had begun and is alive.
    fn batch_of(&mut self, fences: u64) -> &mut Batch {
        match &mut self.fencing {
            Some(batch) if fences < self.fences => batch,
            _ => &mut self.superseded,
        }
    }
}
