//! Which work requests are under way, and how each has ended.

use crate::Status;
use std::collections::VecDeque;

/// The work requests of a send queue, by number.
///
/// A queue pair completes its requests in order, so a completion also says how those before it have
/// ended that asked for none: well, unless one had failed by then. What was begun with several
/// requests ends with the last of them, since until then the HCA may use its memory.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    depth: u64,
    /// Number of the next request.
    next: u64,
    entries: VecDeque<Entry<T>>,
    /// Requests since one asked for a completion.
    silent: u64,
    /// Whether one has failed: what follows is flushed.
    failed: bool,
}

#[derive(Debug)]
struct Entry<T> {
    first: u64,
    last: u64,
    what: T,
    failure: Option<Status>,
}

impl<T> Ledger<T> {
    pub(crate) const fn new(depth: u32) -> Self {
        Self {
            depth: depth as u64,
            next: 0,
            entries: VecDeque::new(),
            silent: 0,
            failed: false,
        }
    }

    /// Number of the next request.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Requests that fit.
    pub(crate) fn room(&self) -> u64 {
        let oldest = self.entries.front().map_or(self.next, |entry| entry.first);
        self.depth - (self.next - oldest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Requests that one entry can have.
    pub(crate) const fn longest(&self) -> u64 {
        self.depth / 2
    }

    /// Enters something of `count` requests, for which there is room. Says whether the last must ask
    /// for a completion even if nobody wants to know: without one room would never be known to be
    /// free again.
    pub(crate) fn push(&mut self, count: u64, wanted: bool, what: T) -> bool {
        debug_assert!(count > 0 && count <= self.room());
        let first = self.next;
        self.next += count;
        self.entries.push_back(Entry {
            first,
            last: self.next - 1,
            what,
            failure: None,
        });
        self.silent += count;
        let signalled = wanted || self.silent >= self.depth / 4;
        if signalled {
            self.silent = 0;
        }
        signalled
    }

    /// Takes note of a completion; `end` gets what has ended by it.
    pub(crate) fn complete(&mut self, number: u64, status: Status, mut end: impl FnMut(T, Status)) {
        while let Some(mut entry) = self.entries.pop_front() {
            if entry.first > number {
                self.entries.push_front(entry);
                return;
            }
            if entry.last < number {
                let otherwise = if self.failed {
                    Status::Flushed
                } else {
                    Status::Success
                };
                end(entry.what, entry.failure.unwrap_or(otherwise));
                continue;
            }
            if status != Status::Success {
                self.failed = true;
                entry.failure.get_or_insert(status);
            }
            if entry.last == number {
                let status = entry.failure.unwrap_or(status);
                end(entry.what, status);
            } else {
                self.entries.push_front(entry);
            }
            return;
        }
    }

    /// The requests from `number` on were never posted, and no more will be.
    pub(crate) fn cut(&mut self, number: u64, mut end: impl FnMut(T)) {
        self.failed = true;
        let mut cut = Vec::new();
        while let Some(entry) = self.entries.back_mut() {
            if entry.first < number {
                // What was posted of it is flushed by the HCA.
                entry.last = entry.last.min(number - 1);
                break;
            }
            cut.extend(self.entries.pop_back());
        }
        self.next = self.next.min(number);
        cut.into_iter().rev().for_each(|entry| end(entry.what));
    }

    /// Forgets the entries from `number` on, which were never to be posted.
    pub(crate) fn retract(&mut self, number: u64) {
        self.entries.retain(|entry| entry.first < number);
        self.next = self.next.min(number);
        // One of them may have been about to ask for a completion: the next one does.
        self.silent = self.depth;
    }

    /// The queue pair is gone: everything ends.
    pub(crate) fn end_all(&mut self, mut end: impl FnMut(T, Status)) {
        self.failed = true;
        for entry in self.entries.drain(..) {
            end(entry.what, entry.failure.unwrap_or(Status::Flushed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Ends = Vec<(char, Status)>;

    fn complete(ledger: &mut Ledger<char>, number: u64, status: Status) -> Ends {
        let mut ends = Vec::new();
        ledger.complete(number, status, |what, status| ends.push((what, status)));
        ends
    }

    fn filled(counts: &[(char, u64)]) -> Ledger<char> {
        let mut ledger = Ledger::new(16);
        for &(what, count) in counts {
            ledger.push(count, false, what);
        }
        ledger
    }

    #[test]
    fn a_completion_ends_what_was_silent_before_it() {
        let mut ledger = filled(&[('a', 1), ('b', 1), ('c', 1)]);
        assert_eq!(ledger.room(), 13);
        let ends = complete(&mut ledger, 1, Status::Success);
        assert_eq!(ends, [('a', Status::Success), ('b', Status::Success)]);
        assert_eq!(ledger.room(), 15);
        assert!(
            complete(&mut ledger, 1, Status::Success).is_empty(),
            "a completion that comes twice ends nothing"
        );
        assert!(!ledger.is_empty());
    }

    #[test]
    fn what_is_before_a_failure_succeeded_and_what_is_behind_it_is_flushed() {
        let mut ledger = filled(&[('a', 1), ('b', 1), ('c', 1), ('d', 1)]);
        let ends = complete(&mut ledger, 1, Status::RemoteAccess);
        assert_eq!(ends, [('a', Status::Success), ('b', Status::RemoteAccess)]);
        // Even where the flush of one is not told.
        let ends = complete(&mut ledger, 3, Status::Flushed);
        assert_eq!(ends, [('c', Status::Flushed), ('d', Status::Flushed)]);
        assert!(ledger.is_empty());
    }

    #[test]
    fn memory_of_several_requests_is_kept_until_the_last() {
        let mut ledger = filled(&[('a', 3), ('b', 1)]);
        assert!(complete(&mut ledger, 0, Status::RemoteAccess).is_empty());
        assert!(complete(&mut ledger, 1, Status::Flushed).is_empty());
        let ends = complete(&mut ledger, 2, Status::Flushed);
        assert_eq!(ends, [('a', Status::RemoteAccess)]);
        let ends = complete(&mut ledger, 3, Status::Flushed);
        assert_eq!(ends, [('b', Status::Flushed)]);
    }

    #[test]
    fn a_chain_that_was_cut_ends_where_it_was_cut() {
        let mut ledger = filled(&[('a', 1), ('b', 3), ('c', 1)]);
        let mut cut = Vec::new();
        ledger.cut(2, |what| cut.push(what));
        assert_eq!(cut, ['c']);
        assert_eq!(ledger.next(), 2);
        assert!(complete(&mut ledger, 0, Status::Flushed).len() == 1);
        let ends = complete(&mut ledger, 1, Status::Flushed);
        assert_eq!(
            ends,
            [('b', Status::Flushed)],
            "the one that was posted is its last"
        );
        assert_eq!(ledger.room(), 16);
    }

    #[test]
    fn everything_ends_once_when_the_queue_pair_is_gone() {
        let mut ledger = filled(&[('a', 2), ('b', 1)]);
        complete(&mut ledger, 0, Status::RemoteAccess);
        let mut ends = Vec::new();
        ledger.end_all(|what, status| ends.push((what, status)));
        assert_eq!(ends, [('a', Status::RemoteAccess), ('b', Status::Flushed)]);
        assert!(complete(&mut ledger, 2, Status::Flushed).is_empty());
    }

    #[test]
    fn what_is_taken_back_leaves_no_silence() {
        let mut ledger = filled(&[('a', 1), ('b', 1)]);
        assert!(ledger.push(1, true, 'c'));
        ledger.retract(1);
        assert_eq!((ledger.next(), ledger.room()), (1, 15));
        assert!(ledger.push(1, false, 'd'));
        let ends = complete(&mut ledger, 1, Status::Success);
        assert_eq!(ends, [('a', Status::Success), ('d', Status::Success)]);
    }

    /// Whatever is posted, a queue that is full has a completion to come.
    #[test]
    fn a_full_queue_is_never_silent() {
        for lens in 1..=8 {
            let mut ledger = Ledger::new(16);
            let mut signalled = Vec::new();
            while ledger.room() >= lens {
                if ledger.push(lens, false, ()) {
                    signalled.push(ledger.next() - 1);
                }
            }
            let last = *signalled.last().unwrap();
            let mut ended = 0;
            ledger.complete(last, Status::Success, |(), _| ended += 1);
            assert!(ended > 0 && ledger.room() >= lens, "{lens}");
        }
    }
}
