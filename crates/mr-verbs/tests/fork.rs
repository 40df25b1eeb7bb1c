//! Child processes and registered memory.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{Rig, device_or_skip};
use mr_core::conformance::Place;
use mr_core::{Access, Pool};
use mr_policies::Immediate;
use mr_verbs::{EndpointConfig, RegistrationBackend, make_fork_safe};
use std::process::Command;

/// A child is started while memory is mapped; what a peer writes then is where it should be.
#[test]
fn a_child_process_does_not_take_the_memory_away() {
    if device_or_skip("a_child_process_does_not_take_the_memory_away").is_none() {
        return;
    }
    make_fork_safe().unwrap();
    let device = common::device().unwrap();
    let rig = Rig::new(&device, EndpointConfig::default());
    let backend = RegistrationBackend::new(&rig.domain);
    let pool = Pool::builder(backend, Immediate)
        .capacity(1)
        .build()
        .unwrap();
    let buffer = rig.arena.take(4096).unwrap();
    let lease = pool.lease(buffer, Access::REMOTE_WRITE).unwrap();
    let status = Command::new("true").status().unwrap();
    assert!(status.success());
    let place = Place {
        key: lease.remote_key(),
        addr: lease.addr(),
    };
    rig.write(place, 0, b"after the fork").unwrap();
    assert_eq!(&lease.invalidate().unwrap()[..14], b"after the fork");
}
