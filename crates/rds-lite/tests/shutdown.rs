//! The end of a host: in bounded time, and what is left behind is said.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use mr_core::{Access, Pool, PoolStats, SystemClock, Time};
use mr_mock::{MockHca, Preset};
use mr_policies::MaxExposure;
use rds_lite::fabric::mock::MockNetwork;
use rds_lite::rdma::{FreeOutcome, Leased, MrError, MrFlags, PoolRegions, Regions};
use rds_lite::{Host, Socket};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A pool whose backend does not come back from a flush before it is let go.
struct Stuck {
    pool: PoolRegions<MockHca>,
    letting_go: Mutex<Receiver<()>>,
}

impl Regions for Stuck {
    fn lease(
        &self,
        buffer: Vec<u8>,
        access: Access,
        patience: Duration,
    ) -> Result<Box<dyn Leased>, MrError> {
        self.pool.lease(buffer, access, patience)
    }
    fn flush(&self) -> bool {
        // An error once the sender is gone.
        let _ = self.letting_go.lock().unwrap().recv();
        self.pool.flush()
    }
    fn reclaim(&self, to: &mut Vec<Vec<u8>>) {
        self.pool.reclaim(to);
    }
    fn step(&self) -> Option<Time> {
        self.pool.step()
    }
    fn stats(&self) -> PoolStats {
        self.pool.stats()
    }
}

/// A host with such a pool, whose keys live for long, and what lets it go.
fn stuck(shutdown_timeout: Duration) -> (Host, Socket, Sender<()>) {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let policy = MaxExposure::new(Duration::from_secs(3600)).unwrap();
    let pool = Pool::builder(hca.clone(), policy).build::<Vec<u8>>();
    let (let_go, letting_go) = channel();
    let regions = Stuck {
        pool: PoolRegions::new(Arc::new(pool.unwrap())),
        letting_go: Mutex::new(letting_go),
    };
    let host = Host::builder(network.fabric(Some(hca)))
        .clock(clock)
        .regions(regions)
        .configure(|config| config.shutdown_timeout = shutdown_timeout)
        .build()
        .unwrap();
    let ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let socket = host.bind(SocketAddr::new(ip, 5)).unwrap();
    (host, socket, let_go)
}

#[test]
fn a_backend_that_does_not_come_back_holds_no_host() {
    let (host, socket, let_go) = stuck(Duration::from_millis(50));
    let access = Access::REMOTE_WRITE;
    let cookie = socket.get_mr(vec![0; 64], access, MrFlags::empty());
    let freed = socket.free_mr(cookie.unwrap(), false).unwrap();
    assert!(matches!(freed, FreeOutcome::InProgress));
    let report = host.shut_down();
    assert!(report.flush_left && !report.is_complete());
    assert_eq!((report.stale, report.leased, report.threads), (1, 0, 0));
    // When it does, all is well.
    drop(let_go);
    while !host.shut_down().is_complete() {
        std::thread::yield_now();
    }
    assert_eq!(socket.reclaim().unwrap().1, vec![0; 64]);
}

#[test]
fn a_backend_that_does_not_come_back_holds_no_socket() {
    let (host, socket, let_go) = stuck(Duration::from_millis(50));
    // One after the other, behind the same backend.
    for port in 6..10 {
        let socket = host
            .bind(SocketAddr::new(socket.local_addr().ip(), port))
            .unwrap();
        socket
            .get_mr(vec![0; 64], Access::REMOTE_WRITE, MrFlags::empty())
            .unwrap();
        drop(socket);
    }
    drop(let_go);
    while !host.shut_down().is_complete() {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_lent_at_the_end_of_a_host_is_reported_until_it_is_given_back() {
    let (host, socket, let_go) = stuck(Duration::from_secs(60));
    drop(let_go);
    let access = Access::REMOTE_WRITE;
    let cookie = socket.get_mr(vec![0; 64], access, MrFlags::empty());
    cookie.unwrap();
    let report = host.shut_down();
    assert_eq!((report.leased, report.stale), (1, 0));
    assert!(!report.flush_left && !report.is_complete());
    drop(socket);
    assert!(host.shut_down().is_complete());
}
