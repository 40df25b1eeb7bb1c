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
    /// Whether the peer can have heard of it. Locked while it is asked.
    requested: Mutex<bool>,
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
        let dial = Arc::new(Dial {
            path,
            waker,
            requested: Mutex::new(false),
            made: OnceLock::new(),
        });
        lock(&self.under_way).insert(id, dial);
    }

    /// The dial is ready: has `request` ask the peer, if that finds it still wanted. Whoever looks for the dial from
    /// then on waits for its end.
    pub(super) fn request<T>(&self, id: LinkId, request: impl FnOnce() -> Option<T>) -> Option<T> {
        let dial = lock(&self.under_way).get(&id).cloned()?;
        let mut requested = lock(&dial.requested);
        let made = request();
        *requested = made.is_some();
        made
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

    /// Waits for the end of the dial of this path, at most so long, if the peer can have heard of it. Says whether
    /// there was one, and it has made a link.
    ///
    /// A dial that is not wanted before this call is not heard of after it.
    pub(super) fn await_end(&self, path: Path, at_most: Duration) -> bool {
        let found = self.requested(path);
        found.is_some_and(|dial| self.outcome(&dial, at_most) == Some(true))
    }

    fn requested(&self, path: Path) -> Option<Arc<Dial>> {
        let under_way = lock(&self.under_way);
        let of_path = under_way.values().filter(|dial| dial.path == path);
        let of_path: Vec<_> = of_path.cloned().collect();
        drop(under_way);
        of_path.into_iter().find(|dial| *lock(&dial.requested))
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
    use std::sync::Barrier;
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

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
            dials.request(id(0), || Some(())).unwrap();
            let dial = dials.requested(path(2)).unwrap();
            let learnt = thread::scope(|scope| {
                let waiting = scope.spawn(|| dials.outcome(&dial, LONG));
                dials.end(id(1), !made);
                dials.end(id(0), made);
                waiting.join().unwrap()
            });
            assert_eq!(learnt, Some(made));
            assert!(!dials.await_end(path(2), LONG));
        }
    }

    #[test]
    fn the_wait_is_bounded() {
        let dials = Dials::default();
        dials.begin(id(0), path(2), Waker::new().unwrap());
        dials.request(id(0), || Some(())).unwrap();
        assert!(!dials.await_end(path(2), Duration::from_millis(1)));
    }

    /// A dial that fails is followed by another, which a peer that was accepted meanwhile must not hear of.
    #[test]
    fn a_dial_is_waited_for_or_the_peer_does_not_hear_of_it() {
        let dials = Dials::default();
        dials.begin(id(0), path(2), Waker::new().unwrap());
        // Nobody has heard of it, so nobody waits.
        assert!(!dials.await_end(path(2), LONG));
        assert_eq!(dials.request(id(0), || None::<()>), None);
        assert!(!dials.await_end(path(2), LONG));

        // Who is being asked is waited for.
        let asking = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let asked = dials.request(id(0), || {
                    asking.wait();
                    Some(())
                });
                assert!(asked.is_some());
                dials.end(id(0), true);
            });
            asking.wait();
            // It has ended already, or is seen to end; either way not before it was asked.
            dials.await_end(path(2), LONG);
            assert!(dials.requested(path(2)).is_none());
        });
        assert_eq!(dials.request(id(0), || Some(())), None);
    }
}
