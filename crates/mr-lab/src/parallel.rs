//! The same work on all cores.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `work` on each of `items`, on as many threads as `threads` says; the results come in the order of the items. `done` is called
/// after each, from any thread.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    threads: NonZeroUsize,
    work: impl Fn(&T) -> R + Sync,
    done: impl Fn() + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let one = || {
        let mut results = Vec::new();
        while let Some((place, item)) = take(&next, items) {
            results.push((place, work(item)));
            done();
        }
        results
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.get().min(items.len()))
            .map(|_| scope.spawn(one))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    results.sort_by_key(|&(place, _)| place);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'i, T>(next: &AtomicUsize, items: &'i [T]) -> Option<(usize, &'i T)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    items.get(place).map(|item| (place, item))
}

/// As many threads as there are processors to run them.
pub fn all_cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_and_does_each_once() {
        let items: Vec<u32> = (0..1000).collect();
        let count = AtomicUsize::new(0);
        let threads = NonZeroUsize::new(8).unwrap();
        let results = map(
            &items,
            threads,
            |&item| item * 2,
            || {
                count.fetch_add(1, Ordering::Relaxed);
            },
        );
        assert!(
            results
                .iter()
                .enumerate()
                .all(|(place, &r)| r as usize == 2 * place)
        );
        assert_eq!(count.into_inner(), 1000);
        assert!(map(&[] as &[u32], threads, |&item| item, || ()).is_empty());
    }
}
