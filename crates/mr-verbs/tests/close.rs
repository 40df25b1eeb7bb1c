//! The order in which things go, and what is said when they cannot.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{Rig, device_or_skip};
use mr_core::{Access, Driver, Pool};
use mr_policies::UseOnce;
use mr_verbs::{
    Endpoint, EndpointConfig, Error, RegistrationBackend, Window1Backend, Window2Backend,
};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn rig(test: &str) -> Option<Rig> {
    Some(Rig::new(&device_or_skip(test)?, EndpointConfig::default()))
}

fn busy(error: &Error) -> String {
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    error.to_string()
}

/// From the windows up: each says what it waits for, and in the right order all of it goes.
#[test]
fn with_windows_outstanding_nothing_is_closed_and_each_says_why() {
    let test = "with_windows_outstanding_nothing_is_closed_and_each_says_why";
    let Some(rig) = rig(test) else {
        return;
    };
    let backend = Arc::new(Window2Backend::new(&rig.ours, [rig.arena.clone()]).unwrap());
    let pool = Arc::new(
        Pool::builder(Arc::clone(&backend), UseOnce)
            .capacity(3)
            .configure(|config| config.driver = Driver::Manual)
            .build()
            .unwrap(),
    );
    let buffer = rig.arena.take(4096).unwrap();
    let lease = pool
        .lease_owned(buffer, Access::REMOTE_WRITE, PATIENCE)
        .unwrap();
    let report = pool.shutdown(Duration::ZERO);
    assert_eq!((report.leased, report.freed), (1, 2), "{report:?}");

    let Rig {
        domain,
        arena,
        ours,
        peer,
        staging,
    } = rig;
    let (arena, error) = arena.close().unwrap_err();
    assert!(busy(&error).contains("1 windows are bound"), "{error}");
    assert!(busy(&Arc::clone(&ours).close().unwrap_err()).contains("hold its endpoint"));
    let error = Arc::clone(&domain).close().unwrap_err();
    assert!(busy(&error).contains("1 windows, "), "{error}");
    drop(lease);
    drop(pool);

    let backend = Arc::try_unwrap(backend).unwrap();
    backend.close().unwrap();
    arena.close().unwrap();
    ours.close().unwrap();
    drop((staging, peer));
    domain.close().unwrap();
}

/// Backends count their regions, and give themselves back.
#[test]
fn a_backend_with_regions_gives_itself_back() {
    use mr_core::MrBackend;
    let Some(rig) = rig("a_backend_with_regions_gives_itself_back") else {
        return;
    };
    let backend = Window1Backend::new(&rig.domain, [rig.arena.clone()]).unwrap();
    let region = backend.alloc().unwrap();
    let (backend, error) = backend.close().unwrap_err();
    assert!(busy(&error).contains("1 windows of type 1"), "{error}");
    backend.dealloc(region).unwrap();
    backend.close().unwrap();

    let backend = RegistrationBackend::new(&rig.domain);
    let regions = [backend.alloc().unwrap(), backend.alloc().unwrap()];
    let (backend, error) = backend.close().unwrap_err();
    assert!(busy(&error).contains("2 regions"), "{error}");
    regions
        .into_iter()
        .for_each(|region| backend.dealloc(region).unwrap());
    backend.close().unwrap();
}

/// Whatever is dropped first, the rest still works, and in the end all is gone.
#[test]
fn dropped_in_any_order_nothing_breaks() {
    let Some(device) = device_or_skip("dropped_in_any_order_nothing_breaks") else {
        return;
    };
    for order in 0..6 {
        let Rig {
            domain,
            arena,
            ours,
            peer,
            staging,
        } = Rig::new(&device, EndpointConfig::default());
        let backend = Window2Backend::new(&ours, [arena.clone()]).unwrap();
        let pool = Pool::builder(backend, UseOnce).capacity(2).build().unwrap();
        let pool = Arc::new(pool);
        let buffer = arena.take(4096).unwrap();
        let lease = pool
            .lease_owned(buffer, Access::REMOTE_WRITE, PATIENCE)
            .unwrap();
        let mut parts: Vec<Box<dyn FnOnce()>> = vec![
            Box::new(move || drop(pool)),
            Box::new(move || drop(lease)),
            Box::new(move || drop(arena)),
            Box::new(move || drop(ours)),
            Box::new(move || drop((peer, staging))),
        ];
        let population = Arc::downgrade(&domain);
        parts.push(Box::new(move || drop(domain)));
        parts.rotate_left(order);
        parts.into_iter().for_each(|part| part());
        assert!(population.upgrade().is_none(), "order {order}");
    }
}

/// An endpoint whose peer is gone says so when it is used, and closes.
#[test]
fn an_endpoint_without_a_peer_is_not_connected() {
    let Some(rig) = rig("an_endpoint_without_a_peer_is_not_connected") else {
        return;
    };
    let lonely = Endpoint::passive(&rig.domain, EndpointConfig::default());
    let error = lonely.send(b"anyone?").unwrap_err();
    assert!(matches!(error, Error::NotConnected(_)), "{error}");
    lonely.close().unwrap();

    let Rig {
        ours,
        peer,
        staging,
        ..
    } = rig;
    drop((peer, staging));
    let error = ours.reconnect().unwrap_err();
    assert!(matches!(error, Error::NotConnected(_)), "{error}");
    ours.close().unwrap();
}
