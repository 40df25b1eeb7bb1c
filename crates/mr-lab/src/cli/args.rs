//! What can be said on the command line.

use crate::arrival::Arrival;
use crate::measure::Mechanism;
use crate::report::Format;
use crate::scenario::{Load, Scenario};
use crate::size::Sizes;
use crate::units::{parse_bytes, parse_time};
use clap::{Args, Parser, Subcommand, ValueEnum};
use mr_core::DrawOrder;
use mr_policies::Policy;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// What does an invalidation policy cost for my load, and how long does it leave keys alive?
///
/// Runs the production pool over a mock HCA in virtual time. Without a command: compare.
#[derive(Debug, Parser)]
#[command(name = "mr-lab", version, args_conflicts_with_subcommands = true, after_help = policy_help())]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) compare: CompareArgs,
}

fn policy_help() -> String {
    let indented = mr_policies::syntax().to_string().replace('\n', "\n  ");
    format!("Policies:\n  {indented}")
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Compare policies under a made-up load; by default the question of the origin mail:
    /// 1000 I/Os of 1 MiB a second on 5000 regions.
    #[command(after_help = policy_help())]
    Compare(CompareArgs),
    /// Compare policies under a recorded load: fio's I/O log (versions 2 and 3), VMware vSCSI,
    /// blkparse text or MSR-Cambridge CSV, recognised by content.
    #[command(after_help = policy_help())]
    Replay(ReplayArgs),
    /// Ask the same at every point of a grid, one row a point; by default of threshold=4000 on
    /// connectx-2008.
    #[command(after_help = policy_help())]
    Sweep(SweepArgs),
    /// List the presets, or show the figures of some with where each comes from.
    Presets(PresetsArgs),
    /// Measure policies on an RDMA device, with RDMA writes by a peer in this process; needs a
    /// build with the feature verbs. Without a device: cargo xtask hw -- mr-lab measure ...
    #[command(after_help = policy_help())]
    Measure(MeasureArgs),
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Put the closed forms beside the simulation: exit code 1 if they differ by more than 5 %.
    /// Runs longer than --duration where a policy flushes seldom.
    #[arg(long)]
    pub(super) check: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The trace.
    pub(super) file: PathBuf,
    /// I/Os per second, for a trace without times (fio's version 2).
    #[arg(long)]
    pub(super) rate: Option<NonZeroU32>,
    /// Replay so many times as fast as it was recorded.
    #[arg(long, default_value_t = 1.0)]
    pub(super) speed: f64,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// An axis: NAME=FROM..TO in equal ratios, or NAME=A,B,C; several make a grid. NAME is a
    /// number of the scenario (rate, size, regions, service-time, ...), of a policy (threshold,
    /// max-exposure, ...), or a figure of the preset (sync-latency, stall, mtt-cache, ...).
    #[arg(long, required = true)]
    pub(super) over: Vec<String>,
    /// Values of a range.
    #[arg(long, default_value_t = 8)]
    pub(super) points: usize,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct PresetsArgs {
    /// Names or preset files; all shipped ones are listed without.
    pub(super) preset: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct MeasureArgs {
    /// Registration, or memory windows of type 1 or 2.
    #[arg(long, default_value = "mw2")]
    pub(super) backend: Mechanism,
    /// Send the request right behind the bind, in one doorbell (mw2).
    #[arg(long)]
    pub(super) chained: bool,
    /// A policy; give it several times for several. By default one of each kind.
    #[arg(long)]
    pub(super) policy: Vec<Policy>,
    /// Measure memory management alone, and no load.
    #[arg(long, conflicts_with = "policy")]
    pub(super) alone: bool,
    /// Print what a preset of the mock HCA needs, to be pasted into its file: of chains as long as
    /// a batch, and of a load of 200 I/Os a second unless `--rate` says otherwise.
    #[arg(long, conflicts_with_all = ["alone", "policy", "depth", "format"])]
    pub(super) preset: bool,
    /// Length of an I/O.
    #[arg(long, default_value = "64KiB", value_parser = parse_bytes)]
    pub(super) size: u64,
    /// I/Os of the load, in each round and for each policy.
    #[arg(long, default_value_t = 512)]
    pub(super) ios: u32,
    /// I/Os per second [default: one after the other].
    #[arg(long)]
    pub(super) rate: Option<f64>,
    /// Regions of the pool under the load.
    #[arg(long, default_value_t = 128)]
    pub(super) regions: u32,
    /// Regions of a batch, where memory management is measured alone.
    #[arg(long, default_value_t = 256)]
    pub(super) batch: u32,
    /// I/Os at hand at a time: maps in a chain, where they go in chains (mw2).
    #[arg(long, default_value_t = 32)]
    pub(super) depth: u32,
    /// Rounds, in which all that is measured takes turns; one more warms up.
    #[arg(long, default_value_t = 7)]
    pub(super) rounds: u32,
    /// The RDMA device [default: that of MR_VERBS_DEVICE, or the first].
    #[arg(long)]
    pub(super) device: Option<String>,
    /// The shape of the answer.
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
    /// Write the answer here.
    #[arg(long, short)]
    pub(super) output: Option<PathBuf>,
}

/// The made-up load.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// I/Os per second (while they come).
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// Length of an I/O: 1MiB, a range 4KiB..1MiB, or a mix 4KiB:70,64KiB:25,1MiB:5.
    #[arg(long, default_value = "1MiB")]
    size: Sizes,
    /// steady, poisson, or bursts=ON/OFF such as bursts=1s/60s.
    #[arg(long, default_value = "steady")]
    arrival: Arrival,
    /// How long I/Os come.
    #[arg(long, default_value = "320s", value_parser = parse_time)]
    duration: Duration,
}

impl LoadArgs {
    pub(super) fn load(&self) -> Load {
        Load::Synthetic {
            rate: self.rate,
            sizes: self.size.clone(),
            arrival: self.arrival,
            duration: self.duration,
        }
    }
}

/// What all commands that simulate have in common.
#[derive(Debug, Args)]
pub(super) struct CommonArgs {
    /// A policy; give it several times for several. By default a choice of each kind, and the named ones.
    #[arg(long, help_heading = "Policies")]
    pub(super) policy: Vec<Policy>,
    #[command(flatten)]
    pub(super) pool: PoolArgs,
    #[command(flatten)]
    pub(super) hca: HcaArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Pool")]
pub(super) struct PoolArgs {
    /// Regions of the pool.
    #[arg(long, default_value_t = 5000)]
    regions: u32,
    /// In which order the pool draws clean and reusable regions.
    #[arg(long, default_value = "random")]
    free_list: FreeList,
    /// The pool's own bound on the age of a stale key. Long here, so that each policy shows its
    /// own face; the library's default is 1s.
    #[arg(long, default_value = "1h", value_parser = parse_time)]
    max_age: Duration,
    /// The pool's own bound on the bytes behind stale keys [default: none].
    #[arg(long, value_parser = parse_bytes)]
    max_stale_bytes: Option<u64>,
    /// Every flush starts this much later than it could.
    #[arg(long, default_value = "0s", value_parser = parse_time)]
    flush_delay: Duration,
    /// Seeds arrivals, lengths and the pool.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FreeList {
    Random,
    Fifo,
    Lifo,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "HCA and peer")]
pub(super) struct HcaArgs {
    /// Presets, by name or as files (*.toml), with commas in between.
    #[arg(long, value_delimiter = ',')]
    pub(super) preset: Vec<String>,
    /// Another value for a figure of the presets, such as sync_ns=1000000.
    #[arg(long = "set", value_name = "FIGURE=VALUE")]
    pub(super) figures: Vec<String>,
    /// Payload bytes per packet [default: the preset's].
    #[arg(long, value_parser = parse_bytes)]
    pub(super) mtu: Option<u64>,
    /// Transfers that the HCA works on at once.
    #[arg(long, default_value_t = 8)]
    concurrency: u32,
    /// From the moment at which the peer has the key to the moment at which it moves the data.
    #[arg(long, default_value = "10ms", value_parser = parse_time)]
    service_time: Duration,
    /// Long-lived mappings that share the HCA's caches; one in turn takes a packet per I/O.
    #[arg(long, default_value_t = 64)]
    hot_keys: u32,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Shape of the answer.
    #[arg(long, default_value = "table")]
    pub(super) format: Format,
    /// Write to this file instead of standard output; it is complete or untouched.
    #[arg(long)]
    pub(super) output: Option<PathBuf>,
    /// Runs at a time [default: the number of processors].
    #[arg(long)]
    pub(super) jobs: Option<NonZeroUsize>,
}

impl CommonArgs {
    pub(super) fn scenario(&self, load: Load) -> Scenario {
        let (pool, hca) = (&self.pool, &self.hca);
        Scenario {
            load,
            regions: pool.regions,
            concurrency: hca.concurrency,
            service_time: hca.service_time,
            seed: pool.seed,
            order: match pool.free_list {
                FreeList::Random => DrawOrder::Random,
                FreeList::Fifo => DrawOrder::Fifo,
                FreeList::Lifo => DrawOrder::Lifo,
            },
            max_age: pool.max_age,
            max_stale_bytes: pool.max_stale_bytes.unwrap_or(u64::MAX),
            flush_delay: pool.flush_delay,
            hot_keys: hca.hot_keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn its_defaults_are_those_of_the_library() {
        let cli = Cli::parse_from(["mr-lab"]);
        let said = cli.compare.common.scenario(cli.compare.load.load());
        assert_eq!(format!("{said:?}"), format!("{:?}", Scenario::default()));
    }
}
