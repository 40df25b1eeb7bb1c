//! Links as over InfiniBand: what is said with a dial, versions, credits.

use super::*;
use crate::wire::{Connect, Rejection, Version};

const INFINIBAND: LinkKind = LinkKind {
    greeting: Greeting::Connect,
    fences: true,
    receive_ring: 4,
    own_ack: true,
    ..KIND
};

fn pair(configure: impl Fn(&mut Config)) -> Pair {
    Pair::over(INFINIBAND, configure)
}

/// A core alone, whose peer is the test.
fn alone(configure: impl FnOnce(&mut Config)) -> (Core, SockId) {
    let mut config = Config {
        seed: Some(1),
        ..Config::default()
    };
    configure(&mut config);
    let mut core = Core::new(config, INFINIBAND).unwrap();
    let sock = core.bind(addr(0)).unwrap();
    (core, sock)
}

fn dialled(core: &mut Core) -> Option<(LinkId, Connect)> {
    let mut events = Vec::new();
    core.take_events(&mut events);
    events.into_iter().find_map(|event| match event {
        Event::Dial(link, _, said) => Some((link, Connect::decode(&said)?)),
        _ => None,
    })
}

fn send(core: &mut Core, now: Time, sock: SockId, bytes: &'static [u8]) {
    let mut message = Sending {
        payload: Bytes::from_static(bytes),
        ..Sending::default()
    };
    core.send(now, sock, addr(1), &mut message).unwrap();
}

/// A kernel of 6.1, as the side that is asked by `said`, or asks.
fn kernel(version: Version) -> Connect {
    Connect {
        source: Ipv4Addr::new(10, 0, 0, 2),
        destination: Ipv4Addr::new(10, 0, 0, 1),
        version,
        minors: Version::MINORS,
        tos: 0,
        ack: 0,
        credit: 0,
        generations: None,
    }
}

fn to_core() -> Path {
    Path {
        local: ip(0),
        remote: ip(1),
    }
}

fn headers(core: &mut Core, now: Time, link: LinkId) -> Vec<Header> {
    let mut out = Vec::new();
    core.transmit(now, link, &mut out);
    out.iter()
        .filter_map(|transmission| match transmission {
            Transmission::Frame(frame) => Some(Header::decode(&frame.header).unwrap().0),
            Transmission::Rdma(_) => None,
        })
        .collect()
}

fn acknowledge(core: &mut Core, now: Time, link: LinkId, ack: u64) {
    let header = Header {
        ack,
        ..Header::default()
    };
    core.frame(now, link, &header.encode(), Payload::Bytes(&[]));
}

/// Takes the opening, before which nothing comes, as the kernel does.
fn open(core: &mut Core, now: Time, link: LinkId) {
    let sent = headers(core, now, link);
    let [opening] = sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!((opening.sequence, opening.len), (1, 0));
    assert_eq!((opening.sport, opening.dport), (1, 1));
    assert_eq!(opening.flags, Flags::ACK_REQUIRED);
    assert!(headers(core, now, link).is_empty());
    acknowledge(core, now, link, 1);
}

