//! What both sides do.

use super::header::HEADER;
use super::pattern::PIECE;
use crate::proto::Config;
use crate::rdma::MAX_BUFFERS;
use crate::wire::MAX_MESSAGE;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Requests of one side under way at the same time: what a peer can make this side keep.
const MOST_UNDER_WAY: usize = 1 << 18;

/// Bytes lent by one side at the same time.
const MOST_LENT: usize = 1 << 30;

/// What both sides do. The side that begins names it, and sends it to the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Bytes of an answer.
    pub ack_bytes: usize,
    /// Bytes of a request.
    pub req_bytes: usize,
    /// Only the side that begins asks.
    pub one_way: bool,
    /// Requests per pair of tasks that wait for an answer.
    pub depth: u16,
    /// Tasks per side.
    pub tasks: u16,
    /// How long it lasts from the first message on; `None` for ever.
    pub time: Option<Duration>,
    /// Bytes that each request moves by RDMA.
    pub rdma_bytes: usize,
    /// Local buffers that they are divided among.
    pub rdma_vector: u16,
    /// RDMA by turns (0), reads (1) or writes (2).
    pub rdma_mode: u8,
    /// Every payload is verified.
    pub verify: bool,
    /// Memory ends with its first use.
    pub use_once: bool,
    /// The answer to a read waits for the read.
    pub fence: bool,
    /// Keys are killed when their memory is freed.
    pub invalidate: bool,
    /// Memory is lent once and used by many requests.
    pub cache_mrs: bool,
}

impl Default for Load {
    /// That of rds-stress without flags.
    fn default() -> Self {
        Self {
            ack_bytes: HEADER,
            req_bytes: 1024,
            one_way: false,
            depth: 1,
            tasks: 1,
            time: None,
            rdma_bytes: 0,
            rdma_vector: 1,
            rdma_mode: 0,
            verify: false,
            use_once: false,
            fence: true,
            invalidate: false,
            cache_mrs: false,
        }
    }
}

/// A load that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A number is out of its range.
    #[error("{flag} must be from {} to {}", shown(.range.start()), shown(.range.end()))]
    Range {
        /// The number's flag.
        flag: &'static str,
        /// Where it must be.
        range: RangeInclusive<usize>,
    },
    /// There are buffers that no bytes would go to.
    #[error("-I: {buffers} buffers need -D to be at least {}", .buffers * PIECE)]
    EmptyBuffers {
        /// How many.
        buffers: usize,
    },
    /// Memory cannot end with its first use and be used again.
    #[error("--rdma-use-once and --rdma-cache-mrs contradict each other")]
    OnceAndCached,
    /// Too many requests under way.
    #[error(
        "-t and -d make {0} requests under way, and at most {MOST_UNDER_WAY} can be: lower one of them"
    )]
    UnderWay(usize),
    /// Too much memory lent.
    #[error(
        "-D, -t and -d lend {0} bytes at the same time, and at most 1 GiB can be lent: lower one of them"
    )]
    Lent(usize),
    /// More regions are needed than there are.
    #[error("-t and -d need {needed} regions, and there are {regions}: raise --regions")]
    Regions {
        /// Leased at the same time.
        needed: usize,
        /// The pool's.
        regions: u32,
    },
    /// The transport moves no memory.
    #[error(
        "-D: RDS/TCP has no RDMA; use --fabric verbs, or leave out the addresses for the mock fabric"
    )]
    NoRdma,
}

/// A size as it is written in flags.
fn shown(size: &usize) -> String {
    match *size {
        MAX_MESSAGE => "1M".into(),
        size => size.to_string(),
    }
}

impl Load {
    /// Whether the load can be run at all; it may come from another host.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn check(&self) -> Result<(), LoadError> {
        let sizes = || HEADER..=MAX_MESSAGE;
        let buffers = usize::from(self.rdma_vector);
        for (flag, number, range) in [
            ("-a", self.ack_bytes, sizes()),
            ("-q", self.req_bytes, sizes()),
            ("-d", usize::from(self.depth), 1..=1024),
            ("-t", usize::from(self.tasks), 1..=256),
            ("-D", self.rdma_bytes, 0..=MAX_MESSAGE),
            ("-I", buffers, 1..=MAX_BUFFERS),
            ("-M", usize::from(self.rdma_mode), 0..=2),
        ] {
            if !range.contains(&number) {
                return Err(LoadError::Range { flag, range });
            }
        }
        if buffers > 1 && self.rdma_bytes < buffers * PIECE {
            return Err(LoadError::EmptyBuffers { buffers });
        }
        if self.use_once && self.cache_mrs {
            return Err(LoadError::OnceAndCached);
        }
        let under_way = self.under_way();
        if under_way > MOST_UNDER_WAY {
            return Err(LoadError::UnderWay(under_way));
        }
        match under_way * self.rdma_bytes {
            lent if lent > MOST_LENT => Err(LoadError::Lent(lent)),
            _ => Ok(()),
        }
    }

    /// Whether a transport can run it.
    ///
    /// # Errors
    ///
    /// [`LoadError::NoRdma`].
    pub const fn check_rdma(&self, transport_has_rdma: bool) -> Result<(), LoadError> {
        if self.rdma_bytes > 0 && !transport_has_rdma {
            return Err(LoadError::NoRdma);
        }
        Ok(())
    }

    /// Whether a pool of so many regions can run it.
    ///
    /// # Errors
    ///
    /// [`LoadError::Regions`].
    pub fn check_regions(&self, regions: u32) -> Result<(), LoadError> {
        let needed = self.under_way();
        if self.rdma_bytes > 0 && needed > regions as usize {
            return Err(LoadError::Regions { needed, regions });
        }
        Ok(())
    }

    /// Requests of one side that wait for an answer, at most.
    fn under_way(&self) -> usize {
        usize::from(self.tasks).pow(2) * usize::from(self.depth)
    }

    /// Bytes of a socket's buffers. As rds-stress: room for everything that can be under way, twice.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        let messages = usize::from(self.tasks) * usize::from(self.depth);
        let bytes = messages * (self.req_bytes + self.ack_bytes + 128) * 2;
        bytes.clamp(4 << 20, 64 << 20)
    }

    /// Makes room for it in a host.
    pub fn configure(&self, config: &mut Config) {
        let messages = usize::from(self.tasks) * usize::from(self.depth);
        config.send_buffer = self.buffer_bytes();
        config.receive_buffer = self.buffer_bytes();
        config.max_queued = config.max_queued.max(8 * messages);
        config.send_budget = 256 << 20;
        config.receive_budget = 512 << 20;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_can_make_this_side_keep_is_bounded() {
        let load = Load::default();
        assert_eq!(load.check(), Ok(()));
        let wide = Load {
            tasks: 256,
            depth: 4,
            ..load.clone()
        };
        assert_eq!(wide.check(), Ok(()));
        let wider = Load { depth: 5, ..wide };
        assert_eq!(wider.check(), Err(LoadError::UnderWay(5 << 16)));
        let large = Load {
            depth: 1024,
            rdma_bytes: 1 << 20,
            ..load
        };
        assert_eq!(large.check(), Ok(()));
        let larger = Load { tasks: 2, ..large };
        assert_eq!(larger.check(), Err(LoadError::Lent(4 << 30)));
    }

    #[test]
    fn a_load_of_another_version_is_none() {
        let mut load = serde_json::to_value(Load::default()).unwrap();
        assert!(serde_json::from_value::<Load>(load.clone()).is_ok());
        load["and"] = 1.into();
        assert!(serde_json::from_value::<Load>(load).is_err());
    }
}
