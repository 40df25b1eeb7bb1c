//! Time: the pool never reads a clock of its own, it is given one.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A point in time: nanoseconds since the start of the clock that gave it.
///
/// Times of different clocks must not be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// The point `nanos` nanoseconds after the start of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// From `earlier` to here; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// The time `duration` later, saturating at the end of time (584 years).
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// Where a pool gets the time from.
///
/// `now` must not go backwards as seen by one thread. It is called once per release and per
/// flush, so it should cost no more than some nanoseconds; it may be called by any thread.
///
/// It must not panic. Where it does, in a flush or in the flusher, the pool is poisoned; in a release
/// the caller gets the panic, and the region stays leased for ever, with its memory.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Time;
}

/// The machine's monotonic clock, read through the processor's time stamp counter where that is
/// invariant, else through the operating system.
///
/// `cargo xtask bench` prints what a reading costs beside `std::time::Instant::now`.
#[derive(Debug)]
pub struct SystemClock {
    clock: quanta::Clock,
    /// The counter at the start.
    start: u64,
}

impl SystemClock {
    /// A clock that starts now.
    ///
    /// The first one of a process calibrates the counter, which takes some 10 to 200 ms.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self { clock, start }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Time {
        Time(self.clock.delta_as_nanos(self.start, self.clock.raw()))
    }
}

/// A clock that stands still until it is set: for simulations and tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// A clock that shows [`Time::ZERO`].
    pub const fn new() -> Self {
        Self {
            nanos: AtomicU64::new(0),
        }
    }

    /// Moves the clock on by `by`; at the end of time (584 years) it stops.
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let later = |now: u64| Some(now.saturating_add(nanos));
        // It always succeeds: `later` always says something.
        let _ = self
            .nanos
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Moves the clock to `to`; a time that has passed leaves it as it is.
    pub fn advance_to(&self, to: Time) {
        self.nanos.fetch_max(to.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.nanos.load(Ordering::Relaxed))
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }
}

/// The clock of a pool: the usual one is read without a virtual call.
pub(crate) enum PoolClock {
    System(SystemClock),
    Given(Box<dyn Clock>),
}

impl PoolClock {
    #[inline]
    pub(crate) fn now(&self) -> Time {
        match self {
            Self::System(clock) => clock.now(),
            Self::Given(clock) => clock.now(),
        }
    }
}

/// The end of a wait of a thread. Always real time: a thread cannot sleep in virtual time. In a
/// model no time passes, so there a wait is over at once or never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        if cfg!(model) {
            let over = timeout.is_zero().then(Instant::now);
            return Self(over);
        }
        Self(Instant::now().checked_add(timeout))
    }

    /// What is left of the wait; zero when it is over.
    pub(crate) fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |end| {
            end.saturating_duration_since(Instant::now())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_never_goes_back() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_micros(3));
        clock.advance_to(Time::from_nanos(5));
        assert_eq!(clock.now(), Time::from_nanos(3000));
        assert_eq!(Time::from_nanos(5).since(clock.now()), Duration::ZERO);
        assert_eq!(clock.now() + Duration::MAX, Time::from_nanos(u64::MAX));
        clock.advance(Duration::MAX);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(clock.now(), Time::from_nanos(u64::MAX));
    }

    #[test]
    fn the_system_clock_goes_on() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!((0..1000).map(|_| clock.now()).is_sorted());
        assert!(clock.now() >= first);
    }
}