/// The kernel remembers the numbers of the host that was there before. What the new one has to send again must
/// not be taken for the old one's, and what has arrived must not come twice.
#[test]
fn what_a_new_host_says_is_not_taken_for_a_repetition() {
    // On which link what arrives for the first time: the opening, its acknowledgement, the messages.
    for arrive in [
        [1, 1, 1],
        [1, 1, 2],
        [1, 2, 2],
        [1, 3, 4],
        [3, 3, 3],
        [2, 3, 5],
    ] {
        let (mut core, sock) = alone(|_| {});
        let mut now = Time::from_nanos(1);
        for text in [b"one", b"two"] {
            send(&mut core, now, sock, text);
        }
        let mut next_rx = 100;
        let mut got = Vec::new();
        for nth in 1..=6 {
            // With nothing left to say it dials no more.
            let Some((link, _)) = dialled(&mut core) else {
                break;
            };
            assert!(core.opened(now, link, &kernel(Version::V3_1).encode()));
            for stage in 0..2 {
                for header in headers(&mut core, now, link) {
                    let numbered = header.sequence != 0;
                    let lost = nth < arrive[if header.len == 0 { 0 } else { 2 }];
                    let again = header.flags.contains(Flags::RETRANSMITTED);
                    if !numbered || lost || (header.sequence < next_rx && again) {
                        continue;
                    }
                    next_rx = header.sequence + 1;
                    got.extend((header.len > 0).then_some(header.sequence));
                }
                if stage == 0 && nth >= arrive[1] {
                    acknowledge(&mut core, now, link, next_rx - 1);
                }
            }
            core.lost(now, link);
            now = now + Duration::from_secs(2);
            core.tick(now);
        }
        assert_eq!(got, [2, 3], "{arrive:?}");
        assert_eq!(core.unsent(sock), 0, "{arrive:?}");
    }
}

#[test]
fn a_kernel_that_does_not_take_the_opening_is_dialled_anew() {
    let (mut core, sock) = alone(|_| {});
    let mut now = Time::from_nanos(1);
    send(&mut core, now, sock, b"hello");
    for _ in 0..3 {
        let (link, _) = dialled(&mut core).unwrap();
        assert!(core.opened(now, link, &kernel(Version::V3_1).encode()));
        assert_eq!(headers(&mut core, now, link).len(), 1);
        now = now + Config::default().ack_timeout;
        core.tick(now);
        assert!(!core.is_current(link));
        now = now + Duration::from_secs(2);
        core.tick(now);
    }
    let (link, _) = dialled(&mut core).unwrap();
    assert!(core.opened(now, link, &kernel(Version::V3_1).encode()));
    open(&mut core, now, link);
    let sent = headers(&mut core, now, link);
    assert!(sent.iter().any(|header| header.len == 5));
}

#[test]
fn a_rejected_version_is_not_proposed_again_until_a_link_was_made() {
    let (mut core, sock) = alone(|config| config.version = Version::V4_1);
    let mut now = Time::from_nanos(1);
    send(&mut core, now, sock, b"hello");
    let (link, said) = dialled(&mut core).unwrap();
    assert_eq!((said.version, said.minors), (Version::V4_1, 3));
    core.rejected(now, link, &Rejection::encode());
    // The first attempt after a loss is immediate.
    core.tick(now);
    let (link, said) = dialled(&mut core).unwrap();
    assert_eq!(said.version, Version::V3_1);
    assert!(core.opened(now, link, &kernel(Version::V3_1).encode()));
    assert_eq!(core.connection_infos()[0].version, Version::V3_1);
    core.lost(now, link);
    now = now + Duration::from_secs(2);
    core.tick(now);
    let (link, said) = dialled(&mut core).unwrap();
    assert_eq!(
        said.version,
        Version::V4_1,
        "the peer may be another by now"
    );
    assert!(core.opened(now, link, &kernel(Version::V4_1).encode()));
    assert_eq!(core.connection_infos()[0].version, Version::V4_1);
}

#[test]
fn rejections_never_end_the_attempts_of_a_connection_that_is_needed() {
    let (mut core, sock) = alone(|_| {});
    let mut now = Time::from_nanos(1);
    send(&mut core, now, sock, b"hello");
    for attempt in 0..200 {
        let (link, said) = dialled(&mut core).unwrap_or_else(|| panic!("attempt {attempt}"));
        assert_eq!(said.version, Version::V3_1);
        core.rejected(
            now,
            link,
            if attempt % 2 == 0 { &[] } else { &[9, 0, 0, 0] },
        );
        now = now + Duration::from_secs(1);
        core.tick(now);
    }
    assert_eq!(core.counters.lite_dials_rejected, 200);
}

