//! Hosts as the options ask for them.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use mr_core::{Pool, SystemClock};
use mr_mock::{MockHca, Preset};
use mr_policies::Policy;
use rds_lite::Host;
use rds_lite::fabric::mock::MockNetwork;
use rds_lite::fabric::tcp::{TcpConfig, TcpFabric};
use rds_lite::proto::Config;
use rds_lite::rdma::PoolRegions;
pub(crate) use rds_lite::stress::{Format, parse_seconds};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// What carries the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FabricName {
    /// In process, over mock HCAs, with RDMA
    Mock,
    /// RDS/TCP, without RDMA
    Tcp,
    /// RDS over an RDMA device, with RDMA
    Verbs,
}

/// Where the frames go.
#[derive(Args, Clone, Debug)]
pub(crate) struct Network {
    /// What carries the frames; mock runs both ends in this process [default: mock without an
    /// address, else tcp]
    #[arg(long, value_enum)]
    pub(crate) fabric: Option<FabricName>,

    /// Port of RDS, the same on all hosts [default: 16385 over TCP, 18634 over verbs]
    #[arg(long, value_name = "PORT")]
    pub(crate) rds_port: Option<u16>,

    /// The RDMA device of --fabric verbs [default: the one that has this host's address]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
}

impl Network {
    /// Whether the user has chosen anything of it.
    pub(crate) const fn is_named(&self) -> bool {
        self.fabric.is_some() || self.rds_port.is_some() || self.device.is_some()
    }
}

/// What the tools that stay have in common.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) network: Network,

    /// How output is written
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,

    /// Serve a snapshot of this process's state to `rds info` at this address and port
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) info: Option<std::net::SocketAddr>,
}

/// The pool of a host with RDMA.
#[derive(Args, Clone, Debug)]
pub(crate) struct PoolOptions {
    /// When do keys die: see `mr-policies`, e.g. "immediate", "use-once,threshold=25%"
    #[arg(long, value_name = "TEXT", default_value_t = Policy::default())]
    pub(crate) policy: Policy,

    /// Regions in the pool of each host
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) regions: u32,

    /// Preset of the mock HCAs
    #[arg(long, value_name = "NAME", default_value = "connectx-5")]
    pub(crate) hca: String,
}

/// The fabric that is meant, given whether addresses were.
pub(crate) fn fabric(network: &Network, has_address: bool) -> Result<FabricName> {
    match (network.fabric, has_address) {
        (None, false) => Ok(FabricName::Mock),
        (None, true) => Ok(FabricName::Tcp),
        (Some(FabricName::Mock), true) => {
            bail!(
                "the mock fabric is within one process: leave out the addresses, or use --fabric tcp or verbs"
            )
        }
        (Some(FabricName::Tcp | FabricName::Verbs), false) => {
            bail!(
                "a network needs addresses: give that of a host, or to `rds stress` -r for this one, and -s for the other on one side"
            )
        }
        (Some(fabric), _) => Ok(fabric),
    }
}

/// A host of a network, with the address `own`.
pub(crate) fn host(
    fabric: FabricName,
    network: &Network,
    pool: &PoolOptions,
    own: IpAddr,
    configure: impl FnOnce(&mut Config),
) -> Result<Host> {
    if fabric == FabricName::Verbs {
        return crate::verbs::host(network, pool, own, configure);
    }
    let mut config = TcpConfig::default();
    if let Some(port) = network.rds_port {
        config.port = port;
    }
    let host = Host::builder(TcpFabric::new(config)).configure(configure);
    host.build().context("cannot start a host")
}

/// Two hosts in this process, and their addresses.
pub(crate) fn mock_hosts(
    pool: &PoolOptions,
    configure: impl Fn(&mut Config),
) -> Result<[(Host, IpAddr); 2]> {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 0);
    let preset = Preset::named(&pool.hca)?;
    let host = |last| -> Result<(Host, IpAddr)> {
        let hca = MockHca::new(&preset);
        let regions = Pool::builder(hca.clone(), pool.policy.clone())
            .capacity(pool.regions)
            .configure(|config| config.max_unclaimed = Some(u32::MAX))
            .build::<Vec<u8>>()
            .context("cannot build the pool")?;
        let note = hca.clone();
        let regions =
            PoolRegions::new(Arc::new(regions)).on_release(move |key| note.note_released(key));
        let host = Host::builder(network.fabric(Some(hca)))
            .clock(clock.clone())
            .regions(regions)
            .configure(&configure)
            .build()
            .context("cannot start a host")?;
        Ok((host, IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))))
    };
    Ok([host(1)?, host(2)?])
}

/// The address of this host that is used to reach `peer`, unless the user has named one. On
/// loopback, where peers have addresses of their own, the one after the peer's.
pub(crate) fn own_address(named: Option<IpAddr>, peer: IpAddr) -> Result<IpAddr> {
    if let Some(named) = named {
        return Ok(named);
    }
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    // No packet is sent: connecting a datagram socket only looks up the route.
    let probe = std::net::UdpSocket::bind((any, 0)).context("cannot look up the route")?;
    probe
        .connect((peer, 9))
        .context("cannot look up the route")?;
    let local = probe.local_addr()?.ip();
    match (local == peer, peer) {
        (false, _) => Ok(local),
        (true, IpAddr::V4(v4)) if v4.is_loopback() => {
            let next = Ipv4Addr::from(u32::from(v4).wrapping_add(1));
            Ok(next.into())
        }
        (true, _) => bail!(
            "{peer} is this host: name another of its addresses with -r (stress), -I (ping) or --source (info)"
        ),
    }
}
