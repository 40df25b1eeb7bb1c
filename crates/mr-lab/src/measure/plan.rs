//! What is to be measured.

use crate::LabError;
use mr_policies::Policy;
use serde::Serialize;

/// How regions are mapped and invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// Registration and deregistration.
    Reg,
    /// Memory windows of type 1.
    Mw1,
    /// Memory windows of type 2.
    Mw2,
}

/// What is to be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The device's name; `None` for that of `MR_VERBS_DEVICE`, or the first.
    pub device: Option<String>,
    /// How regions are mapped.
    pub backend: Mechanism,
    /// Whether the request goes right behind the bind, which is not waited for (type 2 only).
    pub chained: bool,
    /// The policies of the load; none: memory management alone.
    pub policies: Vec<Policy>,
    /// Bytes of an I/O.
    pub size: u64,
    /// I/Os of the load in each round.
    pub ios: u32,
    /// I/Os per second; `None`: one after the other.
    pub rate: Option<f64>,
    /// Regions of the pool under the load.
    pub regions: u32,
    /// Regions of a batch of memory management alone.
    pub batch: u32,
    /// Maps in a chain, where backends chain them; at most `batch`.
    pub depth: u32,
    /// Rounds, after one that does not count.
    pub rounds: u32,
}

impl Plan {
    /// The most memory that is mapped: it is pinned.
    pub const MOST_BYTES: u64 = 1 << 30;

    /// Pages that buffers occupy whole.
    const PAGE: u64 = 4096;

    /// Bytes that all buffers take, those of the peer aside; saturating.
    pub fn arena_bytes(&self) -> u64 {
        let buffers = (3 * u64::from(self.batch)).max(u64::from(self.regions) + 1);
        let size = self.size.checked_next_multiple_of(Self::PAGE);
        buffers.saturating_mul(size.unwrap_or(u64::MAX))
    }

    /// # Errors
    ///
    /// A number is out of its range, or the numbers do not fit together.
    pub(super) fn check(&self) -> Result<(), LabError> {
        within("--size", self.size, 1, 64 << 20)?;
        within("--ios", self.ios.into(), 1, 10_000_000)?;
        within("--regions", self.regions.into(), 1, 65_536)?;
        // Chains of bind and send must fit into half a send queue.
        within("--batch", self.batch.into(), 1, 4096)?;
        within("--depth", self.depth.into(), 1, self.batch.into())?;
        within("--rounds", self.rounds.into(), 1, 1000)?;
        if let Some(rate) = self.rate
            && !(rate.is_finite() && (0.1..=1e6).contains(&rate))
        {
            return Err(LabError::OutOfRange {
                what: "--rate",
                allowed: "from 0.1 to 1000000".into(),
                given: rate.to_string(),
            });
        }
        if self.chained && self.backend != Mechanism::Mw2 {
            let message = "--chained needs --backend mw2: only a bind of type 2 goes through the \
                           queue of the request";
            return Err(LabError::Usage(message.into()));
        }
        if self.arena_bytes() > Self::MOST_BYTES {
            return Err(LabError::OutOfRange {
                what: "the memory of all buffers",
                allowed: "at most 1 GiB, by a smaller --size, --regions or --batch".into(),
                given: format!("{} bytes", self.arena_bytes()),
            });
        }
        Ok(())
    }
}

fn within(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), LabError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(LabError::OutOfRange {
        what,
        allowed: format!("from {least} to {most}"),
        given: value.to_string(),
    })
}
