//! What a host does between two calls: nothing is left for the next one.

use super::*;
use crate::fabric::mock::{Faults, MockNetwork};
use mr_core::ManualClock;
use std::net::{IpAddr, Ipv4Addr};

fn addr(place: usize) -> SocketAddr {
    let ip = Ipv4Addr::new(10, 0, 0, 1 + place as u8);
    SocketAddr::new(IpAddr::V4(ip), 5)
}

fn pair(seed: u64, like_infiniband: bool) -> (Arc<ManualClock>, MockNetwork, [Host; 2]) {
    let clock = Arc::new(ManualClock::new());
    let network = MockNetwork::new(clock.clone(), seed);
    let hosts = [0, 1].map(|place| {
        let mut fabric = network.fabric(None);
        if like_infiniband {
            fabric = fabric.like_infiniband(16);
        }
        Host::builder(fabric)
            .clock(clock.clone())
            .driving(Driving::Manual)
            .configure(|config| config.seed = Some(seed + place))
            .build()
            .unwrap()
    });
    (clock, network, hosts)
}

/// Sending may settle messages that have arrived after all, and sets deadlines: both without anybody asking
/// for it.
#[test]
fn what_follows_from_sending_is_done_at_once() {
    for seed in 0..50 {
        let (clock, network, hosts) = pair(seed, seed % 2 == 1);
        let sockets = [0, 1].map(|place| hosts[place].bind(addr(place)).unwrap());
        let mut faults = Faults::none();
        faults.delay = Duration::from_micros(10)..=Duration::from_millis(1);
        faults.lose_link = 0.1;
        network.set_faults(faults);
        let done = |what| {
            for host in &hosts {
                let mut events = Vec::new();
                let mut core = host.shared.lock();
                core.take_events(&mut events);
                assert!(events.is_empty(), "seed {seed}, {what}: {events:?}");
                assert_eq!(core.take_armed(), None, "seed {seed}, {what}");
            }
        };
        for number in 0..300_u32 {
            let from = number as usize % 2;
            sockets[from]
                .try_send_to(&number.to_be_bytes(), addr(1 - from))
                .unwrap();
            done("sent");
            while network.next_due().is_some_and(|due| due <= clock.now()) {
                network.step();
                done("arrived");
            }
            for host in &hosts {
                host.poll();
            }
            done("polled");
            clock.advance(Duration::from_micros(200));
        }
    }
}