#[test]
fn an_introduction_that_cannot_be_used_is_rejected() {
    let (mut core, sock) = alone(|_| {});
    let now = Time::from_nanos(1);
    let three = Version { major: 3, minor: 0 };
    let elsewhere = Connect {
        source: Ipv4Addr::new(10, 0, 0, 9),
        ..kernel(Version::V3_1)
    };
    for bad in [Vec::new(), kernel(three).encode(), elsewhere.encode()] {
        let refused = core.asked(now, to_core(), &bad);
        assert_eq!(refused, Err(Rejection::encode()), "{bad:?}");
    }
    assert_eq!(core.counters.lite_bad_introductions, 3);
    // As an answer it ends the dial, and there is another.
    send(&mut core, now, sock, b"hello");
    let (link, _) = dialled(&mut core).unwrap();
    assert!(!core.opened(now, link, &kernel(three).encode()));
    core.tick(now);
    let (link, _) = dialled(&mut core).unwrap();
    core.lost(now, link);
    assert!(
        core.asked(now, to_core(), &kernel(Version::V3_1).encode())
            .is_ok()
    );
}

#[test]
fn what_had_arrived_before_a_link_was_lost_is_settled_by_the_next_introduction() {
    let mut pair = pair(|config| config.max_unacked_packets = Some(100));
    pair.send(b"begin");
    pair.run(all);
    // Both arrive, and no acknowledgement leaves before the link is lost.
    for text in [b"one", b"two"] {
        pair.send(text);
        pair.run(all);
    }
    assert!(pair.unsent() >= 2);
    pair.cut();
    let mut data = 0;
    pair.run(|_, header| {
        data += usize::from(header.len == 3);
        1
    });
    assert_eq!((pair.unsent(), data), (0, 0), "nothing is sent again");
    assert_eq!(pair.received().len(), 3);
}

#[test]
fn a_link_replaced_while_up_loses_nothing_and_says_nothing_twice() {
    let mut pair = pair(|config| config.max_unacked_packets = Some(100));
    pair.send(b"begin");
    pair.run(all);
    for round in 0..20u8 {
        pair.send(&[round; 5000]);
        // The link is gone at one side only, in the middle of a message; that side dials anew.
        pair.run(|_, header| usize::from(header.len != 5000));
        let side = usize::from(round % 2 == 0);
        let link = pair.links[side].unwrap();
        pair.links = [None, None];
        pair.cores[side].lost(pair.now, link);
        pair.cores[side].wants_link(0);
        pair.run(all);
    }
    pair.pass_time(Duration::from_secs(1));
    pair.run(all);
    let got = pair.received();
    let firsts: Vec<u8> = got.iter().skip(1).map(|message| message[0]).collect();
    assert_eq!(firsts, (0..20).collect::<Vec<u8>>());
    assert_eq!(pair.unsent(), 0);
}

#[test]
fn an_acknowledgement_of_a_former_life_does_not_count() {
    let mut pair = pair(|_| {});
    for _ in 0..20 {
        pair.send(b"old");
    }
    pair.run(all);
    pair.cut();
    // The sender begins anew, and has queued as many messages before it hears of the peer, which
    // remembers the old numbers.
    let fresh = Pair::over(INFINIBAND, |config| {
        config.seed = config.seed.map(|seed| seed + 7)
    });
    let [first, _] = fresh.cores;
    (pair.cores[0], pair.socks[0]) = (first, fresh.socks[0]);
    for _ in 0..20 {
        pair.send(b"new");
    }
    pair.run(|_, _| 0);
    pair.cut();
    pair.run(all);
    pair.pass_time(Duration::from_secs(1));
    pair.run(all);
    let new = pair
        .received()
        .iter()
        .filter(|text| **text == b"new")
        .count();
    assert_eq!((new, pair.unsent()), (20, 0));
    assert_eq!(pair.cores[1].counters.lite_peer_restarts, 1);
}

