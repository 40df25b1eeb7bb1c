//! Stale keys, and a flusher that asks a policy only when it must: the pool's side of the contract
//! of `FlushDecision`, in a form small enough to be right by inspection.

use mr_core::{
    Access, AtRelease, FlushDecision, InvalidationPolicy, Marks, ReleasedRegion, Scope, StaleView,
    Time,
};
use proptest::prelude::*;
use std::time::Duration;

/// Regions of the pool in which all this happens.
pub(crate) const CAPACITY: u32 = 40;

/// What can happen to the stale keys.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Time passes.
    Wait(Duration),
    /// A lease ends.
    Release(Release),
    /// One of the stale keys dies without a flush (the peer's or the owner's invalidation).
    Die(prop::sample::Index),
}

/// The end of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// Mappings of the region since its last invalidation.
    pub(crate) maps: u32,
    /// Whether the region is mapped again at once, if the policy lets it.
    pub(crate) remapped: bool,
    /// Bytes that the key reaches.
    pub(crate) bytes: u32,
}

impl Release {
    /// Of a region in its first mapping.
    pub(crate) const FIRST: Self = Self {
        maps: 1,
        remapped: false,
        bytes: 1_000_000,
    };
}

/// Who holds a stale key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A worn region.
    Worn,
    /// A region that can be mapped again.
    Reusable,
    /// A region that was mapped again, as an old key of it.
    Leased,
}

#[derive(Clone, Debug)]
struct Stale {
    since: Time,
    holder: Holder,
    bytes: u32,
}

/// The flusher: asks when a mark is reached and after each flush, and never otherwise.
pub(crate) struct Flusher<'p> {
    policy: &'p dyn InvalidationPolicy,
    now: Time,
    last_flush: Time,
    keys: Vec<Stale>,
    marks: Marks,
    /// Questions since the last flush.
    pub(crate) questions: u32,
    /// The view at each flush, and what it took.
    pub(crate) flushes: Vec<(StaleView, Scope)>,
}

impl<'p> Flusher<'p> {
    pub(crate) fn new(policy: &'p dyn InvalidationPolicy) -> Self {
        let mut flusher = Self {
            policy,
            now: Time::ZERO,
            last_flush: Time::ZERO,
            keys: Vec::new(),
            marks: Marks::default(),
            questions: 0,
            flushes: Vec::new(),
        };
        flusher.ask();
        flusher
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Wait(time) => self.wait(*time),
            Event::Release(release) => self.release(*release),
            Event::Die(_) if self.keys.is_empty() => {}
            Event::Die(index) => {
                self.keys.swap_remove(index.index(self.keys.len()));
                self.keys.sort_by_key(|key| key.since);
            }
        }
        self.settle();
    }

    pub(crate) fn release(&mut self, release: Release) {
        let bytes = release.bytes;
        let region = ReleasedRegion::new(release.maps, bytes.into(), Access::REMOTE_READ);
        let holder = match self.policy.at_release(&region) {
            Some(AtRelease::Invalidate) => return,
            Some(AtRelease::Reuse) if release.remapped => Holder::Leased,
            Some(AtRelease::Reuse) => Holder::Reusable,
            Some(AtRelease::Retire) | None => Holder::Worn,
        };
        self.keys.push(Stale {
            since: self.now,
            holder,
            bytes,
        });
        self.settle();
    }

    /// Lets time pass, stopping at each mark on the way.
    pub(crate) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.marks.at.filter(|at| *at <= end) {
            assert!(at > self.now, "a mark in the past would spin");
            self.now = at;
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Asks if a mark is reached; if none is, makes sure that asking would change nothing.
    fn settle(&mut self) {
        let view = self.view();
        if reached(&self.marks, &view) {
            self.ask();
        } else {
            let early = self.policy.flush(&view);
            assert!(
                matches!(early, FlushDecision::Hold(_)),
                "{} says {early:?} before any of {:?} is reached: {view:?}",
                self.policy,
                self.marks
            );
        }
        self.check_bound();
    }

    fn ask(&mut self) {
        // Worn regions first, then all: more than two flushes at one time would be for nothing.
        for _ in 0..3 {
            let view = self.view();
            self.questions += 1;
            match self.policy.flush(&view) {
                FlushDecision::Now(scope) => self.flush(view, scope),
                FlushDecision::Hold(marks) => {
                    assert!(
                        !reached(&marks, &view),
                        "{marks:?} is already reached: {view:?}"
                    );
                    self.marks = marks;
                    return;
                }
            }
        }
        #[expect(clippy::panic, reason = "this is a test")]
        {
            panic!("{} does not stop flushing", self.policy);
        }
    }

    fn flush(&mut self, view: StaleView, scope: Scope) {
        let taken = |holder| match scope {
            Scope::Worn => holder == Holder::Worn,
            Scope::Stale => true,
        };
        assert!(
            self.keys.iter().any(|key| taken(key.holder)),
            "{} flushes nothing: {view:?}",
            self.policy
        );
        self.keys.retain(|key| !taken(key.holder));
        self.last_flush = self.now;
        self.questions = 0;
        self.flushes.push((view, scope));
    }

    fn check_bound(&self) {
        if let (Some(bound), Some(oldest)) = (self.policy.exposure_bound(), self.keys.first()) {
            let age = self.now.since(oldest.since);
            assert!(age <= bound, "{}: a key of {age:?}", self.policy);
        }
    }

    pub(crate) fn view(&self) -> StaleView {
        let count = |holder| self.keys.iter().filter(|key| key.holder == holder).count();
        let ages = self.keys.iter().map(|key| self.now.since(key.since));
        let mut view = StaleView::default();
        view.now = self.now;
        view.worn = u32::try_from(count(Holder::Worn)).unwrap_or(u32::MAX);
        view.reusable = u32::try_from(count(Holder::Reusable)).unwrap_or(u32::MAX);
        view.keys = self.keys.len() as u64;
        view.bytes = self.keys.iter().map(|key| u64::from(key.bytes)).sum();
        view.oldest = self.keys.first().map(|key| key.since);
        view.key_nanos = ages.map(|age| age.as_nanos()).sum();
        view.last_flush = self.last_flush;
        view.capacity = CAPACITY;
        view
    }
}

fn reached(marks: &Marks, view: &StaleView) -> bool {
    marks.at.is_some_and(|at| view.now >= at)
        || marks.worn.is_some_and(|worn| view.worn >= worn)
        || marks.keys.is_some_and(|keys| view.keys >= keys)
        || marks.bytes.is_some_and(|bytes| view.bytes >= bytes)
}

/// Waits from a nanosecond to a second, evenly over the orders of magnitude.
pub(crate) fn waits() -> impl Strategy<Value = Duration> {
    (0_u32..=30, any::<u64>())
        .prop_map(|(bits, random)| Duration::from_nanos((1 << bits) | (random % (1 << bits))))
}

pub(crate) fn releases() -> impl Strategy<Value = Release> {
    (1_u32..40, any::<bool>(), 1_u32..1_000_000).prop_map(|(maps, remapped, bytes)| Release {
        maps,
        remapped,
        bytes,
    })
}

pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => waits().prop_map(Event::Wait),
        6 => releases().prop_map(Event::Release),
        1 => any::<prop::sample::Index>().prop_map(Event::Die),
    ];
    prop::collection::vec(event, 1..120)
}
