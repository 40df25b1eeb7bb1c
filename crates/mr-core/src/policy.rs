//! When does a key die: the plug-in.

use crate::{Access, Fence, Remap, Time};
use std::fmt;
use std::time::Duration;

/// Decides what becomes of a region at release, and when stale regions are flushed.
///
/// A policy is a pure decision over a snapshot: it reads no clock, takes no lock and does no I/O.
/// Both hooks may be called from any thread, `at_release` at most once per release; a policy that needs
/// state of its own keeps it in atomics. The default of each hook is to stay silent, so a policy
/// may speak on one axis and leave the other to the policy it is combined with, or to the pool.
///
/// Its `Display` is its text form, as every tool and configuration file writes it.
pub trait InvalidationPolicy: fmt::Display + Send + Sync + 'static {
    /// What becomes of a region whose lease just ended; `None` leaves it to others. If nobody
    /// speaks the pool retires it.
    fn at_release(&self, region: &ReleasedRegion) -> Option<AtRelease> {
        let _ = region;
        None
    }

    /// Whether [`at_release`](Self::at_release) ever speaks. Asked once, when the pool is built: a
    /// policy that says no is not asked at any release. Saying yes is never wrong.
    fn speaks_at_release(&self) -> bool {
        true
    }

    /// Whether stale regions are to be flushed now. Called when a mark of the last answer is
    /// reached, and after each flush: until then the last answer holds.
    fn flush(&self, stale: &StaleView) -> FlushDecision {
        let _ = stale;
        FlushDecision::SILENT
    }

    /// The longest time that a released key stays alive under this policy, not counting the flush
    /// itself; `None` if there is no such time.
    fn exposure_bound(&self) -> Option<Duration> {
        None
    }

    /// Whether the policy's parameters can hold in this pool. Called once, when the pool is built.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] names the parameter and what is allowed.
    fn check(&self, pool: &PoolLimits) -> Result<(), PolicyError> {
        let _ = pool;
        Ok(())
    }
}

/// A region at the moment of its release.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReleasedRegion {
    /// Mappings since the last invalidation, with the one that just ended: at least 1.
    pub maps: u32,
    /// Bytes that the mapping covered.
    pub bytes: u64,
    /// What the mapping allowed.
    pub access: Access,
}

impl ReleasedRegion {
    /// A region of which this many mappings have been released since its last invalidation.
    pub const fn new(maps: u32, bytes: u64, access: Access) -> Self {
        Self {
            maps,
            bytes,
            access,
        }
    }
}

/// What becomes of a region at release, from mild to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AtRelease {
    /// Keep it: it may be mapped again before it is invalidated (where the backend can).
    Reuse,
    /// Put it on the dirty list: it waits for a flush.
    Retire,
    /// Kill its key now, before anything else happens to it.
    Invalidate,
}

/// All that is stale in a pool at one time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StaleView {
    /// The time of the snapshot.
    pub now: Time,
    /// Regions that wait for a flush before they can be mapped again.
    pub worn: u32,
    /// Regions that may be mapped again although a key of theirs is stale.
    pub reusable: u32,
    /// Stale keys. Above `worn + reusable` where regions are mapped again without invalidation.
    pub keys: u64,
    /// Bytes that stale keys reach.
    pub bytes: u64,
    /// Release of the key that has been stale for longest; never later than the true one.
    pub oldest: Option<Time>,
    /// Sum of the ages of all stale keys, in key-nanoseconds.
    pub key_nanos: u128,
    /// Start of the latest flush, or the pool's.
    pub last_flush: Time,
    /// All regions of the pool.
    pub capacity: u32,
}

impl StaleView {
    /// Regions with a stale key.
    pub const fn regions(&self) -> u32 {
        self.worn + self.reusable
    }
}

/// What a policy wants of the flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushDecision {
    /// Flush now.
    Now(Scope),
    /// Not before one of these marks is reached.
    Hold(Marks),
}

/// Which regions a flush takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Only those that wait for it.
    Worn,
    /// All that have a stale key, also those that could be mapped again.
    Stale,
}

/// When to ask again: as soon as any of these is reached. No mark at all means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// At this time.
    pub at: Option<Time>,
    /// At this many worn regions.
    pub worn: Option<u32>,
    /// At this many stale keys.
    pub keys: Option<u64>,
    /// At this many bytes behind stale keys.
    pub bytes: Option<u64>,
}

impl FlushDecision {
    /// No opinion on when to flush.
    pub const SILENT: Self = Self::Hold(Marks {
        at: None,
        worn: None,
        keys: None,
        bytes: None,
    });

    /// Hold until `time`.
    pub const fn at(time: Time) -> Self {
        Self::Hold(Marks {
            at: Some(time),
            worn: None,
            keys: None,
            bytes: None,
        })
    }

    /// The earlier of two decisions: a flush wins over waiting, the wider scope over the narrower,
    /// the nearer mark over the farther.
    #[must_use]
    pub fn earliest(self, other: Self) -> Self {
        match (self, other) {
            (Self::Now(a), Self::Now(b)) => Self::Now(a.max(b)),
            (now @ Self::Now(_), _) | (_, now @ Self::Now(_)) => now,
            (Self::Hold(a), Self::Hold(b)) => Self::Hold(Marks {
                at: nearer(a.at, b.at),
                worn: nearer(a.worn, b.worn),
                keys: nearer(a.keys, b.keys),
                bytes: nearer(a.bytes, b.bytes),
            }),
        }
    }
}

fn nearer<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What a policy's parameters are checked against.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolLimits {
    /// Regions in the pool.
    pub capacity: u32,
    /// Distinct tags of a region's keys; `None` if the HCA chooses the keys.
    pub tags: Option<u32>,
    /// Whether a region can be mapped again without invalidation.
    pub remap: Remap,
    /// What one flush costs others.
    pub fence: Fence,
}

impl PoolLimits {
    /// Limits of a pool of `capacity` regions over a backend of these capabilities.
    pub fn new(capacity: u32, capabilities: &crate::Capabilities) -> Self {
        Self {
            capacity,
            tags: (capabilities.tag_bits > 0).then(|| 1 << capabilities.tag_bits.min(8)),
            remap: capabilities.remap,
            fence: capabilities.fence,
        }
    }
}

/// A policy whose parameters cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A parameter is outside of its range.
    #[error("{policy}: {parameter} must be {allowed}")]
    OutOfRange {
        /// The policy, in its text form.
        policy: String,
        /// The parameter.
        parameter: &'static str,
        /// What is allowed.
        allowed: String,
    },
    /// The backend cannot do what the policy is about.
    #[error("{policy}: {reason}")]
    Unsupported {
        /// The policy, in its text form.
        policy: String,
        /// What is missing.
        reason: &'static str,
    },
    /// Two policies that cannot both be obeyed.
    #[error("{first} and {second} contradict each other: {reason}")]
    Contradiction {
        /// One policy, in its text form.
        first: String,
        /// The other.
        second: String,
        /// Why.
        reason: &'static str,
    },
}

impl<P: InvalidationPolicy + ?Sized> InvalidationPolicy for Box<P> {
    fn at_release(&self, region: &ReleasedRegion) -> Option<AtRelease> {
        (**self).at_release(region)
    }

    fn speaks_at_release(&self) -> bool {
        (**self).speaks_at_release()
    }

    fn flush(&self, stale: &StaleView) -> FlushDecision {
        (**self).flush(stale)
    }

    fn exposure_bound(&self) -> Option<Duration> {
        (**self).exposure_bound()
    }

    fn check(&self, pool: &PoolLimits) -> Result<(), PolicyError> {
        (**self).check(pool)
    }
}
