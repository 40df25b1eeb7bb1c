//! Asking and answering with rds-lite on both sides, over the mock fabric: what every way of lending
//! promises is counted, and answers without their write are seen.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use mr_core::{Pool, SystemClock};
use mr_mock::{MockHca, Preset};
use rds_interop::race::{Answered, Asked, LiteSeat, Load, Seat, Way, answer, ask};
use rds_lite::Host;
use rds_lite::fabric::mock::MockNetwork;
use rds_lite::rdma::PoolRegions;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const REGIONS: u32 = 16;

const LOAD: Load = Load {
    depth: 4,
    message: 64,
    rdma: 8192,
};

const LONG: Duration = Duration::from_secs(60);

fn seats(way: Way, policy: &str, load: Load) -> [LiteSeat; 2] {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 0);
    [1, 2].map(|last| {
        let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
        let pool = Pool::builder(hca.clone(), policy.parse::<mr_policies::Policy>().unwrap())
            .capacity(REGIONS)
            .configure(|config| config.max_unclaimed = Some(u32::MAX))
            .build::<Vec<u8>>()
            .unwrap();
        let host = Host::builder(network.fabric(Some(hca)))
            .clock(clock.clone())
            .regions(PoolRegions::new(Arc::new(pool)))
            .build()
            .unwrap();
        let addr = SocketAddr::from(([10, 0, 0, last], 4000));
        LiteSeat::new(host, addr, way, REGIONS, load).unwrap()
    })
}

fn race(way: Way, policy: &str, load: Load) -> (Asked, Answered) {
    let [mut asker, mut answerer] = seats(way, policy, load);
    let to = answerer.addr();
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || answer(&mut answerer, load, LONG).unwrap());
        let asked = ask(&mut asker, to, load, Duration::from_millis(200)).unwrap();
        (asked, answering.join().unwrap())
    })
}

fn check(asked: &Asked, answered: &Answered) {
    assert_eq!(asked.operations, answered.operations);
    assert!(asked.operations > 0);
    assert!(asked.took >= Duration::from_millis(200));
    assert!(asked.round_trip > 0.0);
}

#[test]
fn messages_are_answered_and_map_nothing() {
    let load = Load { rdma: 0, ..LOAD };
    let (asked, answered) = race(Way::Killed, "immediate", load);
    check(&asked, &answered);
    assert_eq!((asked.tally.maps, asked.tally.flushes), (0, 0));
}

#[test]
fn what_is_lent_for_one_request_is_mapped_for_each() {
    for (way, policy) in [
        (Way::Killed, "immediate"),
        (Way::KilledAtUse, "immediate"),
        (Way::Once, "use-once"),
        (Way::Once, "threshold=5"),
        (Way::Once, "max-exposure=10ms"),
    ] {
        let (asked, answered) = race(way, policy, LOAD);
        check(&asked, &answered);
        // All buffers came back with the right stamps, or the end would have failed.
        assert_eq!(asked.tally.maps, asked.operations, "{policy}");
        // Who kills a key for itself needs no flush.
        assert_eq!(asked.tally.flushes > 0, way == Way::Once, "{policy}");
        assert!(asked.tally.key_seconds.unwrap() > 0.0, "{policy}");
    }
}

#[test]
fn what_is_lent_for_several_requests_is_mapped_for_several() {
    let (asked, answered) = race(Way::Times(8), "immediate", LOAD);
    check(&asked, &answered);
    // At the end each place may have something that was lent for less.
    let most = asked.operations / 8 + LOAD.depth as u64;
    let maps = asked.tally.maps;
    assert!(maps > 0 && maps <= most, "{maps} of {}", asked.operations);
}

#[test]
fn an_answer_without_its_write_is_seen() {
    for way in [Way::Killed, Way::Once, Way::Times(1)] {
        let [mut asker, mut answerer] = seats(way, "immediate", LOAD);
        let to = answerer.addr();
        let error = std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                let mut request = Vec::new();
                let glance = Duration::from_millis(5);
                while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    if let Some(came) = answerer.receive(&mut request, glance).unwrap() {
                        // An answer begins as its request does.
                        let _ = answerer.answer(came.from, &request, None).unwrap();
                    }
                }
            });
            let error = ask(&mut asker, to, LOAD, Duration::from_millis(50)).unwrap_err();
            drop(stop);
            error
        });
        let error = error.to_string();
        let told = ["stamps", "have not come back"];
        assert!(
            told.iter().any(|told| error.contains(told)),
            "{way:?}: {error}"
        );
    }
}
