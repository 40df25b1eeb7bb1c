//! How connections end: everything that was posted ends once, and nothing stays.

use crate::rig::{BOUND, End, Place, header};
use mr_core::{Access, Pool};
use mr_policies::UseOnce;
use mr_verbs::cm::{ConnectionConfig, Flags, Over, Refused, RemoteMemory};
use mr_verbs::{RegistrationBackend, Status};
use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

/// Waits for the end of the connection and of all that was posted on it.
fn drain(end: &mut End) {
    end.run_until("everything has ended", |end| end.poller.is_drained());
    assert_eq!(end.over.len(), 1, "told once: {:?}", end.over);
    assert!(end.connection.is_over());
}

fn assert_each_once(end: &End, count: u64) {
    let ids: HashSet<_> = end.ended.iter().map(|ended| ended.id).collect();
    assert_eq!(end.ended.len() as u64, count, "{:?}", end.ends());
    assert_eq!(ids.len() as u64, count, "{:?}", end.ends());
}

#[test]
fn a_refused_key_ends_the_connection_and_each_request_once() {
    let Some(place) = Place::or_skip("a_refused_key_ends_the_connection_and_each_request_once")
    else {
        return;
    };
    let pool = Pool::builder(RegistrationBackend::zero_based(&place.domain), UseOnce)
        .build()
        .unwrap();
    for staged in [0, usize::MAX] {
        let mut config = ConnectionConfig::default();
        config.staged_at_most = staged;
        let (mut near, mut far) = place.ends(&config);
        let lease = pool.lease(vec![0; 4096], Access::REMOTE_WRITE).unwrap();
        let target = RemoteMemory {
            addr: lease.remote_addr(),
            key: lease.remote_key(),
        };
        let mut batch = near.connection.batch();
        let ones = || vec![vec![1; 64]];
        batch.write(0, ones(), target, Flags::empty()).unwrap();
        batch.send(1, &header(1), b"", Flags::SIGNALLED).unwrap();
        batch.post();
        far.run_until("the frame", |end| end.frames.len() == 1);
        near.run_until("both have ended", |end| end.ended.len() == 2);
        let memory = lease.invalidate().unwrap();
        assert_eq!(memory[..64], [1; 64]);

        let mut batch = near.connection.batch();
        batch.send(2, &header(2), b"", Flags::empty()).unwrap();
        batch.write(3, ones(), target, Flags::empty()).unwrap();
        batch.send(4, &header(4), b"", Flags::empty()).unwrap();
        batch.read(5, ones(), target, Flags::empty()).unwrap();
        batch.fetch_add(6, target, 1, Flags::empty()).unwrap();
        batch.post();
        drain(&mut near);
        assert_eq!(near.over, [Over::Failed(Status::RemoteAccess)]);
        assert_each_once(&near, 7);
        let ends = near.ends();
        assert_eq!(
            ends[2..4],
            [(2, Status::Success), (3, Status::RemoteAccess)]
        );
        for (place, id) in (4..7).enumerate() {
            assert_eq!(ends[4 + place], (id, Status::Flushed));
        }
        assert_eq!(near.ended[3].local, ones(), "buffers come back");
        assert_eq!(near.ended[5].local.len(), 1);
        drain(&mut far);
        assert_eq!(far.frames.len(), 2);

        // On what is over everything is taken, and flushed.
        let mut batch = near.connection.batch();
        batch.send(7, &header(7), b"", Flags::empty()).unwrap();
        batch.write(8, ones(), target, Flags::empty()).unwrap();
        batch.post();
        near.run_until("they have ended", |end| end.ended.len() == 9);
        assert_eq!(
            near.ends()[7..],
            [(7, Status::Flushed), (8, Status::Flushed)]
        );
        assert_eq!(near.ended[8].local, ones());
        assert_eq!(near.connection.repost(1), 0);
    }
}

#[test]
fn both_ends_hear_of_a_disconnect_once() {
    let Some(place) = Place::or_skip("both_ends_hear_of_a_disconnect_once") else {
        return;
    };
    let config = ConnectionConfig::default();
    for both in [false, true] {
        let (mut near, mut far) = place.ends(&config);
        near.connection.disconnect();
        if both {
            far.connection.disconnect();
        }
        drain(&mut near);
        drain(&mut far);
        assert_eq!(near.over, [Over::Closed]);
        let heard = if both { Over::Closed } else { far.over[0] };
        assert_eq!(far.over, [heard]);
        near.connection.disconnect();
        assert!(!near.poller.wait(Duration::ZERO) || near.poll() == 0);
    }
}

