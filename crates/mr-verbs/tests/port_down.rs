//! The port goes down under load. Alone in its program: the link is everybody's.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{Rig, device_or_skip};
use mr_core::MrBackend;
use mr_core::conformance::Place;
use mr_core::{Access, BackendError, ErrorKind, Pool};
use mr_policies::UseOnce;
use mr_verbs::{
    ArenaBuffer, Device, EndpointConfig, Error, PortState, RegistrationBackend, Window1Backend,
    Window2Backend,
};
use std::fs;
use std::io::{Write, stderr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRITE: Access = Access::REMOTE_WRITE;

/// What every wait must end in: all retries together take about a second here.
const BOUND: Duration = Duration::from_secs(20);

fn config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.ack_timeout = 14;
    config.retries = 3;
    config
}

/// The interface below a software device, which is ours to take down.
fn interface(device: &Device) -> Option<String> {
    let parent = format!("/sys/class/infiniband/{}/parent", device.name());
    Some(fs::read_to_string(parent).ok()?.trim().to_owned())
}

fn set_link(interface: &str, state: &str) {
    let status = Command::new("ip")
        .args(["link", "set", interface, state])
        .status();
    assert!(status.unwrap().success());
}

fn await_port(device: &Device, wanted: PortState) {
    let deadline = Instant::now() + BOUND;
    while device.port_state().unwrap() != wanted
        || (wanted == PortState::Active && device.gid().is_err())
    {
        assert!(Instant::now() < deadline, "the port is not {wanted}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Puts the link up again, however the test ends.
struct LinkUp<'d>(&'d str, &'d Device);

impl Drop for LinkUp<'_> {
    fn drop(&mut self) {
        set_link(self.0, "up");
        await_port(self.1, PortState::Active);
    }
}

#[test]
fn every_wait_ends_and_so_does_the_shutdown() {
    let test = "every_wait_ends_and_so_does_the_shutdown";
    let Some(device) = device_or_skip(test) else {
        return;
    };
    let Some(interface) = interface(&device) else {
        let _ = writeln!(
            stderr(),
            "{test}: LEFT OUT, the link of a real device is not ours"
        );
        return;
    };
    under_load(&device, &interface, |rig| {
        RegistrationBackend::new(&rig.domain)
    });
    under_load(&device, &interface, |rig| {
        Window1Backend::new(&rig.domain, [rig.arena.clone()]).unwrap()
    });
    under_load(&device, &interface, |rig| {
        Window2Backend::new(&rig.ours, [rig.arena.clone()]).unwrap()
    });
}

fn under_load<B: MrBackend>(device: &Arc<Device>, interface: &str, make: fn(&Rig) -> B) {
    let rig = Rig::new(device, config());
    let pool: Pool<B, ArenaBuffer> = Pool::builder(make(&rig), UseOnce)
        .capacity(16)
        .build()
        .unwrap();
    let written = AtomicU32::new(0);
    let down = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            loop {
                let lease = pool.lease(rig.arena.take(4096).unwrap(), WRITE).unwrap();
                let place = Place {
                    key: lease.remote_key(),
                    addr: lease.addr(),
                };
                if let Err(error) = rig.write(place, 0, b"load") {
                    return (error, Instant::now());
                }
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        while written.load(Ordering::Relaxed) < 20 && !worker.is_finished() {
            thread::yield_now();
        }
        set_link(interface, "down");
        let down = Instant::now();
        let (error, ended) = worker.join().unwrap();
        assert!(matches!(error, Error::ConnectionLost { .. }), "{error}");
        assert!(ended.duration_since(down) < BOUND);
        down
    });
    let up = LinkUp(interface, device);
    await_port(device, PortState::Down);

    let error = rig.ours.reconnect().unwrap_err();
    assert!(matches!(error, Error::PortDown { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Busy);
    // A lease may be had or not; either way at once, and it ends.
    match pool.lease(rig.arena.take(4096).unwrap(), WRITE) {
        Ok(lease) => drop(lease.invalidate().unwrap()),
        Err(error) => assert!(error.buffer.is_some(), "{error}"),
    }
    let report = pool.shutdown(BOUND);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.freed, rig.arena.bound()), (16, 0));
    assert!(down.elapsed() < BOUND);

    drop(up);
    rig.ours.reconnect().unwrap();
    rig.peer.send(b"back again").unwrap();
    let message = rig.ours.receive(BOUND).unwrap().unwrap();
    assert_eq!(message.bytes, b"back again");
}
