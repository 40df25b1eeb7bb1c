//! The flags of rds-stress, and the load that they describe.

use super::header::HEADER;
use crate::setup::{Common, FabricName, PoolOptions, parse_seconds, parse_size};
use anyhow::{Result, bail, ensure};
use clap::{ArgAction, Args};
use rds_lite::proto::Config;
use rds_lite::wire::MAX_MESSAGE;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Without addresses both ends run in this process, over the mock fabric, and everything is
/// verified. With -r alone this side waits for a load; with -s it begins one. Sizes take K, M, G.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Address of this host
    #[arg(short = 'r', long = "recv-addr", value_name = "ADDR")]
    pub(crate) receive_address: Option<IpAddr>,
    /// Address of the other host: this side begins
    #[arg(short = 's', long = "send-addr", value_name = "ADDR")]
    pub(crate) send_address: Option<IpAddr>,
    /// TCP port over which the two sides agree; task i uses RDS port PORT+1+i
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 4000)]
    pub(crate) port: u16,
    /// Bytes of an answer, at least 63
    #[arg(short = 'a', long, value_name = "BYTES", default_value = "63", value_parser = parse_size)]
    ack_bytes: usize,
    /// Bytes of a request, at least 63
    #[arg(short = 'q', long, value_name = "BYTES", default_value = "1024", value_parser = parse_size)]
    req_bytes: usize,
    /// Only the side that begins sends requests
    #[arg(short = 'o', long)]
    one_way: bool,
    /// Requests per task and peer task that wait for an answer
    #[arg(short = 'd', long, value_name = "N", default_value_t = 1)]
    depth: u16,
    /// Tasks per side; each talks to all of the other side
    #[arg(short = 't', long, value_name = "N", default_value_t = 1)]
    tasks: u16,
    /// Seconds to run; 0 for ever
    #[arg(short = 'T', long, value_name = "SEC", value_parser = parse_seconds)]
    time: Option<Duration>,
    /// Bytes that each request moves by RDMA; 0 for none
    #[arg(short = 'D', long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    rdma_bytes: usize,
    /// Buffers per RDMA operation; only 1 is supported
    #[arg(short = 'I', long, value_name = "N", default_value_t = 1)]
    rdma_vector: u16,
    /// RDMA by turns (0), reads (1) or writes (2)
    #[arg(short = 'M', long, value_name = "N", default_value_t = 0)]
    rdma_mode: u8,
    /// Measure this process's CPU time
    #[arg(short = 'c', long)]
    pub(crate) report_cpu: bool,
    /// Print only the summary
    #[arg(short = 'z', long)]
    pub(crate) report_summary: bool,
    /// Verify every payload
    #[arg(short = 'v', long)]
    verify: bool,
    /// Memory ends with its first use, rather than when its owner frees it
    #[arg(long, value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    rdma_use_once: u8,
    /// The answer to a read waits for the read
    #[arg(long, value_name = "0/1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    rdma_use_fence: u8,
    /// Kill each key when its memory is freed, whatever the policy says
    #[arg(long, value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    rdma_invalidate: u8,
    /// Keep memory leased across requests
    #[arg(long, value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    rdma_cache_mrs: u8,
    /// Report keys that come back while stale; always on, and they fail the run
    #[arg(long, action = ArgAction::SetTrue)]
    rdma_key_o_meter: bool,
    /// How often to try the other side's TCP port again, a second apart
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) connect_retries: u32,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) pool: PoolOptions,
}

/// What both sides do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) ack_bytes: usize,
    pub(crate) req_bytes: usize,
    pub(crate) one_way: bool,
    pub(crate) depth: u16,
    pub(crate) tasks: u16,
    pub(crate) time: Option<Duration>,
    pub(crate) rdma_bytes: usize,
    pub(crate) rdma_mode: u8,
    pub(crate) verify: bool,
    pub(crate) use_once: bool,
    pub(crate) fence: bool,
    pub(crate) invalidate: bool,
    pub(crate) cache_mrs: bool,
}

impl Options {
    pub(crate) fn load(&self) -> Result<Load> {
        ensure!(
            self.rdma_vector == 1,
            "-I: an operation moves one buffer, so only 1 is supported"
        );
        let embedded = self.receive_address.is_none() && self.send_address.is_none();
        let time = match self.time {
            Some(time) => Some(time).filter(|time| !time.is_zero()),
            // Alone it is a test, and ends.
            None if embedded => Some(Duration::from_secs(5)),
            None => None,
        };
        let load = Load {
            ack_bytes: self.ack_bytes,
            req_bytes: self.req_bytes,
            one_way: self.one_way,
            depth: self.depth,
            tasks: self.tasks,
            time,
            rdma_bytes: self.rdma_bytes,
            rdma_mode: self.rdma_mode,
            verify: self.verify,
            use_once: self.rdma_use_once == 1,
            fence: self.rdma_use_fence == 1,
            invalidate: self.rdma_invalidate == 1,
            cache_mrs: self.rdma_cache_mrs == 1,
        };
        load.check()?;
        let leases = usize::from(load.tasks).pow(2) * usize::from(load.depth);
        if load.rdma_bytes > 0 && leases > self.pool.regions as usize {
            bail!("-t and -d need {leases} regions: raise --regions");
        }
        Ok(load)
    }
}

impl Load {
    /// Whether the load can be run at all; it may come from another host.
    pub(crate) fn check(&self) -> Result<()> {
        let sizes = HEADER..=MAX_MESSAGE;
        ensure!(
            sizes.contains(&self.ack_bytes),
            "-a must be from {HEADER} to 1M"
        );
        ensure!(
            sizes.contains(&self.req_bytes),
            "-q must be from {HEADER} to 1M"
        );
        ensure!(
            (1..=1024).contains(&self.depth),
            "-d must be from 1 to 1024"
        );
        ensure!((1..=256).contains(&self.tasks), "-t must be from 1 to 256");
        ensure!(self.rdma_bytes <= MAX_MESSAGE, "-D must be at most 1M");
        ensure!(self.rdma_mode <= 2, "-M must be 0, 1 or 2");
        ensure!(
            !(self.use_once && self.cache_mrs),
            "--rdma-use-once and --rdma-cache-mrs contradict each other"
        );
        Ok(())
    }

    pub(crate) fn check_on(&self, network: FabricName) -> Result<()> {
        ensure!(
            self.rdma_bytes == 0 || network != FabricName::Tcp,
            "-D: RDS/TCP has no RDMA; use --fabric verbs, or leave out the addresses for the mock fabric"
        );
        Ok(())
    }

    /// As rds-stress: room for everything that can be under way, twice.
    pub(crate) fn configure(&self, config: &mut Config) {
        let under_way = usize::from(self.tasks) * usize::from(self.depth);
        let bytes = under_way * (self.req_bytes + self.ack_bytes + 128) * 2;
        let bytes = bytes.clamp(4 << 20, 64 << 20);
        config.send_buffer = bytes;
        config.receive_buffer = bytes;
        config.max_queued = config.max_queued.max(8 * under_way);
        config.send_budget = 256 << 20;
        config.receive_budget = 512 << 20;
    }
}
