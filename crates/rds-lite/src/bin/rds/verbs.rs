//! A host on an RDMA device.

use crate::setup::{Network, PoolOptions};
use anyhow::Result;
use rds_lite::Host;
use rds_lite::proto::Config;
use std::net::IpAddr;

#[cfg(feature = "verbs")]
pub(crate) fn host(
    network: &Network,
    pool: &PoolOptions,
    own: IpAddr,
    configure: impl FnOnce(&mut Config),
) -> Result<Host> {
    use anyhow::{Context, bail};
    use mr_core::Pool;
    use mr_verbs::{Device, Domain, RegistrationBackend};
    use rds_lite::fabric::verbs::{VerbsConfig, VerbsFabric};
    use rds_lite::rdma::PoolRegions;
    use std::sync::Arc;

    let IpAddr::V4(address) = own else {
        bail!("RDS over verbs has IPv4 addresses, and {own} is none");
    };
    let device = match &network.device {
        Some(name) => Device::open(name),
        None => Device::of_address(address),
    };
    let domain = Domain::new(&device.context("no RDMA device")?)?;
    let mut config = VerbsConfig::default();
    if let Some(port) = network.rds_port {
        config.port = port;
    }
    let backend = RegistrationBackend::zero_based(&domain);
    let regions = Pool::builder(backend, pool.policy.clone())
        .capacity(pool.regions)
        .configure(|config| config.max_unclaimed = Some(u32::MAX))
        .build::<Vec<u8>>()
        .context("cannot build the pool")?;
    Host::builder(VerbsFabric::new(&domain, config))
        .regions(PoolRegions::new(Arc::new(regions)))
        .configure(configure)
        .build()
        .context("cannot start a host")
}

#[cfg(not(feature = "verbs"))]
pub(crate) fn host(
    _network: &Network,
    _pool: &PoolOptions,
    _own: IpAddr,
    _configure: impl FnOnce(&mut Config),
) -> Result<Host> {
    anyhow::bail!(
        "--fabric verbs needs a build with libibverbs: cargo build --release -p rds-lite --features \
         verbs; without a device: cargo xtask hw -- rds ..."
    )
}
