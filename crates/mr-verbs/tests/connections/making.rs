//! How connections are made, and why they are not.

use crate::rig::{BOUND, End, Place, open_files};
use mr_verbs::cm::{
    ConnectionConfig, Dial, DialError, Listener, MAX_REJECT_DATA, MAX_REPLY_DATA, MAX_REQUEST_DATA,
    Over, RejectReason, Waker, dial,
};
use mr_verbs::{Device, Error};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_device_is_found_by_its_address() {
    let Some(place) = Place::or_skip("a_device_is_found_by_its_address") else {
        return;
    };
    let found = Device::of_address(place.ip).unwrap();
    assert_eq!(found.name(), place.domain.device().name());
    let nobodys = Ipv4Addr::new(192, 0, 2, 1);
    let error = Device::of_address(nobodys).unwrap_err();
    assert!(matches!(error, Error::NoDeviceAt { .. }), "{error:?}");
    let nobodys = SocketAddrV4::new(nobodys, 0);
    let error = Listener::bind(&place.domain, nobodys, 1).unwrap_err();
    assert!(matches!(error, Error::NoDeviceAt { .. }), "{error:?}");
}

/// What either end says arrives at the other, and behind it nothing but zeros.
#[test]
fn private_data_goes_both_ways() {
    let Some(place) = Place::or_skip("private_data_goes_both_ways") else {
        return;
    };
    let config = ConnectionConfig::default();
    let listener = place.listen(1);
    let remote = listener.local_addr();
    for (asked, answered) in [
        (&b""[..], &b""[..]),
        (b"ask", b"answer"),
        (&[0xa5; MAX_REQUEST_DATA], &[0x5a; MAX_REPLY_DATA]),
    ] {
        thread::scope(|scope| {
            let dialled = scope.spawn(|| place.dial(remote, &config, asked).unwrap());
            let request = listener.wait(BOUND).unwrap().expect("a request");
            let (heard, padding) = request.private_data().split_at(asked.len());
            assert_eq!(heard, asked);
            assert!(padding.iter().all(|byte| *byte == 0), "{padding:?}");
            assert_eq!(request.local_addr(), remote);
            let peer = request.peer_addr();
            assert_eq!(peer.ip(), &place.ip);
            let (accepted, _poller) = request.accept(&config, answered).unwrap();
            let dialled = dialled.join().unwrap();
            let (heard, padding) = dialled.private_data.split_at(answered.len());
            assert_eq!(heard, answered);
            assert!(padding.iter().all(|byte| *byte == 0), "{padding:?}");
            assert_eq!(dialled.connection.peer_addr(), remote);
            assert_eq!(dialled.connection.local_addr(), peer);
            assert_eq!(accepted.peer_addr(), peer);
        });
    }
    let error = place.dial(remote, &config, &[0; MAX_REQUEST_DATA + 1]);
    assert!(matches!(
        error,
        Err(DialError::Failed(Error::TooLong { .. }))
    ));
}

