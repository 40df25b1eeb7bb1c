//! Two hosts on one device, with an address each.

use mr_core::Pool;
use mr_policies::{MaxExposure, PolicyExt, UseOnce};
use mr_verbs::{Device, Domain, RegistrationBackend};
use rds_lite::fabric::verbs::{VerbsConfig, VerbsFabric};
use rds_lite::proto::Config;
use rds_lite::rdma::PoolRegions;
use rds_lite::{Host, Socket};
use std::io::{Write, stderr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What every wait must end in.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// Waits for something.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < BOUND, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct Rig {
    pub(crate) hosts: Vec<Host>,
    device: Arc<Device>,
    ips: [Ipv4Addr; 2],
    port: u16,
    configure: Box<dyn Fn(&mut VerbsConfig, &mut Config)>,
}

impl Rig {
    /// `None`, after saying so loudly, where there is no device or no second address.
    pub(crate) fn or_skip(
        test: &str,
        configure: impl Fn(&mut VerbsConfig, &mut Config) + 'static,
    ) -> Option<Self> {
        static PLACE: OnceLock<Result<(Arc<Device>, [Ipv4Addr; 2]), String>> = OnceLock::new();
        // Tests run side by side.
        static PORTS: AtomicU16 = AtomicU16::new(18_700);
        let (device, ips) = match PLACE.get_or_init(place) {
            Ok(place) => place.clone(),
            Err(why) => {
                let _ = writeln!(stderr(), "{test}: SKIPPED, {why}");
                return None;
            }
        };
        let mut rig = Self {
            hosts: Vec::new(),
            device,
            ips,
            port: PORTS.fetch_add(1, Ordering::Relaxed),
            configure: Box::new(configure),
        };
        rig.hosts = vec![rig.host(), rig.host()];
        Some(rig)
    }

    fn host(&self) -> Host {
        let domain = Domain::new(&self.device).unwrap();
        let policy = UseOnce.and(MaxExposure::new(Duration::from_millis(20)).unwrap());
        let backend = RegistrationBackend::zero_based(&domain);
        let pool = Pool::builder(backend, policy).capacity(64);
        let pool = pool.build::<Vec<u8>>().unwrap();
        let (mut verbs, mut config) = (VerbsConfig::default(), Config::default());
        (self.configure)(&mut verbs, &mut config);
        verbs.port = self.port;
        Host::builder(VerbsFabric::new(&domain, verbs))
            .regions(PoolRegions::new(Arc::new(pool)))
            .configure(|settings| *settings = config)
            .build()
            .unwrap()
    }

    /// A socket on each.
    pub(crate) fn sockets(&self) -> (Socket, Socket) {
        let bind = |side: usize| {
            let addr = SocketAddr::new(IpAddr::V4(self.ips[side]), 5);
            let socket = self.hosts[side].bind(addr).unwrap();
            socket.set_receive_timeout(Some(BOUND));
            socket.set_send_timeout(Some(BOUND));
            socket
        };
        (bind(0), bind(1))
    }

    /// Ends a host, and begins it anew.
    pub(crate) fn restart(&mut self, side: usize) {
        self.hosts[side].shut_down();
        self.hosts[side] = self.host();
    }
}

/// The device of the environment, its address, and a second one that it is given.
fn place() -> Result<(Arc<Device>, [Ipv4Addr; 2]), String> {
    let name = std::env::var("MR_VERBS_DEVICE")
        .map_err(|_| "no RDMA device (run `cargo xtask hw`)".to_owned())?;
    let device = Device::open(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let gid = device.gid().unwrap().bytes;
    let first = std::net::Ipv6Addr::from(gid)
        .to_ipv4_mapped()
        .ok_or("the device has no IPv4 address")?;
    let [a, b, c, last] = first.octets();
    let second = Ipv4Addr::new(a, b, c, last ^ 0x80);
    let ndev = format!("/sys/class/infiniband/{name}/ports/1/gid_attrs/ndevs/0");
    let interface = std::fs::read_to_string(&ndev).map_err(|error| format!("{ndev}: {error}"))?;
    let addr = format!("{second}/24");
    // It may have been added by another test binary.
    let added = Command::new("ip")
        .args(["addr", "replace", &addr, "dev", interface.trim()])
        .status();
    match added {
        Ok(status) if status.success() => Ok((device, [first, second])),
        other => Err(format!(
            "no second address: ip addr replace {addr}: {other:?}"
        )),
    }
}
