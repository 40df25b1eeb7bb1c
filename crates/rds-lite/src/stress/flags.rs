//! The flags of rds-stress, and the load that they describe.

use super::load::{Load, LoadError};
use clap::Args;
use std::net::IpAddr;
use std::time::Duration;

/// What all programs with this load have in common. Sizes take K, M, G.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Address of this host
    #[arg(short = 'r', long = "recv-addr", value_name = "ADDR")]
    pub receive_address: Option<IpAddr>,
    /// Address of the other host: this side begins
    #[arg(short = 's', long = "send-addr", value_name = "ADDR")]
    pub send_address: Option<IpAddr>,
    /// TCP port over which the two sides agree; task i uses RDS port PORT+1+i
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 4000)]
    pub port: u16,
    /// Bytes of an answer, at least 63
    #[arg(short = 'a', long, value_name = "BYTES", default_value = "63", value_parser = parse_size)]
    pub ack_bytes: usize,
    /// Bytes of a request, at least 63
    #[arg(short = 'q', long, value_name = "BYTES", default_value = "1024", value_parser = parse_size)]
    pub req_bytes: usize,
    /// Only the side that begins sends requests
    #[arg(short = 'o', long)]
    pub one_way: bool,
    /// Requests per task and peer task that wait for an answer
    #[arg(short = 'd', long, value_name = "N", default_value_t = 1)]
    pub depth: u16,
    /// Tasks per side; each talks to all of the other side
    #[arg(short = 't', long, value_name = "N", default_value_t = 1)]
    pub tasks: u16,
    /// Seconds to run, from the first message on; 0 for ever
    #[arg(short = 'T', long, value_name = "SEC", value_parser = parse_seconds)]
    pub time: Option<Duration>,
    /// Bytes that each request moves by RDMA; 0 for none
    #[arg(short = 'D', long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    pub rdma_bytes: usize,
    /// Local buffers that the bytes of each RDMA operation are divided among, at most 512
    #[arg(short = 'I', long, value_name = "N", default_value_t = 1)]
    pub rdma_vector: u16,
    /// RDMA by turns (0), reads (1) or writes (2)
    #[arg(short = 'M', long, value_name = "N", default_value_t = 0)]
    pub rdma_mode: u8,
    /// Measure this process's CPU time
    #[arg(short = 'c', long)]
    pub report_cpu: bool,
    /// Print only the summary
    #[arg(short = 'z', long)]
    pub report_summary: bool,
    /// Verify every payload
    #[arg(short = 'v', long)]
    pub verify: bool,
    /// Memory ends with its first use, rather than when its owner frees it
    #[arg(long, value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub rdma_use_once: u8,
    /// The answer to a read waits for the read
    #[arg(long, value_name = "0/1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub rdma_use_fence: u8,
    /// Kill each key when its memory is freed, whatever the policy says
    #[arg(long, value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub rdma_invalidate: u8,
    /// Keep memory lent across requests
    #[arg(long, value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub rdma_cache_mrs: u8,
    /// How often to try the other side's TCP port again, a second apart
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub connect_retries: u32,
}

impl Flags {
    /// The load that they describe.
    ///
    /// # Errors
    ///
    /// It cannot be run.
    pub fn load(&self) -> Result<Load, LoadError> {
        let load = Load {
            ack_bytes: self.ack_bytes,
            req_bytes: self.req_bytes,
            one_way: self.one_way,
            depth: self.depth,
            tasks: self.tasks,
            time: self.time.filter(|time| !time.is_zero()),
            rdma_bytes: self.rdma_bytes,
            rdma_vector: self.rdma_vector,
            rdma_mode: self.rdma_mode,
            verify: self.verify,
            use_once: self.rdma_use_once == 1,
            fence: self.rdma_use_fence == 1,
            invalidate: self.rdma_invalidate == 1,
            cache_mrs: self.rdma_cache_mrs == 1,
        };
        load.check()?;
        Ok(load)
    }
}

/// A size as users of rds-tools write it: with K, M or G.
///
/// # Errors
///
/// A sentence for the user.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: usize = digits
        .parse()
        .map_err(|_| format!("{text} is no size: give a number, with K, M or G if you like"))?;
    number
        .checked_mul(scale)
        .ok_or_else(|| format!("{text} is too large"))
}

/// A time in seconds, with decimals.
///
/// # Errors
///
/// A sentence for the user.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("{text} is no number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("{text}: {error}"))
}