#[test]
fn a_rejection_says_why() {
    let Some(place) = Place::or_skip("a_rejection_says_why") else {
        return;
    };
    let config = ConnectionConfig::default();
    let listener = place.listen(1);
    let remote = listener.local_addr();
    for why in [Some(&b"no"[..]), Some(&[7; MAX_REJECT_DATA]), None] {
        thread::scope(|scope| {
            let dialled = scope.spawn(|| place.dial(remote, &config, b"please"));
            let request = listener.wait(BOUND).unwrap().expect("a request");
            match why {
                Some(why) => request.reject(why).unwrap(),
                None => drop(request),
            }
            match dialled.join().unwrap() {
                Err(DialError::Rejected {
                    reason,
                    private_data,
                }) => {
                    if let Some(why) = why {
                        assert_eq!(reason, RejectReason::Application);
                        assert_eq!(&private_data[..why.len()], why);
                    }
                }
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn where_nobody_listens_the_dial_ends_soon() {
    let Some(place) = Place::or_skip("where_nobody_listens_the_dial_ends_soon") else {
        return;
    };
    let config = ConnectionConfig::default();
    let remote = {
        let listener = place.listen(1);
        listener.local_addr()
    };
    match place.dial(remote, &config, b"") {
        Err(DialError::Rejected { reason, .. }) => assert_eq!(reason, RejectReason::NobodyListens),
        other => panic!("{other:?}"),
    }
    // An address of the network that nobody has.
    let mut octets = place.ip.octets();
    octets[3] = 250;
    let started = Instant::now();
    let wanted = Dial {
        local: place.ip,
        remote: SocketAddrV4::new(octets.into(), 1),
        private_data: b"",
        timeout: Duration::from_secs(2),
    };
    let error = dial(&place.domain, &wanted, &config, &Waker::new().unwrap()).unwrap_err();
    assert!(
        matches!(error, DialError::Unreachable(_) | DialError::TimedOut),
        "{error:?}"
    );
    assert!(started.elapsed() < BOUND);
    // An address that is not of this host.
    let wanted = Dial {
        local: Ipv4Addr::new(192, 0, 2, 1),
        ..wanted
    };
    let error = dial(&place.domain, &wanted, &config, &Waker::new().unwrap()).unwrap_err();
    assert!(
        matches!(error, DialError::Failed(Error::NoDeviceAt { .. }))
            || matches!(error, DialError::Unreachable(_)),
        "{error:?}"
    );
}

/// A dial that nobody answers ends when its time is over, or when it is cancelled.
#[test]
fn a_dial_without_an_answer_is_bounded() {
    let Some(place) = Place::or_skip("a_dial_without_an_answer_is_bounded") else {
        return;
    };
    let config = ConnectionConfig::default();
    let listener = place.listen(4);
    let wanted = Dial {
        local: place.ip,
        remote: listener.local_addr(),
        private_data: b"",
        timeout: Duration::from_millis(300),
    };
    let cancel = Waker::new().unwrap();
    let error = dial(&place.domain, &wanted, &config, &cancel).unwrap_err();
    assert!(matches!(error, DialError::TimedOut), "{error:?}");
    let wanted = Dial {
        timeout: Duration::MAX,
        ..wanted
    };
    thread::scope(|scope| {
        let dialled = scope.spawn(|| dial(&place.domain, &wanted, &config, &cancel).map(drop));
        let mut requests = vec![listener.wait(BOUND).unwrap().expect("of the first dial")];
        requests.push(listener.wait(BOUND).unwrap().expect("of the second"));
        cancel.wake();
        let error = dialled.join().unwrap().unwrap_err();
        assert!(matches!(error, DialError::Cancelled), "{error:?}");
        // Whoever accepts now hears that it was in vain.
        for request in requests {
            if let Ok((connection, poller)) = request.accept(&config, b"") {
                let mut end = End::new(connection, poller);
                end.run_until("the end of what nobody wants", |end| !end.over.is_empty());
                assert!(
                    matches!(end.over[..], [Over::NotEstablished | Over::Disconnected]),
                    "{:?}",
                    end.over
                );
            }
        }
    });
}

#[test]
fn a_listener_can_be_woken() {
    let Some(place) = Place::or_skip("a_listener_can_be_woken") else {
        return;
    };
    let listener = place.listen(1);
    assert!(listener.wait(Duration::ZERO).unwrap().is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| listener.wait(Duration::MAX).unwrap().is_none());
        listener.waker().wake();
        assert!(waiter.join().unwrap());
    });
}

/// A peer that only asks cannot make this host keep more than the backlog.
#[test]
fn requests_without_an_answer_are_bounded() {
    let Some(place) = Place::or_skip("requests_without_an_answer_are_bounded") else {
        return;
    };
    const BACKLOG: usize = 2;
    const DIALS: usize = 5;
    let mut config = ConnectionConfig::default();
    config.receives = 8;
    let listener = place.listen(BACKLOG as u32);
    let remote = listener.local_addr();
    let cancel = Waker::new().unwrap();
    thread::scope(|scope| {
        let wanted = Dial {
            local: place.ip,
            remote,
            private_data: b"",
            timeout: Duration::from_secs(3),
        };
        let dials: Vec<_> = (0..DIALS)
            .map(|_| {
                let (config, place, cancel) = (&config, &place, &cancel);
                scope.spawn(move || dial(&place.domain, &wanted, config, cancel).map(drop))
            })
            .collect();
        let mut kept = Vec::new();
        let until = Instant::now() + Duration::from_secs(2);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            kept.extend(listener.wait(left).unwrap());
        }
        assert_eq!(kept.len(), BACKLOG);
        let ends: Vec<_> = dials.into_iter().map(|dial| dial.join().unwrap()).collect();
        assert!(ends.iter().all(Result::is_err));
        // A place that is free again is given to the next.
        kept.clear();
        let again = scope.spawn(|| place.dial(remote, &config, b""));
        let request = listener.wait(BOUND).unwrap().expect("a request");
        let _ends = request.accept(&config, b"").unwrap();
        again.join().unwrap().unwrap();
    });
}

/// Both ends dial each other at the same moment, which the connection manager lets both do.
#[test]
fn two_that_dial_each_other_get_two_connections() {
    let Some(place) = Place::or_skip("two_that_dial_each_other_get_two_connections") else {
        return;
    };
    let config = ConnectionConfig::default();
    let listeners = [place.listen(1), place.listen(1)];
    thread::scope(|scope| {
        let sides: Vec<_> = (0..2)
            .map(|side| {
                let (place, config, listeners) = (&place, &config, &listeners);
                let accepted = scope.spawn(move || {
                    let request = listeners[side].wait(BOUND).unwrap().expect("a request");
                    let (connection, poller) = request.accept(config, b"").unwrap();
                    let mut end = End::new(connection, poller);
                    end.run_until("the peer is ready", |end| end.established);
                    end
                });
                let other = listeners[1 - side].local_addr();
                let dialled = scope.spawn(move || place.dial(other, config, b"").unwrap());
                (accepted, dialled)
            })
            .collect();
        // No end is dropped before all have been looked at: the end of one is the end of another.
        let ends: Vec<_> = sides
            .into_iter()
            .map(|(accepted, dialled)| (accepted.join().unwrap(), dialled.join().unwrap()))
            .collect();
        for (accepted, dialled) in &ends {
            assert!(!accepted.connection.is_over() && !dialled.connection.is_over());
        }
    });
}

/// A thousand connections that come and go leave nothing behind: no file, no memory, no queue pair.
#[test]
fn a_thousand_connections_leave_nothing() {
    let Some(place) = Place::or_skip("a_thousand_connections_leave_nothing") else {
        return;
    };
    const COUNT: usize = 1000;
    let mut config = ConnectionConfig::default();
    config.sends = 8;
    config.receives = 8;
    config.staging_bytes = 4096;
    let listener = place.listen(4);
    let remote = listener.local_addr();
    thread::scope(|scope| {
        let (place, config) = (&place, &config);
        let dialler = scope.spawn(move || {
            let mut files = 0;
            for round in 0..COUNT {
                let dialled = place.dial(remote, config, b"").unwrap();
                match round % 3 {
                    0 => dialled.connection.disconnect(),
                    1 => drop(dialled.poller.close().unwrap()),
                    _ => drop(dialled),
                }
                if round == 10 {
                    files = open_files();
                }
            }
            files
        });
        let mut accepted = Vec::new();
        for _ in 0..COUNT {
            let request = listener.wait(BOUND).unwrap().expect("a request");
            let (connection, poller) = request.accept(config, b"").unwrap();
            accepted.push(End::new(connection, poller));
            if accepted.len() > 4 {
                let mut end = accepted.remove(0);
                end.run_until("the peer has closed", |end| !end.over.is_empty());
            }
        }
        for mut end in accepted {
            end.run_until("the peer has closed", |end| !end.over.is_empty());
        }
        let files = dialler.join().unwrap();
        // Other tests of this program have files open, too.
        let now = open_files();
        assert!(now < files + COUNT / 2, "{now} files, {files} before");
    });
    drop(listener);
    place.domain.close().unwrap();
}
