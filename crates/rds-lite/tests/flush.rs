//! What a flush of a host's keys means while others are at work.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{at, live_host};
use mr_core::{Access, Pool, SystemClock};
use mr_mock::{MockHca, Preset};
use rds_lite::fabric::mock::MockNetwork;
use rds_lite::rdma::{MrFlags, PoolRegions};
use rds_lite::{Host, RdmaOp};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

/// A host in which each release begins with something to wait for.
fn host_with_slow_releases(
    network: &MockNetwork,
    clock: &Arc<SystemClock>,
    gate: Receiver<()>,
) -> Host {
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let pool = Pool::builder(hca.clone(), mr_policies::UseOnce).capacity(16);
    let pool = pool.build::<Vec<u8>>().unwrap();
    let gate = Mutex::new(gate);
    let regions = PoolRegions::new(Arc::new(pool)).on_release(move |_| {
        let _ = gate.lock().unwrap().recv_timeout(LONG);
    });
    Host::builder(network.fabric(Some(hca)))
        .clock(clock.clone())
        .regions(regions)
        .build()
        .unwrap()
}

/// Who has the message behind a use knows that the loan is over, also if the thread that has brought it is still
/// in the middle of releasing the region.
#[test]
fn a_flush_kills_the_key_of_a_loan_whose_end_was_heard_of() {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let (open, gate) = channel();
    let owner = host_with_slow_releases(&network, &clock, gate);
    let (user, _) = live_host(&network, &clock);
    let (a, b) = (owner.bind(at(1, 5)).unwrap(), user.bind(at(2, 6)).unwrap());
    let access = Access::all();
    let cookie = a.get_mr(vec![1; 64], access, MrFlags::USE_ONCE).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let op = RdmaOp::new(cookie).message("used");
            b.rdma_write(at(1, 5), op, vec![2; 64]).unwrap();
        });
        // Who asks again and again need not be woken.
        let message = loop {
            match a.try_recv_message() {
                Ok(message) => break message,
                Err(_) => thread::yield_now(),
            }
        };
        assert_eq!(&*message.payload, b"used");
        assert!(!a.flush_mrs().unwrap(), "one is about to be released");
        let flushing = scope.spawn(|| a.flush_mrs().unwrap());
        open.send(()).unwrap();
        assert!(flushing.join().unwrap(), "all keys are dead");
    });
    assert_eq!(a.reclaim(), Some((cookie, vec![2; 64])));
}
