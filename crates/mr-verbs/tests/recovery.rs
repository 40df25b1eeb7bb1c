//! Connections that break under a pool.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{Rig, device_or_skip};
use mr_core::conformance::Place;
use mr_core::{Access, Pool, RemoteKey};
use mr_policies::{Immediate, UseOnce};
use mr_verbs::{EndpointConfig, Error, ProtocolError, Status, Window2Backend};
use std::sync::Arc;
use std::time::Duration;

const WRITE: Access = Access::REMOTE_WRITE;
const PATIENCE: Duration = Duration::from_secs(30);

fn rig(test: &str) -> Option<Rig> {
    Some(Rig::new(&device_or_skip(test)?, EndpointConfig::default()))
}

fn windows(rig: &Rig) -> Arc<Window2Backend> {
    Arc::new(Window2Backend::new(&rig.ours, [rig.arena.clone()]).unwrap())
}

/// A refused access puts both queue pairs into error. The leases of the time before end in order,
/// their keys are dead for good, and the next lease works.
#[test]
fn a_queue_pair_in_error_is_replaced_and_every_lease_accounted_for() {
    let Some(rig) = rig("a_queue_pair_in_error_is_replaced_and_every_lease_accounted_for") else {
        return;
    };
    let pool = Pool::builder(windows(&rig), UseOnce)
        .capacity(8)
        .max_age(Duration::from_secs(3600))
        .build()
        .unwrap();
    let mut places = Vec::new();
    let mut leases = Vec::new();
    for _ in 0..6 {
        let lease = pool.lease(rig.arena.take(4096).unwrap(), WRITE).unwrap();
        places.push(Place {
            key: lease.remote_key(),
            addr: lease.addr(),
        });
        leases.push(lease);
    }
    rig.write(places[0], 0, b"before").unwrap();
    let wrong = Place {
        key: RemoteKey::from_bits(0x1234_5678),
        ..places[0]
    };
    let refused = rig.write(wrong, 0, b"wrong").unwrap_err();
    let status = Status::RemoteAccess;
    assert!(
        matches!(refused, Error::ConnectionLost { status: s, .. } if s == status),
        "{refused}"
    );

    // Nobody has told this end; it notices when it maps, and connects anew.
    assert_eq!(rig.ours.connections(), 1);
    let next = pool.lease(rig.arena.take(4096).unwrap(), WRITE).unwrap();
    assert_eq!(rig.ours.connections(), 2);
    let place = Place {
        key: next.remote_key(),
        addr: next.addr(),
    };
    rig.write(place, 0, b"after").unwrap();
    let memory = next.invalidate().unwrap();
    assert_eq!(&memory[..5], b"after");

    // Three ends of leases: now, in a flush, and with the pool.
    let first = leases.remove(0).invalidate().unwrap();
    assert_eq!(&first[..6], b"before");
    leases.drain(..3).for_each(|lease| lease.release());
    pool.flush().unwrap();
    drop(leases);
    for place in &places {
        assert!(rig.write(*place, 0, b"late").is_err());
        rig.ours.reconnect().unwrap();
    }
    assert_eq!(&first[..6], b"before");
    assert_eq!(pool.stats().quarantines, 0);
    let report = pool.shutdown(PATIENCE);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.freed, rig.arena.bound()), (8, 0));
}

/// The same again and again, from several threads, in the middle of what they do.
#[test]
fn threads_go_on_while_their_connection_breaks() {
    let Some(rig) = rig("threads_go_on_while_their_connection_breaks") else {
        return;
    };
    let pool = Pool::builder(windows(&rig), Immediate)
        .capacity(16)
        .build()
        .unwrap();
    let rounds = 60;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let buffer = rig.arena.take(4096).unwrap();
                    match pool.lease(buffer, WRITE) {
                        Ok(lease) => drop(lease.invalidate().unwrap()),
                        // Broken twice within one map.
                        Err(error) => assert!(error.buffer.is_some(), "{error}"),
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..10 {
                let nowhere = Place {
                    key: RemoteKey::from_bits(1),
                    addr: 0,
                };
                assert!(rig.write(nowhere, 0, b"x").is_err());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
    let stats = pool.stats();
    assert_eq!((stats.quarantines, stats.regions.leased), (0, 0));
    assert!(pool.shutdown(PATIENCE).is_complete());
    assert!(rig.ours.connections() > 1);
    assert_eq!(rig.arena.bound(), 0);
}

/// A key that the HCA does not know: the message is refused with a typed error, the connection is
/// replaced, and leases are as they were.
#[test]
fn a_bogus_remote_invalidation_is_a_protocol_error_and_ends_no_lease() {
    let Some(rig) = rig("a_bogus_remote_invalidation_is_a_protocol_error_and_ends_no_lease") else {
        return;
    };
    let pool = Pool::builder(windows(&rig), UseOnce)
        .capacity(4)
        .build()
        .unwrap();
    let lease = pool.lease(rig.arena.take(4096).unwrap(), WRITE).unwrap();
    let key = lease.remote_key();
    let bogus = RemoteKey::new(key.index() ^ 0x5a_0000, key.tag());
    // Its sender need not hear of it.
    let _ = rig.peer.send_invalidating(b"done", bogus);
    let heard = rig.ours.receive(PATIENCE).unwrap_err();
    let refused = ProtocolError::Refused(Status::RemoteInvalidRequest);
    assert!(
        matches!(heard, Error::Peer(error) if error == refused),
        "{heard}"
    );
    let lease = lease.take_if_peer_invalidated().unwrap_err();
    let memory = lease.invalidate().unwrap();
    assert!(memory.iter().all(|&byte| byte == 0));

    // The real thing still works, on a new queue pair.
    let lease = pool.lease(memory, WRITE).unwrap();
    rig.peer
        .send_invalidating(b"done", lease.remote_key())
        .unwrap();
    let message = rig.ours.receive(PATIENCE).unwrap().unwrap();
    assert_eq!(message.bytes, b"done");
    assert_eq!(message.invalidated, Some(lease.remote_key()));
    lease.take_if_peer_invalidated().unwrap();
    assert!(pool.shutdown(PATIENCE).is_complete());
}