#[test]
fn both_may_dial_at_once() {
    let mut pair = pair(|_| {});
    pair.send(b"there");
    let mut back = Sending {
        payload: Bytes::from_static(b"back"),
        ..Sending::default()
    };
    pair.cores[1]
        .send(pair.now, pair.socks[1], addr(0), &mut back)
        .unwrap();
    // Each has dialled before either hears of the other.
    pair.run(all);
    pair.pass_time(Duration::from_millis(20));
    pair.run(all);
    assert_eq!(pair.received(), [b"there".to_vec()]);
    assert!(pair.cores[0].receive(pair.socks[0]).is_some());
    let raced: u64 = pair
        .cores
        .iter()
        .map(|core| core.counters.ib_connect_raced)
        .sum();
    assert!(raced >= 1);
}

#[test]
fn a_kernel_over_infiniband_is_understood() {
    let (mut core, sock) = alone(|config| config.flow_control = true);
    let mut now = Time::from_nanos(1);
    // It asks; no word of credits, and nothing beyond the 32 bytes it knows.
    let mut said = kernel(Version::V3_1).encode();
    said.resize(56, 0);
    let (link, answer) = core.asked(now, to_core(), &said).unwrap();
    let answer = Connect::decode(&answer).unwrap();
    assert_eq!((answer.version, answer.credit), (Version::V3_1, 0));
    assert!(core.opened(now, link, &[]));
    for _ in 0..20 {
        send(&mut core, now, sock, b"to the kernel");
    }
    open(&mut core, now, link);
    let sent = headers(&mut core, now, link);
    let data = sent.iter().filter(|header| header.len == 13).count();
    assert_eq!(data, 20, "nobody counts credits, and nobody is greeted");
    assert!(
        sent.iter()
            .all(|header| header.credit == 0 && header.sport != 1)
    );
    let message = |sequence, flags| {
        let header = Header {
            sequence,
            ack: 21,
            len: 1,
            sport: 9,
            dport: 7,
            flags,
            ..Header::default()
        };
        header.encode()
    };
    for sequence in [1, 2, 3] {
        core.frame(
            now,
            link,
            &message(sequence, Flags::empty()),
            Payload::Bytes(b"x"),
        );
    }
    assert_eq!(core.unsent(sock), 0);
    // The module is loaded anew: its numbers begin anew, and it says nothing of that.
    core.lost(now, link);
    now = now + Duration::from_secs(2);
    let (link, answer) = core.asked(now, to_core(), &said).unwrap();
    // What is known of the old one is not for the new one's ears: it would take 3 for a number of its
    // own, and hear no lower one.
    assert_eq!(Connect::decode(&answer).unwrap().ack, 0);
    assert!(core.opened(now, link, &[]));
    send(&mut core, now, sock, b"to the kernel");
    let sent = headers(&mut core, now, link);
    assert!(sent.iter().all(|header| header.ack == 0), "{sent:?}");
    core.frame(
        now,
        link,
        &message(1, Flags::ACK_REQUIRED),
        Payload::Bytes(b"y"),
    );
    assert_eq!(headers(&mut core, now, link).last().unwrap().ack, 1);
    let got: Vec<_> = std::iter::from_fn(|| core.receive(sock)).collect();
    assert_eq!(got.len(), 4);
}

#[test]
fn credits_hold_a_sender_back_and_let_it_go_on() {
    let mut pair = pair(|config| config.flow_control = true);
    pair.send(b"begin");
    pair.run(all);
    assert!(pair.conn(0).credits.left().is_some());
    // 25 fragments and a ring of 4.
    pair.send(&[7; 100_000]);
    let mut most = 0;
    let mut under_way = 0;
    pair.run(|side, header| {
        if side == 1 {
            under_way += 1;
        } else {
            under_way -= i32::from(header.credit);
        }
        most = most.max(under_way);
        1
    });
    assert_eq!(pair.received()[1].len(), 100_000);
    assert!((2..=8).contains(&most), "{most}");
}

