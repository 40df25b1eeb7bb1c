//! Sockets of either implementation, with memory to lend and to write from.

mod kernel;
mod lite;

pub(super) use kernel::KernelSeat;
pub use lite::LiteSeat;

use super::Load;
use anyhow::Result;
use mr_policies::Policy;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// An implementation of RDS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Implementation {
    /// The kernel's.
    Kernel,
    /// This project's.
    RdsLite,
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::RdsLite => "rds-lite",
        })
    }
}

/// How long lent memory stays lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// For one request. When its answer has come the asker has the key killed, and waits for that.
    Killed,
    /// For one request. The peer's use ends the loan, and its key is dead when the answer can be read;
    /// so in rds-lite. The kernel kills it some time after that.
    KilledAtUse,
    /// For one request. The peer's use ends the loan; its key dies when the policy gets to it.
    Once,
    /// For so many requests, one after the other; then the asker has the key killed.
    Times(u32),
}

/// Whose RDS, and what becomes of lent memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Whose.
    pub implementation: Implementation,
    /// How long memory stays lent.
    pub way: Way,
    /// The policy of the pool, as text. The kernel has its own.
    pub policy: Option<String>,
    /// Regions of the pool. The kernel has as many as it likes.
    pub regions: u32,
}

impl Method {
    /// The most regions that an agent gives a pool.
    const MOST_REGIONS: u32 = 4096;

    /// Takes a seat at this address.
    ///
    /// # Errors
    ///
    /// There is no such implementation here, or it says why not.
    pub(super) fn sit(&self, addr: SocketAddr, load: Load) -> Result<Box<dyn Seat>> {
        anyhow::ensure!(load.is_sane(), "no load: {load:?}");
        anyhow::ensure!(self.regions <= Self::MOST_REGIONS, "too many regions");
        Ok(match self.implementation {
            Implementation::Kernel => Box::new(KernelSeat::sit(addr, self.way, load)?),
            Implementation::RdsLite => {
                let policy: Policy = self.policy.as_deref().unwrap_or("immediate").parse()?;
                Box::new(lite::over_verbs(addr, policy, self, load)?)
            }
        })
    }
}

/// Whether a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It was.
    Yes,
    /// It may be possible later.
    NotNow,
}

/// What has come.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Who sent it.
    pub from: SocketAddr,
    /// Memory of the sender.
    pub cookie: Option<u64>,
}

/// What a seat's memory went through since its machine's start, or its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Times that memory was mapped.
    pub maps: u64,
    /// Flushes; of the kernel, also those that found nothing to do.
    pub flushes: u64,
    /// How long released keys lived, together, in seconds; where that is known.
    pub key_seconds: Option<f64>,
    /// The longest time that one lived.
    pub longest: Option<f64>,
}

impl Tally {
    /// What came on top of an earlier tally.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let earlier = before.key_seconds.unwrap_or_default();
        Self {
            maps: self.maps.saturating_sub(before.maps),
            flushes: self.flushes.saturating_sub(before.flushes),
            key_seconds: self.key_seconds.map(|now| now - earlier),
            longest: self.longest,
        }
    }
}

/// A socket of either implementation, with memory. Dropping it closes it.
pub trait Seat: Send {
    /// Where it is.
    fn addr(&self) -> SocketAddr;

    /// Sends a request; with `lend`, also memory of this place, where this number is to be written.
    ///
    /// # Errors
    ///
    /// It will never be sent.
    fn ask(&mut self, to: SocketAddr, request: &[u8], lend: Option<(usize, u64)>) -> Result<Sent>;

    /// Sends an answer; with `write`, a cookie and a number, it first writes memory with this stamp there.
    ///
    /// # Errors
    ///
    /// It will never be sent.
    fn answer(&mut self, to: SocketAddr, answer: &[u8], write: Option<(u64, u64)>) -> Result<Sent>;

    /// Receives a message into `into`; waits for one at most so long.
    ///
    /// # Errors
    ///
    /// The implementation says what, or an operation has failed.
    fn receive(&mut self, into: &mut Vec<u8>, at_most: Duration) -> Result<Option<Came>>;

    /// The answer to the request with this number has come, which had memory of this place: sees to it
    /// that the loan ends, and that the stamps are there.
    ///
    /// # Errors
    ///
    /// Something else is there.
    fn settle(&mut self, place: usize, number: u64) -> Result<()>;

    /// Sends what was held back.
    fn push(&mut self);

    /// Kills all keys of loans that have ended.
    ///
    /// # Errors
    ///
    /// Not all of them are dead.
    fn flush(&mut self) -> Result<()>;

    /// What its memory went through.
    ///
    /// # Errors
    ///
    /// Its implementation does not tell.
    fn tally(&self) -> Result<Tally>;
}
