//! Who may take up how much of the receive budget.

use super::*;

/// A second socket of the receiving host, and a third host that talks to it.
const OTHER: u16 = 8;

/// The receiving core of a pair, with a link to a stranger who does what it likes.
fn stranger(pair: &mut Pair) -> LinkId {
    let path = Path {
        local: ip(1),
        remote: ip(2),
    };
    let core = &mut pair.cores[1];
    let (link, _) = core.asked(pair.now, path, &[]).unwrap();
    assert!(core.opened(pair.now, link, &[]));
    let greeting = Header {
        sport: 1,
        ext: ExtArea::EMPTY.with(Ext::NPaths(1)).with(Ext::GenNum(99)),
        ..Header::default()
    };
    core.frame(pair.now, link, &greeting.encode(), Payload::Bytes(&[]));
    link
}

/// A message of one fragment from the stranger.
fn flood(pair: &mut Pair, link: LinkId, sequence: u64, payload: &[u8]) {
    let header = Header {
        sequence,
        len: payload.len() as u32,
        sport: 5,
        dport: 7,
        ..Header::default()
    };
    let payload = Payload::Bytes(payload);
    pair.cores[1].frame(pair.now, link, &header.encode(), payload);
}

fn links_of(pair: &Pair, side: usize) -> u64 {
    let infos = pair.cores[side].connection_infos();
    infos.iter().map(|info| info.links).sum()
}

#[test]
fn who_ignores_congestion_stops_only_its_own_link() {
    let mut pair = Pair::new(|config| {
        config.receive_budget = 4 << 20;
        config.receive_buffer = 100_000;
    });
    let other = SocketAddr::new(ip(1), OTHER);
    let kept_up = pair.cores[1].bind(other).unwrap();
    pair.send(b"begin");
    pair.run(all);
    pair.received();
    let link = stranger(&mut pair);
    // More than the whole budget, of all lengths of one fragment, to a socket that nobody reads.
    for sequence in 1..4000 {
        let len = [0, 1, 65, 4096][sequence as usize % 4];
        flood(&mut pair, link, sequence, &vec![0; len]);
    }
    assert!(pair.cores[1].counters.lite_shed > 0);
    assert!(pair.cores[1].buffers.in_use() <= 2 << 20, "half of it");
    // Everybody else is served, as long messages as there are.
    for number in 0..10 {
        let payload = vec![number; 1 << 20];
        let mut message = Sending {
            payload: payload.clone().into(),
            ..Sending::default()
        };
        let (now, from) = (pair.now, pair.socks[0]);
        pair.cores[0].send(now, from, other, &mut message).unwrap();
        pair.run(all);
        let got = pair.cores[1].receive(kept_up).unwrap();
        assert!(*got.payload == *payload);
        pair.pass_time(Duration::from_millis(20));
        pair.run(all);
    }
    assert_eq!(pair.unsent(), 0);
    assert_eq!(pair.cores[0].counters.conn_reset, 0);
    // Nothing of the stranger's comes in before its socket is read, and its link is not made anew.
    assert!(pair.cores[1].is_current(link));
    let taken = pair.cores[1].counters.recv_queued;
    flood(&mut pair, link, 4000, b"behind");
    assert_eq!(pair.cores[1].counters.recv_queued, taken);
    pair.received();
    pair.pass_time(Duration::from_millis(20));
    assert!(
        !pair.cores[1].is_current(link),
        "it may send all of it again"
    );
}

#[test]
fn what_has_no_buffer_is_shed_and_comes_again_while_acknowledgements_go_on() {
    let mut pair = Pair::new(|config| {
        config.receive_budget = 2 << 20;
        config.receive_buffer = 16 << 20;
        config.send_buffer = 16 << 20;
    });
    for number in 0..6 {
        pair.send(&vec![number; 1 << 20]);
    }
    pair.run(all);
    assert!(pair.cores[1].buffers.in_use() <= 2 << 20);
    // Maps find a buffer all the same.
    pair.cores[0].set_local_bit(addr(0), true);
    pair.run(all);
    assert!(pair.conn(1).peer_map.contains(7));
    pair.cores[0].set_local_bit(addr(0), false);
    pair.run(all);
    assert!(pair.conn(1).peer_map.is_empty());
    // The other way, the pool emptied by the sender holds up nothing.
    let mut back = Sending {
        payload: Bytes::from_static(b"back"),
        ..Sending::default()
    };
    let (from, to) = (pair.socks[1], addr(0));
    pair.cores[1].send(pair.now, from, to, &mut back).unwrap();
    pair.run(all);
    pair.pass_time(Duration::from_millis(20));
    pair.run(all);
    assert_eq!(pair.cores[1].unsent(from), 0, "acknowledged all the same");
    let mut got = Vec::new();
    for _ in 0..20 {
        got.extend(pair.received().iter().map(|message| message[0]));
        pair.pass_time(Duration::from_millis(20));
        pair.run(all);
    }
    assert_eq!(got, [0, 1, 2, 3, 4, 5]);
    assert_eq!(pair.unsent(), 0);
}

/// What was on its way when the socket became congested arrives: the host has the room.
#[test]
fn a_congested_socket_takes_what_was_on_its_way() {
    let mut pair = Pair::new(|config| {
        config.receive_budget = 16 << 20;
        config.receive_buffer = 1 << 20;
    });
    for number in 0..4 {
        pair.send(&vec![number; 1 << 20]);
    }
    pair.run(all);
    assert_eq!(pair.received().len(), 4);
    assert_eq!(pair.cores[1].counters.lite_shed, 0);
    assert_eq!(links_of(&pair, 1), 1);
}

#[test]
fn a_message_that_is_begun_and_not_finished_gives_its_buffer_back() {
    let mut pair = Pair::new(|config| config.ack_timeout = Duration::from_secs(5));
    pair.send(b"begin");
    pair.run(all);
    pair.received();
    let link = stranger(&mut pair);
    let before = pair.cores[1].buffers.in_use();
    let header = Header {
        sequence: 1,
        len: 1 << 20,
        sport: 5,
        dport: 7,
        ..Header::default()
    };
    let fragment = |pair: &mut Pair| {
        let payload = Payload::Bytes(&[0; 4096]);
        pair.cores[1].frame(pair.now, link, &header.encode(), payload);
    };
    fragment(&mut pair);
    // One that is slow is not silent.
    for _ in 0..10 {
        pair.pass_time(Duration::from_secs(9));
        fragment(&mut pair);
    }
    assert!(pair.cores[1].is_current(link));
    assert!(pair.cores[1].buffers.in_use() > before);
    pair.pass_time(Duration::from_secs(10));
    assert!(!pair.cores[1].is_current(link));
    assert_eq!(pair.cores[1].buffers.in_use(), before);
    let mut events = Vec::new();
    pair.cores[1].take_events(&mut events);
    let reason = events.iter().find_map(|event| match event {
        Event::Drop(dropped, reason) if *dropped == link => Some(*reason),
        _ => None,
    });
    assert_eq!(reason, Some(DropReason::Unfinished));
}
