//! Dials that are under way.

use super::lock;
use crate::proto::{LinkId, Path};
use mr_verbs::cm::Waker;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

/// One of them.
struct Dial {
    path: Path,
    /// Whom to wake so that it ends early.
    waker: Waker,
    /// When it is over: whether it has made a link.
    made: OnceLock<bool>,
}

/// All of a fabric.
#[derive(Default)]
pub(super) struct Dials {
    under_way: Mutex<HashMap<LinkId, Arc<Dial>>>,
    one_over: Condvar,
}

impl Dials {
    pub(super) fn begin(&self, id: LinkId, path: Path, waker: Waker) {
        let made = OnceLock::new();
        let dial = Arc::new(Dial { path, waker, made });
        lock(&self.under_way).insert(id, dial);
    }

    /// To be called when the host knows how it has ended.
    pub(super) fn end(&self, id: LinkId, made: bool) {
        if let Some(dial) = lock(&self.under_way).remove(&id) {
            // There is one end.
            let _ = dial.made.set(made);
            self.one_over.notify_all();
        }
    }

    pub(super) fn wake_all(&self) {
        for dial in lock(&self.under_way).values() {
            dial.waker.wake();
        }
    }

    /// Waits for the end of the dial of this path, at most so long. Says whether there was one, and it has made
    /// a link.
    pub(super) fn await_end(&self, path: Path, at_most: Duration) -> bool {
        let found = self.of(path);
        found.is_some_and(|dial| self.outcome(&dial, at_most) == Some(true))
    }

    fn of(&self, path: Path) -> Option<Arc<Dial>> {
        let under_way = lock(&self.under_way);
        under_way.values().find(|dial| dial.path == path).cloned()
    }

    fn outcome(&self, dial: &Dial, at_most: Duration) -> Option<bool> {
        let is_under_way = |_: &mut _| dial.made.get().is_none();
        let under_way = lock(&self.under_way);
        drop(
            self.one_over
                .wait_timeout_while(under_way, at_most, is_under_way),
        );
        dial.made.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};
    use std::thread;

    fn path(last: u8) -> Path {
        let [local, remote] = [1, last].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        Path { local, remote }
    }

    const fn id(conn: u32) -> LinkId {
        LinkId {
            conn,
            incarnation: 1,
        }
    }

    #[test]
    fn whoever_waits_learns_how_the_dial_of_that_path_has_ended() {
        for made in [false, true] {
            let dials = Dials::default();
            dials.begin(id(0), path(2), Waker::new().unwrap());
            dials.begin(id(1), path(3), Waker::new().unwrap());
            let dial = dials.of(path(2)).unwrap();
            let learnt = thread::scope(|scope| {
                let waiting = scope.spawn(|| dials.outcome(&dial, Duration::from_secs(60)));
                dials.end(id(1), !made);
                dials.end(id(0), made);
                waiting.join().unwrap()
            });
            assert_eq!(learnt, Some(made));
            assert!(!dials.await_end(path(2), Duration::from_secs(60)));
        }
    }

    #[test]
    fn the_wait_is_bounded() {
        let dials = Dials::default();
        dials.begin(id(0), path(2), Waker::new().unwrap());
        assert!(!dials.await_end(path(2), Duration::from_millis(1)));
    }
}
