//! More peers in the life of a host than it has connections.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]
#![allow(clippy::print_stdout, reason = "the seed of a failed run")]

mod common;

use common::{World, at, ip};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rds_lite::Socket;
use rds_lite::fabric::mock::Faults;
use rds_lite::proto::{Notification, SendError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A peer that nobody needs is forgotten for another, as often as one comes.
#[test]
fn peers_that_are_gone_keep_out_nobody() {
    let mut world = World::new(1);
    world.add_host(|config| {
        config.max_connections = 2;
        config.idle_attempts = 1;
    });
    let hub = world.socket(0, 5);
    for last in 2..22 {
        world.add_host(|_| {});
        let peer = world.hosts[1].bind(at(last, 5)).unwrap();
        peer.send_to(b"here", at(1, 5)).unwrap();
        world.run(100 * MS);
        assert_eq!(&*hub.try_recv_message().unwrap().payload, b"here");
        hub.send_to(b"there", peer.local_addr()).unwrap();
        world.run(100 * MS);
        assert_eq!(&*peer.try_recv_message().unwrap().payload, b"there");
        assert_eq!((hub.unsent(), peer.unsent()), (0, 0));
        drop(peer);
        world.hosts.pop();
        world.run(2000 * MS);
    }
    assert_eq!(world.hosts[0].counters().lite_forgotten_peers, 18);
    assert_eq!(world.hosts[0].connections().len(), 2);
    assert_eq!(world.hosts[0].connections()[0].links, 2, "of this peer");
}

#[test]
fn a_connection_in_use_is_given_to_nobody() {
    let mut world = World::new(1);
    world.add_host(|config| config.max_connections = 1);
    for _ in 0..2 {
        world.add_host(|_| {});
    }
    let (hub, first, second) = (world.socket(0, 5), world.socket(1, 5), world.socket(2, 5));
    hub.send_to(b"waits", at(2, 5)).unwrap();
    let full = |error| matches!(error, SendError::TooManyPeers(1));
    assert!(hub.send_to(b"no", at(3, 5)).is_err_and(full));
    world.network.set_cut(ip(1), ip(2), true);
    world.run(1000 * MS);
    assert!(
        hub.send_to(b"no", at(3, 5)).is_err_and(full),
        "it is needed"
    );
    world.network.set_cut(ip(1), ip(2), false);
    world.run(2000 * MS);
    assert_eq!(&*first.try_recv_message().unwrap().payload, b"waits");
    assert!(
        hub.send_to(b"no", at(3, 5)).is_err_and(full),
        "there is a link"
    );
    assert!(second.try_recv_message().is_err());
}

/// What one socket has sent to another, and what has become of it.
#[derive(Default)]
struct Ledger {
    /// Numbers of messages by what their sends returned.
    sent: BTreeMap<u64, u32>,
    arrived: Vec<u32>,
    failed: BTreeSet<u32>,
}

impl Ledger {
    /// Once and in order, or reported.
    fn check(&self) {
        assert!(
            self.arrived.is_sorted_by(|a, b| a < b),
            "twice, or out of order"
        );
        for number in self.sent.values() {
            let known = self.arrived.binary_search(number).is_ok() || self.failed.contains(number);
            assert!(known, "{number} is lost without a word");
        }
    }
}

fn send(from: &Socket, to: &Socket, number: u32, ledger: &mut Ledger) -> bool {
    match from.try_send_to(&number.to_be_bytes(), to.local_addr()) {
        Ok(id) => ledger.sent.insert(id, number).is_none(),
        Err(SendError::TooManyPeers(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Takes what has come to `at`, from several.
fn take(at: &Socket, mut from: impl FnMut(std::net::SocketAddr, u32)) {
    while let Ok(message) = at.try_recv_message() {
        let number = u32::from_be_bytes(*message.payload.first_chunk().unwrap());
        from(message.from, number);
    }
}

/// Messages both ways between a host and more peers than it has connections, over links that are lost with
/// what is under way. Nobody begins anew, so everything arrives once and in order, or is reported; also where
/// one side has forgotten the other meanwhile.
#[test]
fn a_peer_that_was_forgotten_gets_nothing_twice_and_loses_nothing_unsaid() {
    let mut forgotten = 0;
    for seed in 0..200 {
        println!("seed {seed}");
        forgotten += run(seed);
    }
    assert!(forgotten > 300, "{forgotten}");
}

const PEERS: usize = 4;

fn run(seed: u64) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut below = move |most: u32| random.next_u32() % most;
    let mut world = World::new(seed);
    // Half of them say who they are with a dial.
    world.ring = (seed % 2 == 1).then_some(16);
    for place in 0..=PEERS {
        world.add_host(|config| {
            config.max_connections = if place == 0 { 2 } else { 10 };
            config.idle_attempts = 1;
            config.ack_timeout = 200 * MS;
        });
    }
    let hub = world.socket(0, 5);
    let peers: Vec<_> = (1..=PEERS).map(|place| world.socket(place, 5)).collect();
    let place_of = |from| peers.iter().position(|peer| peer.local_addr() == from);
    let mut to = [(); PEERS].map(|()| Ledger::default());
    let mut back = [(); PEERS].map(|()| Ledger::default());
    let mut number = 0;
    let collect = |to: &mut [Ledger; PEERS], back: &mut [Ledger; PEERS]| {
        take(&hub, |from, number| {
            back[place_of(from).unwrap()].arrived.push(number);
        });
        while let Some(note) = hub.notification() {
            note_down(note, |remote| &mut to[place_of(remote).unwrap()]);
        }
        for (place, peer) in peers.iter().enumerate() {
            take(peer, |_, number| to[place].arrived.push(number));
            while let Some(note) = peer.notification() {
                note_down(note, |_| &mut back[place]);
            }
        }
    };
    for _ in 0..150 {
        let place = below(PEERS as u32) as usize;
        let mut faults = Faults::none();
        faults.delay = MS..=10 * MS;
        faults.lose_control = 0.2;
        faults.lose_link = f64::from(below(3)) * 0.1;
        world.network.set_faults(faults);
        for _ in 0..below(4) {
            number += 1;
            send(&hub, &peers[place], number, &mut to[place]);
            number += 1;
            send(&peers[place], &hub, number, &mut back[place]);
        }
        let cut = below(2) == 0;
        world.network.set_cut(ip(1), ip(place as u8 + 2), cut);
        world.run(MS * (1 + below(400)));
        collect(&mut to, &mut back);
    }
    world.network.set_faults(Faults::none());
    // One after the other, since there is not room for all.
    for round in 0..2 * PEERS {
        for place in 0..PEERS {
            let cut = place != round % PEERS;
            world.network.set_cut(ip(1), ip(place as u8 + 2), cut);
        }
        world.run(Duration::from_secs(10));
        collect(&mut to, &mut back);
        // Nobody notices a cut before it sends something.
        let peer = &peers[round % PEERS];
        world.network.set_cut(ip(1), peer.local_addr().ip(), true);
        peer.try_send_to(b"", at(1, 0)).unwrap();
        world.run(Duration::from_secs(1));
        peer.cancel(at(1, 0));
    }
    assert_eq!(hub.unsent(), 0);
    assert!(peers.iter().all(|peer| peer.unsent() == 0));
    to.iter().chain(&back).for_each(Ledger::check);
    world.hosts[0].counters().lite_forgotten_peers
}

fn note_down<'a>(note: Notification, ledger: impl FnOnce(std::net::SocketAddr) -> &'a mut Ledger) {
    match note {
        Notification::SendFailed { to, id, .. } => {
            let ledger = ledger(to);
            ledger.failed.extend(ledger.sent.get(&id));
        }
        Notification::PeerRestarted(_) => {}
        other => panic!("{other:?}"),
    }
}
