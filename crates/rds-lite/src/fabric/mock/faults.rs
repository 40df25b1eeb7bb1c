//! What goes wrong in a mock network.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What goes wrong, and how often. Probabilities are per frame, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Faults {
    /// How long a frame takes. Links are independent, so frames of different links overtake each
    /// other. Defaults to nothing.
    pub delay: RangeInclusive<Duration>,
    /// The link ends, and what is under way on it is lost. Defaults to 0.
    pub lose_link: f64,
    /// A message of one frame comes twice. Defaults to 0.
    pub duplicate: f64,
    /// One bit of a header is flipped. Defaults to 0.
    pub corrupt: f64,
    /// A frame without a number (acknowledgement, congestion map) is lost. Defaults to 0.
    pub lose_control: f64,
    /// How long a dial waits for a peer that is not there. Defaults to 100 ms.
    pub dial_timeout: Duration,
}

impl Faults {
    /// None.
    pub const fn none() -> Self {
        Self {
            delay: Duration::ZERO..=Duration::ZERO,
            lose_link: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            lose_control: 0.0,
            dial_timeout: Duration::from_millis(100),
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

/// Draws with probability `p`. No draw where it cannot happen.
pub(super) fn happens(random: &mut ChaCha8Rng, p: f64) -> bool {
    p > 0.0 && f64::from(random.next_u32()) < p * f64::from(u32::MAX)
}

pub(super) fn draw_delay(random: &mut ChaCha8Rng, range: &RangeInclusive<Duration>) -> Duration {
    let width = range.end().saturating_sub(*range.start()).as_nanos() as u64;
    if width == 0 {
        return *range.start();
    }
    *range.start() + Duration::from_nanos(random.next_u64() % (width + 1))
}