#[test]
fn credits_are_counted_only_if_both_sides_do() {
    let (mut core, _) = alone(|_| {});
    let now = Time::from_nanos(1);
    let counting = Connect {
        credit: 1024,
        ..kernel(Version::V3_1)
    };
    let (link, answer) = core.asked(now, to_core(), &counting.encode()).unwrap();
    assert_eq!(Connect::decode(&answer).unwrap().credit, 0);
    assert!(core.opened(now, link, &[]));
    assert_eq!(core.connection_infos()[0].credits, None);
}

#[test]
fn a_fenced_read_does_not_wait_here_where_the_fabric_fences() {
    let mut pair = pair(|_| {});
    pair.send(b"begin");
    pair.run(all);
    let mut message = Sending {
        payload: Bytes::from(vec![1; 5000]),
        cookie: None,
        op: Some(Posted {
            kind: OpKind::Read(vec![0; 8].into()),
            cookie: Cookie::from_bits(9),
            offset: 0,
            fence: true,
            notify: true,
            token: 1,
        }),
    };
    let (now, sock) = (pair.now, pair.socks[0]);
    pair.cores[0]
        .send(now, sock, addr(1), &mut message)
        .unwrap();
    let mut out = Vec::new();
    let link = pair.links[0].unwrap();
    pair.cores[0].transmit(now, link, &mut out);
    let fences: Vec<_> = out
        .iter()
        .filter_map(|transmission| match transmission {
            Transmission::Frame(frame) => Some(frame.fence),
            Transmission::Rdma(_) => None,
        })
        .collect();
    assert!(matches!(out.first(), Some(Transmission::Rdma(_))));
    assert_eq!(fences, [true, false], "the first fragment behind the read");
}

/// As over RDS/IB: the work request for acknowledgements is one.
#[test]
fn one_acknowledgement_is_under_way_and_the_next_carries_the_latest_number() {
    let (mut core, sock) = alone(|_| {});
    let now = Time::from_nanos(1);
    send(&mut core, now, sock, b"hello");
    let (link, _) = dialled(&mut core).unwrap();
    assert!(core.opened(now, link, &kernel(Version::V3_1).encode()));
    open(&mut core, now, link);
    headers(&mut core, now, link);
    let arrive = |core: &mut Core, sequence| {
        let header = Header {
            sequence,
            sport: 7,
            dport: 7,
            flags: Flags::ACK_REQUIRED,
            ..Header::default()
        };
        core.frame(now, link, &header.encode(), Payload::Bytes(&[]));
    };
    let acks = |core: &mut Core| {
        let mut out = Vec::new();
        core.transmit(now, link, &mut out);
        let acks = out.iter().map(|transmission| match transmission {
            Transmission::Frame(frame) => {
                let (header, _) = Header::decode(&frame.header).unwrap();
                assert_eq!(frame.ack, is_ack(&header));
                (header.ack, frame.ack)
            }
            Transmission::Rdma(work) => panic!("{work:?}"),
        });
        acks.collect::<Vec<_>>()
    };
    arrive(&mut core, 1);
    assert_eq!(acks(&mut core), [(1, true)]);
    arrive(&mut core, 2);
    arrive(&mut core, 3);
    assert_eq!(acks(&mut core), [], "one is under way");
    assert_eq!(core.counters().ib_ack_send_delayed, 2);
    core.ack_ended(link);
    assert_eq!(acks(&mut core), [(3, true)]);
    // It needs none of the room that there is not.
    core.set_blocked(link, true);
    core.ack_ended(link);
    arrive(&mut core, 4);
    assert_eq!(acks(&mut core), [(4, true)]);
    // What rides on a message does not go by itself as well.
    arrive(&mut core, 5);
    core.set_blocked(link, false);
    send(&mut core, now, sock, b"more");
    assert_eq!(acks(&mut core), [(5, false)]);
    core.ack_ended(link);
    assert_eq!(acks(&mut core), []);
    assert_eq!(core.counters().ib_ack_sent, 3);
}
