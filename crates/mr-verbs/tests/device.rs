//! Devices: found, opened, questioned, and missed.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{DEVICE, device_or_skip};
use mr_core::{BackendError, ErrorKind};
use mr_verbs::{Arena, Device, Domain, Error, PortState, devices};
use std::path::Path;

#[test]
fn without_a_device_there_is_a_typed_error_and_no_empty_list() {
    let any = Path::new("/sys/class/infiniband").read_dir();
    if std::env::var_os(DEVICE).is_some() || any.is_ok_and(|mut any| any.next().is_some()) {
        assert!(!devices().unwrap().is_empty());
        return;
    }
    for outcome in [devices().map(drop), Device::open_first().map(drop)] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::NoDevice { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::NoDevice);
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_right_ones() {
    let Some(device) = device_or_skip("a_wrong_name_is_answered_with_the_right_ones") else {
        return;
    };
    match Device::open("no-such-device") {
        Err(Error::NoDevice {
            wanted, present, ..
        }) => {
            assert_eq!(wanted.as_deref(), Some("no-such-device"));
            assert!(present.iter().any(|name| name == device.name()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_port_is_up_and_has_an_address() {
    let Some(device) = device_or_skip("the_port_is_up_and_has_an_address") else {
        return;
    };
    assert_eq!(device.port_state().unwrap(), PortState::Active);
    let gid = device.gid().unwrap();
    assert_ne!(gid.bytes, [0; 16]);
    if device.is_software() {
        // The virtual machine's interface has an IPv4 address, and a link-local one before it.
        assert_eq!(
            gid.bytes[..12],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            "{gid}"
        );
        let limits = device.limits();
        assert!(limits.windows_1 && limits.windows_2, "{limits:?}");
    }
    assert!(device.limits().max_registrations > 0);
}

/// More than the machine has: the error says what to do, and nothing is left behind.
#[test]
fn an_arena_that_cannot_be_says_why() {
    let Some(device) = device_or_skip("an_arena_that_cannot_be_says_why") else {
        return;
    };
    let domain = Domain::new(&device).unwrap();
    for bytes in [usize::MAX, isize::MAX as usize, 1 << 46] {
        let error = Arena::new(&domain, bytes).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::NoMemory);
    }
    domain.close().unwrap();
}
