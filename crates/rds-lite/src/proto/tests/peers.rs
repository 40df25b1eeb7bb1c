//! Whom a host forgets for whom.

use super::*;

fn path(last: u8) -> Path {
    Path {
        local: ip(1),
        remote: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
    }
}

/// A link that the peer asks for.
fn meet(core: &mut Core, now: Time, last: u8) -> LinkId {
    let (link, _) = core.asked(now, path(last), &[]).unwrap();
    assert!(core.opened(now, link, &[]));
    link
}

/// A numbered message, so that there is something to lose.
fn say(core: &mut Core, now: Time, link: LinkId) {
    let header = Header {
        sequence: 1,
        sport: 5,
        dport: 7,
        ..Header::default()
    };
    core.frame(now, link, &header.encode(), Payload::Bytes(&[]));
}

fn core() -> (Core, SockId) {
    let config = Config {
        seed: Some(1),
        max_connections: 3,
        // None is dialled again that is lost.
        idle_attempts: 0,
        ..Config::default()
    };
    let mut core = Core::new(config, KIND).unwrap();
    let sock = core.bind(addr(1)).unwrap();
    (core, sock)
}

fn known(core: &Core) -> Vec<Path> {
    let infos = core.connection_infos();
    infos.iter().map(|info| info.path).collect()
}

#[test]
fn the_peer_that_was_away_the_longest_goes_first_unless_one_has_nothing_to_lose() {
    let (mut core, _) = core();
    let mut now = Time::from_nanos(1);
    let links = [11, 12, 13].map(|last| meet(&mut core, now, last));
    say(&mut core, now, links[0]);
    say(&mut core, now, links[1]);
    // In another order than they came.
    for link in [links[1], links[0], links[2]] {
        now = now + Duration::from_secs(1);
        core.lost(now, link);
    }
    meet(&mut core, now, 14);
    assert_eq!(known(&core), [path(11), path(12), path(14)]);
    meet(&mut core, now, 15);
    assert_eq!(known(&core), [path(11), path(15), path(14)]);
    assert_eq!(core.counters().lite_forgotten_peers, 2);
}

#[test]
fn what_names_a_link_of_a_forgotten_peer_names_none_of_the_next() {
    let (mut core, sock) = core();
    let now = Time::from_nanos(1);
    let links = [11, 12, 13].map(|last| meet(&mut core, now, last));
    core.lost(now, links[0]);
    let next = meet(&mut core, now, 14);
    assert_ne!(next, links[0]);
    // Late words of the fabric.
    say(&mut core, now, links[0]);
    core.lost(now, links[0]);
    assert!(!core.opened(now, links[0], &[]));
    assert!(core.is_current(next));
    assert!(core.receive(sock).is_none());
    say(&mut core, now, next);
    let from = core.receive(sock).unwrap().from;
    assert_eq!(from.ip(), path(14).remote);
}
