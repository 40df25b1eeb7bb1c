//! The I/Os of a load, one after the other.

use crate::LabError;
use crate::arrival::Times;
use crate::scenario::Load;
use crate::size::Sizes;
use crate::trace::{Kind, Trace};
use crate::units::nanos;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// One I/O that wants a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Nanoseconds from the start of the run.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
}

/// The I/Os of a load. Takes a constant amount of memory, however many they are.
#[derive(Debug)]
pub(crate) enum Demands {
    Synthetic(Box<Synthetic>),
    Recorded { trace: Box<Trace>, speed: f64 },
}

/// The making of I/Os.
#[derive(Debug)]
pub(crate) struct Synthetic {
    times: Times,
    sizes: Sizes,
    random: ChaCha8Rng,
    end: u64,
}

impl Demands {
    pub(crate) fn of(load: &Load, seed: u64) -> Result<Self, LabError> {
        Ok(match load {
            Load::Synthetic {
                rate,
                sizes,
                arrival,
                duration,
            } => Self::Synthetic(Box::new(Synthetic {
                times: Times::new(*arrival, *rate),
                sizes: sizes.clone(),
                random: ChaCha8Rng::seed_from_u64(seed),
                end: nanos(*duration),
            })),
            Load::Recorded(recording) => Self::Recorded {
                trace: Box::new(recording.reopen()?),
                speed: recording.speed(),
            },
        })
    }

    /// The next I/O; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Demand>, LabError> {
        match self {
            Self::Synthetic(synthetic) => Ok(synthetic.next()),
            Self::Recorded { trace, speed } => {
                let io = trace.next().transpose()?;
                Ok(io.map(|io| Demand {
                    at: (io.at.as_nanos() as f64 / *speed) as u64,
                    bytes: io.bytes,
                    kind: io.kind,
                }))
            }
        }
    }
}

impl Synthetic {
    fn next(&mut self) -> Option<Demand> {
        let at = self.times.next(&mut self.random);
        (at < self.end).then(|| Demand {
            at,
            bytes: self.sizes.draw(&mut self.random),
            kind: Kind::Read,
        })
    }
}
