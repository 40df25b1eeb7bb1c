//! Hosts on a mock network.

#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use mr_core::{Clock, Driver, ManualClock, Pool, PoolConfig, SystemClock, Time};
use mr_mock::{MockHca, Preset};
use mr_policies::Policy;
use rds_lite::fabric::mock::MockNetwork;
use rds_lite::proto::Config;
use rds_lite::rdma::PoolRegions;
use rds_lite::{Driving, Host, Socket};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

pub(crate) fn at(last: u8, port: u16) -> SocketAddr {
    SocketAddr::new(ip(last), port)
}

/// A clock that many may hold.
struct Shared(Arc<ManualClock>);

impl Clock for Shared {
    fn now(&self) -> Time {
        self.0.now()
    }
}

/// Hosts in virtual time: nothing happens but in `run`.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) network: MockNetwork,
    pub(crate) hosts: Vec<Host>,
    pub(crate) hcas: Vec<MockHca>,
    pub(crate) policy: Policy,
    pub(crate) pool: fn(&mut PoolConfig),
    /// Receive buffers of a link, where links are like those of InfiniBand.
    pub(crate) ring: Option<u32>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new());
        Self {
            network: MockNetwork::new(clock.clone(), seed),
            clock,
            hosts: Vec::new(),
            hcas: Vec::new(),
            policy: Policy::default(),
            pool: |_| {},
            ring: None,
        }
    }

    pub(crate) fn with_hosts(count: u8) -> Self {
        let mut world = Self::new(1);
        for _ in 0..count {
            world.add_host(|_| {});
        }
        world
    }

    /// A new host; its address is that of its place, beginning with 1.
    pub(crate) fn add_host(&mut self, configure: impl FnOnce(&mut Config)) -> usize {
        let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
        let host = self.build(hca.clone(), configure);
        self.hosts.push(host);
        self.hcas.push(hca);
        self.hosts.len() - 1
    }

    pub(crate) fn build(&self, hca: MockHca, configure: impl FnOnce(&mut Config)) -> Host {
        let seed = 1 + self.hosts.len() as u64;
        let pool = Pool::builder(hca.clone(), self.policy.clone())
            .clock(Shared(self.clock.clone()))
            .capacity(16)
            .seed(seed)
            .configure(|config| {
                config.driver = Driver::Manual;
                config.shards = 1;
                config.max_unclaimed = Some(1 << 16);
            })
            .configure(self.pool)
            .build::<Vec<u8>>()
            .unwrap();
        let note = hca.clone();
        let regions =
            PoolRegions::new(Arc::new(pool)).on_release(move |key| note.note_released(key));
        let fabric = self.network.fabric(Some(hca));
        let fabric = match self.ring {
            Some(ring) => fabric.like_infiniband(ring),
            None => fabric,
        };
        Host::builder(fabric)
            .clock(self.clock.clone())
            .driving(Driving::Manual)
            .regions(regions)
            .configure(|config| config.seed = Some(seed))
            .configure(configure)
            .build()
            .unwrap()
    }

    pub(crate) fn socket(&self, host: usize, port: u16) -> Socket {
        self.hosts[host].bind(at(host as u8 + 1, port)).unwrap()
    }

    /// Lets happen what is due now. Returns when the next thing is due.
    pub(crate) fn settle(&self) -> Option<Time> {
        loop {
            let polled: Vec<_> = self.hosts.iter().map(Host::poll).collect();
            if !self.network.step() {
                let next = polled.into_iter().flatten().min();
                return match (next, self.network.next_due()) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }

    /// Lets this much time pass, event by event.
    pub(crate) fn run(&self, time: Duration) {
        let end = self.clock.now() + time;
        while let Some(next) = self.settle()
            && next <= end
        {
            self.clock.advance_to(next);
        }
        self.clock.advance_to(end);
        self.settle();
    }
}

/// A host with threads on a network in real time.
pub(crate) fn live_host(network: &MockNetwork, clock: &Arc<SystemClock>) -> (Host, MockHca) {
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let pool = Pool::builder(hca.clone(), Policy::default())
        .capacity(16)
        .build::<Vec<u8>>()
        .unwrap();
    let host = Host::builder(network.fabric(Some(hca.clone())))
        .clock(clock.clone())
        .regions(PoolRegions::new(Arc::new(pool)))
        .build()
        .unwrap();
    (host, hca)
}