/// Frames and writes both ways, and then either end disconnects or goes away in the middle.
#[test]
fn a_disconnect_under_load_loses_no_end() {
    let Some(place) = Place::or_skip("a_disconnect_under_load_loses_no_end") else {
        return;
    };
    let pool = Pool::builder(RegistrationBackend::zero_based(&place.domain), UseOnce)
        .build()
        .unwrap();
    for round in 0..12_u64 {
        let mut config = ConnectionConfig::default();
        config.sends = 64;
        config.receives = 128;
        config.staged_at_most = 1024;
        let (near, far) = place.ends(&config);
        let lease = pool.lease(vec![0; 8192], Access::REMOTE_WRITE).unwrap();
        let target = RemoteMemory {
            addr: lease.remote_addr(),
            key: lease.remote_key(),
        };
        let (near_connection, far_connection) = (near.connection.clone(), far.connection.clone());
        thread::scope(|scope| {
            let load = |mut end: End| {
                move || {
                    let mut posted = 0;
                    while !end.connection.is_over() {
                        let mut batch = end.connection.batch();
                        loop {
                            let size = if posted % 4 == 0 { 8192 } else { 512 };
                            let taken = if posted % 2 == 0 {
                                let local = vec![vec![posted as u8; size]];
                                let written = batch.write(posted, local, target, Flags::empty());
                                written.map_err(|not| not.why)
                            } else {
                                batch.send(posted, &header(posted), b"load", Flags::empty())
                            };
                            match taken {
                                Ok(()) => posted += 1,
                                Err(Refused::Full) => break,
                                Err(error) => panic!("{error}"),
                            }
                        }
                        batch.post();
                        end.poller.wait(BOUND);
                        end.poll();
                        let seen = end.frames.len() as u32;
                        end.frames.clear();
                        end.connection.repost(seen);
                    }
                    drain(&mut end);
                    assert_each_once(&end, posted);
                    let written = end.ended.iter().filter(|ended| ended.id % 2 == 0);
                    assert!(written.clone().all(|ended| ended.local.len() == 1));
                    // Successes come first, then at most one failure of its own kind, then flushes.
                    let statuses: Vec<_> =
                        end.ends().into_iter().map(|(_, status)| status).collect();
                    let good = statuses
                        .iter()
                        .take_while(|status| **status == Status::Success);
                    let good = good.count();
                    assert!(
                        statuses[good..]
                            .iter()
                            .all(|status| *status != Status::Success),
                        "{statuses:?}"
                    );
                    posted
                }
            };
            let (near, far) = (scope.spawn(load(near)), scope.spawn(load(far)));
            // Some progress, and then the end, at a different moment each time.
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(5 * round) {
                thread::yield_now();
            }
            if round % 2 == 0 {
                near_connection.disconnect();
            } else {
                far_connection.disconnect();
            }
            assert!(near.join().unwrap() + far.join().unwrap() > 0);
        });
        lease.invalidate().unwrap();
    }
}

/// A peer that does not receive cannot keep buffers for ever.
#[test]
fn what_the_peer_does_not_take_ends_at_a_disconnect() {
    let Some(place) = Place::or_skip("what_the_peer_does_not_take_ends_at_a_disconnect") else {
        return;
    };
    let mut small = ConnectionConfig::default();
    small.receives = 1;
    let mut config = ConnectionConfig::default();
    config.drain = Duration::from_millis(500);
    let (mut near, far) = place.ends_of(&config, &small);
    let mut batch = near.connection.batch();
    for id in 0..10 {
        batch.send(id, &header(id), b"", Flags::empty()).unwrap();
    }
    batch.post();
    let started = Instant::now();
    near.connection.disconnect();
    drain(&mut near);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_each_once(&near, 10);
    drop(far);
}

/// Either half may go first, in the middle of anything; then the domain can be closed.
#[test]
fn halves_that_are_dropped_leave_nothing() {
    let Some(place) = Place::or_skip("halves_that_are_dropped_leave_nothing") else {
        return;
    };
    for order in 0..4 {
        let mut config = ConnectionConfig::default();
        config.staged_at_most = 16;
        let (near, mut far) = place.ends(&config);
        let mut batch = near.connection.batch();
        for id in 0..20 {
            let target = RemoteMemory {
                addr: 0,
                key: mr_core::RemoteKey::from_bits(0x0123_4567),
            };
            batch.send(id, &header(id), b"", Flags::SIGNALLED).unwrap();
            if id == 10 {
                batch
                    .write(id, vec![vec![1; 5000]], target, Flags::empty())
                    .unwrap();
            }
        }
        batch.post();
        let End {
            connection, poller, ..
        } = near;
        match order {
            0 => drop((connection, poller)),
            1 => drop((poller, connection)),
            2 => {
                let ends = poller.close().unwrap();
                let ids: HashSet<_> = ends.iter().map(|ended| ended.id).collect();
                assert_eq!((ends.len(), ids.len()), (21, 20));
                // Its queue pair is gone, and what is posted now is flushed into nothing.
                let mut batch = connection.batch();
                batch.send(99, &header(99), b"", Flags::SIGNALLED).unwrap();
                batch.post();
                assert_eq!(connection.repost(1), 0);
            }
            _ => {
                drop(connection);
                let mut halved = poller;
                let deadline = Instant::now() + BOUND;
                while !halved.is_drained() {
                    assert!(Instant::now() < deadline);
                    halved.wait(BOUND);
                    halved.poll(usize::MAX, |event| drop(event));
                }
            }
        }
        far.run_until("the peer is gone", |end| !end.over.is_empty());
    }
    place.domain.close().unwrap();
}
