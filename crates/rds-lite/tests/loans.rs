//! A buffer that cannot be lent comes back, whatever goes wrong.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::at;
use mr_core::{Access, Pool, PoolStats, RemoteKey, SystemClock, Time};
use mr_mock::{MockHca, Preset};
use mr_policies::Policy;
use rds_lite::fabric::mock::MockNetwork;
use rds_lite::rdma::{Leased, MrError, MrFlags, Regions, StillAlive};
use rds_lite::{Cookie, Host, Socket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Buffers whose keys have died by now.
type Dead = Arc<Mutex<Vec<Vec<u8>>>>;

/// A pool with keys that count from an address, or that do not die at once.
struct Odd {
    pool: Pool<MockHca>,
    from: u64,
    dies: bool,
    dead: Dead,
}

#[derive(Debug)]
struct OddLease {
    buffer: Vec<u8>,
    from: u64,
    dies: bool,
    dead: Dead,
}

impl Regions for Odd {
    fn lease(&self, buffer: Vec<u8>, _: Access, _: Duration) -> Result<Box<dyn Leased>, MrError> {
        Ok(Box::new(OddLease {
            buffer,
            from: self.from,
            dies: self.dies,
            dead: Arc::clone(&self.dead),
        }))
    }
    fn flush(&self) -> bool {
        true
    }
    fn reclaim(&self, to: &mut Vec<Vec<u8>>) {
        to.append(&mut self.dead.lock().unwrap());
    }
    fn step(&self) -> Option<Time> {
        None
    }
    fn stats(&self) -> PoolStats {
        self.pool.stats()
    }
}

impl Leased for OddLease {
    fn key(&self) -> RemoteKey {
        RemoteKey::from_bits(0x4200)
    }
    fn remote_addr(&self) -> u64 {
        self.from
    }
    fn addr(&self) -> u64 {
        self.buffer.as_ptr().addr() as u64
    }
    fn release(self: Box<Self>) {
        self.dead.lock().unwrap().push(self.buffer);
    }
    fn invalidate(self: Box<Self>) -> Result<Vec<u8>, StillAlive> {
        if self.dies {
            return Ok(self.buffer);
        }
        self.release();
        Err(StillAlive("not yet".into()))
    }
}

fn socket(from: u64, dies: bool) -> Socket {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 1);
    let hca = MockHca::new(&Preset::named("connectx-5").unwrap());
    let unused = Pool::builder(hca.clone(), Policy::default()).build::<Vec<u8>>();
    let host = Host::builder(network.fabric(Some(hca)))
        .clock(clock)
        .regions(Odd {
            pool: unused.unwrap(),
            from,
            dies,
            dead: Dead::default(),
        })
        .build()
        .unwrap();
    host.bind(at(1, 5)).unwrap()
}

fn lend(socket: &Socket) -> MrError {
    let refused = socket.get_mr(vec![7; 64], Access::all(), MrFlags::empty());
    refused.unwrap_err()
}

const FAR: u64 = 1 << 40;

fn no_offset() -> Cookie {
    Cookie::new(RemoteKey::from_bits(0x4200), 0)
}

#[test]
fn a_key_that_counts_from_an_address_is_refused_with_the_buffer() {
    let MrError::NotZeroBased { buffer } = lend(&socket(FAR, true)) else {
        panic!("it does not fit into a cookie");
    };
    assert_eq!(buffer, Some(vec![7; 64]));
    let socket = socket(FAR, false);
    assert!(matches!(
        lend(&socket),
        MrError::NotZeroBased { buffer: None }
    ));
    assert_eq!(socket.reclaim(), Some((no_offset(), vec![7; 64])));
}

#[test]
fn a_host_that_is_shut_down_lends_nothing_and_keeps_nothing() {
    let lent = socket(0, true);
    lent.host().shut_down();
    let MrError::Closed { buffer } = lend(&lent) else {
        panic!("the host is shut down");
    };
    assert_eq!(buffer, Some(vec![7; 64]));
    let slow = socket(0, false);
    slow.host().shut_down();
    assert!(matches!(lend(&slow), MrError::Closed { buffer: None }));
    assert_eq!(slow.reclaim(), Some((no_offset(), vec![7; 64])));
}

#[test]
fn without_a_pool_there_is_no_loan_and_the_buffer_comes_back() {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock, 1);
    let host = Host::builder(network.fabric(None)).build().unwrap();
    let socket = host.bind(at(1, 5)).unwrap();
    let MrError::Unsupported { buffer, .. } = lend(&socket) else {
        panic!("there is no pool");
    };
    assert_eq!(buffer, Some(vec![7; 64]));
}
