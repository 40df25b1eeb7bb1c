//! Two cores and the frames between them, one by one: what no fabric shows.

mod introduce;
mod kernel;
mod peers;
mod sharing;
mod sockets;

use super::*;
use crate::rdma::{Cookie, Leased, MrFlags, Region, StillAlive};
use crate::wire::{Ext, ExtArea, Flags, HEADER_LEN, Header, MAP_LEN};
use bytes::Bytes;
use mr_core::{RemoteKey, Time};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const KIND: LinkKind = LinkKind {
    fragment: 4096,
    greeting: Greeting::Probe,
    always_acks: true,
    packets_per_ack: 8,
    rdma: true,
    fences: false,
    receive_ring: 0,
    own_ack: false,
    smaller_dials: false,
};

fn ip(side: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, side as u8 + 1))
}

fn addr(side: usize) -> SocketAddr {
    SocketAddr::new(ip(side), 7)
}

struct Pair {
    cores: [Core; 2],
    socks: [SockId; 2],
    links: [Option<LinkId>; 2],
    now: Time,
    works: Vec<RdmaWork>,
    invalidated: Vec<Cookie>,
}

impl Pair {
    fn new(configure: impl Fn(&mut Config)) -> Self {
        Self::over(KIND, configure)
    }

    fn over(kind: LinkKind, configure: impl Fn(&mut Config)) -> Self {
        let core = |side| {
            let mut config = Config {
                seed: Some(side as u64 + 1),
                ..Config::default()
            };
            configure(&mut config);
            Core::new(config, kind).unwrap()
        };
        let mut cores = [core(0), core(1)];
        let socks = [0, 1].map(|side| cores[side].bind(addr(side)).unwrap());
        Self {
            cores,
            socks,
            links: [None; 2],
            now: Time::from_nanos(1),
            works: Vec::new(),
            invalidated: Vec::new(),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> u64 {
        let mut message = Sending {
            payload: Bytes::copy_from_slice(bytes),
            ..Sending::default()
        };
        self.cores[0]
            .send(self.now, self.socks[0], addr(1), &mut message)
            .unwrap()
    }

    fn write(&mut self, token: u64) {
        let mut message = Sending {
            payload: Bytes::from_static(b"written"),
            cookie: None,
            op: Some(Posted {
                kind: OpKind::Write(vec![1].into()),
                cookie: Cookie::from_bits(9),
                offset: 0,
                fence: false,
                notify: true,
                token,
            }),
        };
        self.cores[0]
            .send(self.now, self.socks[0], addr(1), &mut message)
            .unwrap();
    }

    /// Carries everything until nothing moves; `pass` says which frames arrive, and how often.
    fn run(&mut self, mut pass: impl FnMut(usize, &Header) -> usize) {
        for _ in 0..10_000 {
            let mut moved = false;
            for side in [0, 1] {
                self.cores[side].tick(self.now);
                self.carry_out(side);
                let Some(link) = self.links[side] else {
                    continue;
                };
                let mut out = Vec::new();
                self.cores[side].transmit(self.now, link, &mut out);
                moved |= !out.is_empty();
                for transmission in out {
                    match transmission {
                        Transmission::Rdma(work) => self.works.push(work),
                        Transmission::Frame(frame) => {
                            self.arrive(1 - side, &frame, &mut pass);
                            if frame.ack {
                                self.cores[side].ack_ended(link);
                            }
                        }
                    }
                }
            }
            if !moved {
                return;
            }
        }
        panic!("frames without end");
    }

    fn arrive(
        &mut self,
        side: usize,
        frame: &Frame,
        pass: &mut impl FnMut(usize, &Header) -> usize,
    ) {
        let header = Header::decode(&frame.header).unwrap().0;
        for _ in 0..pass(side, &header) {
            if let Some(link) = self.links[side] {
                let payload = Payload::Bytes(&frame.payload);
                self.cores[side].frame(self.now, link, &frame.header, payload);
            }
        }
    }

    fn carry_out(&mut self, side: usize) {
        let mut events = Vec::new();
        self.cores[side].take_events(&mut events);
        for event in events {
            match event {
                Event::Dial(id, path, said) => {
                    let far = &mut self.cores[1 - side];
                    let (link, answer) = match far.asked(self.now, path.reversed(), &said) {
                        Ok(accepted) => accepted,
                        Err(reason) => {
                            self.cores[side].rejected(self.now, id, &reason);
                            continue;
                        }
                    };
                    if self.cores[side].opened(self.now, id, &answer) {
                        self.links[side] = Some(id);
                    }
                    if self.cores[1 - side].opened(self.now, link, &[]) {
                        self.links[1 - side] = Some(link);
                    }
                }
                Event::Drop(id, _) if self.links[side] == Some(id) => self.cut(),
                Event::Invalidate(_, cookie, lease) => {
                    drop(lease.invalidate());
                    self.invalidated.push(cookie);
                }
                _ => {}
            }
        }
    }

    /// The link ends on both sides.
    fn cut(&mut self) {
        for side in [0, 1] {
            if let Some(link) = self.links[side].take() {
                self.cores[side].lost(self.now, link);
            }
        }
    }

    fn pass_time(&mut self, time: Duration) {
        self.now = self.now + time;
        self.cores.iter_mut().for_each(|core| core.tick(self.now));
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        let (core, sock) = (&mut self.cores[1], self.socks[1]);
        std::iter::from_fn(|| core.receive(sock))
            .map(|message| message.payload.to_vec())
            .collect()
    }

    fn unsent(&self) -> usize {
        self.cores[0].unsent(self.socks[0])
    }

    fn conn(&mut self, side: usize) -> &mut connection::Connection {
        &mut self.cores[side].conns[0]
    }
}

fn all(_: usize, _: &Header) -> usize {
    1
}

fn is_ack(header: &Header) -> bool {
    header.sport == 0 && header.dport == 0 && header.len == 0
}

#[test]
fn a_duplicate_is_dropped_and_acknowledged_again() {
    let mut pair = Pair::new(|config| config.max_unacked_packets = Some(1));
    pair.send(b"zero");
    pair.run(all);
    // Every message comes twice, and the first acknowledgement of each is lost.
    for text in [b"one", b"two"] {
        pair.send(text);
        let mut acks = 0;
        pair.run(|_, header| {
            if is_ack(header) {
                acks += 1;
                return usize::from(acks > 1);
            }
            2
        });
    }
    assert_eq!(pair.received().len(), 3);
    assert!(pair.cores[1].counters.recv_drop_old_seq >= 2);
    // Asked again, it is dropped again, and acknowledged again.
    let dropped = pair.cores[1].counters.recv_drop_old_seq;
    pair.pass_time(Duration::from_secs(5));
    pair.run(all);
    assert!(pair.cores[1].counters.recv_drop_old_seq > dropped);
    assert_eq!(pair.unsent(), 0);
}

#[test]
fn a_host_that_ends_acknowledges_what_it_has_taken_and_takes_no_more() {
    let kind = LinkKind {
        own_ack: true,
        ..KIND
    };
    // Nothing asks for an acknowledgement.
    let mut pair = Pair::over(kind, |config| config.max_unacked_packets = None);
    pair.send(b"taken");
    pair.run(all);
    assert_eq!(pair.unsent(), 1);
    assert!(!pair.cores[1].has_more_to_say());
    pair.cores[1].say_last_word();
    assert!(pair.cores[1].has_more_to_say());
    pair.send(b"left to the next host");
    pair.run(all);
    assert!(!pair.cores[1].has_more_to_say());
    assert_eq!(pair.received(), [b"taken".to_vec()]);
    assert_eq!(pair.unsent(), 1);
}

#[test]
fn numbers_may_wrap() {
    for start in [u64::MAX - 2, (1 << 32) - 2] {
        let mut pair = Pair::new(|config| config.max_unacked_packets = Some(1));
        pair.send(b"begin");
        pair.run(all);
        pair.pass_time(Duration::from_millis(20));
        pair.run(all);
        pair.conn(0).next_tx = start;
        pair.conn(0).acked = start - 1;
        pair.conn(1).next_rx = start;
        for round in 0..6 {
            pair.send(&[round; 5000]);
            // Each message twice, each link lost once.
            pair.run(|_, header| if header.len == 5000 { 1 } else { 2 });
            pair.cut();
            pair.run(all);
        }
        pair.pass_time(Duration::from_secs(1));
        pair.run(all);
        let got = pair.received();
        let firsts: Vec<u8> = got.iter().skip(1).map(|message| message[0]).collect();
        assert_eq!(firsts, [0, 1, 2, 3, 4, 5], "from {start:#x}");
        assert_eq!(pair.unsent(), 0);
    }
}

#[test]
fn a_message_whose_acknowledgements_are_all_lost_arrives_once() {
    let mut pair = Pair::new(|_| {});
    pair.send(b"begin");
    pair.run(all);
    pair.pass_time(Duration::from_millis(20));
    pair.run(all);
    assert_eq!(pair.unsent(), 0);
    pair.send(b"once");
    let no_acks = |_: usize, header: &Header| usize::from(!is_ack(header));
    for _ in 0..3 {
        pair.run(no_acks);
        pair.pass_time(Duration::from_secs(5));
    }
    pair.run(all);
    pair.pass_time(Duration::from_secs(5));
    pair.run(all);
    assert_eq!(pair.received(), [b"begin".to_vec(), b"once".to_vec()]);
    assert_eq!(pair.unsent(), 0);
    assert!(pair.cores[0].counters.lite_retransmitted >= 1);
}

#[test]
fn gaps_in_the_numbers_are_legal() {
    let mut pair = Pair::new(|_| {});
    pair.send(b"first");
    pair.run(all);
    // Queued while the link is down, and taken back.
    pair.cut();
    pair.send(b"taken back");
    pair.cores[0].cancel(pair.socks[0], Some(addr(1)));
    pair.send(b"last");
    pair.run(all);
    pair.pass_time(Duration::from_millis(20));
    pair.run(all);
    assert_eq!(pair.received(), [b"first".to_vec(), b"last".to_vec()]);
    assert_eq!(pair.unsent(), 0);
}

#[test]
fn an_rdma_operation_is_never_replayed() {
    let mut pair = Pair::new(|_| {});
    pair.send(b"begin");
    pair.run(all);
    // Its message is lost with the link.
    pair.write(5);
    pair.run(|_, header| usize::from(header.len != 7));
    assert_eq!(pair.works.len(), 1);
    pair.cut();
    let work = pair.works.remove(0);
    pair.cores[0].rdma_done(work.end(DoneStatus::Success));
    pair.run(all);
    pair.pass_time(Duration::from_secs(1));
    pair.run(all);
    assert!(pair.works.is_empty());
    assert_eq!(pair.received(), [b"begin".to_vec()]);
    let note = pair.cores[0].next_note(pair.socks[0]);
    let (token, status) = (5, Status::Dropped);
    let buffers = vec![1].into();
    assert_eq!(
        note,
        Some(Notification::Rdma {
            token,
            status,
            buffers
        })
    );
    assert_eq!(pair.unsent(), 0);
}

#[test]
fn a_fragment_that_does_not_fit_ends_the_link_and_nothing_is_lost() {
    let mut pair = Pair::new(|_| {});
    pair.send(b"begin");
    pair.run(all);
    let link = pair.links[1].unwrap();
    let header = |seq, len| Header {
        sequence: seq,
        len,
        sport: 7,
        dport: 7,
        ..Header::default()
    };
    let resets = pair.cores[1].counters.conn_reset;
    // A first fragment that is short: what is behind it would be stale bytes.
    let short = header(2, 9000).encode();
    pair.cores[1].frame(pair.now, link, &short, Payload::Bytes(&[1; 100]));
    assert_eq!(pair.cores[1].counters.conn_reset, resets + 1);
    pair.run(all);
    let link = pair.links[1].unwrap();
    // A second fragment of another message.
    let first = header(2, 9000).encode();
    pair.cores[1].frame(pair.now, link, &first, Payload::Bytes(&[1; 4096]));
    let other = header(3, 9000).encode();
    pair.cores[1].frame(pair.now, link, &other, Payload::Bytes(&[1; 4096]));
    assert_eq!(pair.cores[1].counters.conn_reset, resets + 2);
    pair.send(b"end");
    pair.run(all);
    assert_eq!(pair.received(), [b"begin".to_vec(), b"end".to_vec()]);
}

#[test]
fn a_length_beyond_the_limit_ends_the_link_before_anything_is_allocated() {
    let mut pair = Pair::new(|_| {});
    pair.send(b"begin");
    pair.run(all);
    pair.received();
    let link = pair.links[1].unwrap();
    let mut bytes = [0; HEADER_LEN];
    bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    pair.cores[1].frame(pair.now, link, &bytes, Payload::Bytes(&[0; 4096]));
    assert!(!pair.cores[1].is_current(link));
    assert_eq!(pair.cores[1].buffers.in_use(), 0);
}

#[test]
fn anything_may_come_over_a_link() {
    use rand_chacha::rand_core::{RngCore, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(3);
    let mut pair = Pair::new(|config| config.receive_budget = 2 << 20);
    for _ in 0..20_000 {
        pair.send(b"alive");
        pair.run(all);
        assert!(!pair.received().is_empty(), "the link comes back");
        let Some(link) = pair.links[1] else { continue };
        let mut header = [0; HEADER_LEN];
        random.fill_bytes(&mut header);
        // Mostly plausible: no checksum, a length that may be, the ports of the socket.
        header[30..32].fill(0);
        header[16..18].fill(0);
        if random.next_u32().is_multiple_of(2) {
            header[..15].fill(0);
            header[20..24].copy_from_slice(&[0, 7, 0, 7]);
        }
        let len = (u32::from(header[18]) << 8 | u32::from(header[19])) as usize;
        let payload = vec![0; len.min(4096)];
        pair.cores[1].frame(pair.now, link, &header, Payload::Bytes(&payload));
        // A number from nowhere may have moved the receiver's on: a new link sets that right.
        pair.cut();
        pair.pass_time(Duration::from_secs(2));
    }
    assert!(pair.cores[1].buffers.in_use() <= 2 << 20);
}

#[test]
fn a_lost_congestion_update_is_repaired() {
    let mut pair = Pair::new(|config| config.receive_buffer = 1000);
    pair.send(&[0; 2000]);
    let no_maps = |_: usize, header: &Header| usize::from(header.len as usize != MAP_LEN);
    pair.run(no_maps);
    pair.pass_time(Duration::from_secs(1));
    pair.run(all);
    let to = addr(1);
    let sock = pair.socks[0];
    let refused = pair.cores[0].writable(pair.now, sock, to);
    assert!(matches!(refused, Err(SendError::Congested(at)) if at == to));
    // The word that it is over is lost; other destinations are not touched.
    pair.received();
    pair.run(no_maps);
    let other = SocketAddr::new(ip(1), 8);
    assert!(pair.cores[0].writable(pair.now, sock, other).is_ok());
    assert!(pair.cores[0].writable(pair.now, sock, to).is_err());
    pair.pass_time(Duration::from_secs(2));
    pair.run(all);
    assert!(pair.cores[0].writable(pair.now, sock, to).is_ok());
    assert_eq!(
        pair.cores[0].next_note(sock),
        Some(Notification::Uncongested(to))
    );
}

#[test]
fn a_map_of_another_size_or_with_other_flags_is_ignored() {
    let mut pair = Pair::new(|_| {});
    pair.send(b"begin");
    pair.run(all);
    let link = pair.links[1].unwrap();
    for (len, flags) in [
        (4096, Flags::CONG_BITMAP),
        (4096, Flags::CONG_BITMAP | Flags::ACK_REQUIRED),
    ] {
        let header = Header {
            len,
            flags,
            ..Header::default()
        };
        let payload = vec![0xff; len as usize];
        pair.cores[1].frame(pair.now, link, &header.encode(), Payload::Bytes(&payload));
    }
    assert_eq!(pair.cores[1].counters.lite_bad_map, 2);
    assert!(pair.conn(1).peer_map.is_empty());
}

/// A peer that sums nothing, acknowledges nothing and greets nobody: the kernel over TCP.
#[test]
fn a_kernel_peer_is_understood_and_not_confused() {
    let kind = LinkKind {
        fragment: 1 << 20,
        always_acks: false,
        rdma: false,
        smaller_dials: true,
        ..KIND
    };
    let config = Config {
        seed: Some(1),
        ..Config::default()
    };
    let mut core = Core::new(config, kind).unwrap();
    let sock = core.bind(addr(0)).unwrap();
    let mut now = Time::from_nanos(1);
    let mut message = Sending {
        payload: Bytes::from_static(b"to the kernel"),
        ..Sending::default()
    };
    core.send(now, sock, addr(1), &mut message).unwrap();
    let mut events = Vec::new();
    core.take_events(&mut events);
    let Some(&Event::Dial(link, ..)) = events.first() else {
        panic!("{events:?}");
    };
    assert!(core.opened(now, link, &[]));
    let mut out = Vec::new();
    core.transmit(now, link, &mut out);
    assert_eq!(out.len(), 1, "a probe, and nothing before the answer");
    // The kernel's pong: numbered, without checksum, with the number of its paths.
    let pong = Header {
        sequence: 1,
        dport: 1,
        ext: ExtArea::EMPTY.with(Ext::NPaths(8)),
        ..Header::default()
    };
    core.frame(now, link, &pong.encode_unchecked(), Payload::Bytes(&[]));
    out.clear();
    core.transmit(now, link, &mut out);
    assert_eq!(core.unsent(sock), 1, "what TCP has taken may still be here");
    core.arrived(now, link, None);
    assert_eq!(core.unsent(sock), 0, "unless nobody can know");
    // Its own probe is answered by a numbered pong.
    let probe = Header {
        sequence: 2,
        sport: 1,
        ext: ExtArea::EMPTY.with(Ext::NPaths(8)),
        ..Header::default()
    };
    core.frame(now, link, &probe.encode_unchecked(), Payload::Bytes(&[]));
    out.clear();
    core.transmit(now, link, &mut out);
    let Some(Transmission::Frame(answer)) = out.first() else {
        panic!("{out:?}");
    };
    let answer = Header::decode(&answer.header).unwrap().0;
    assert_eq!((answer.sport, answer.dport, answer.sequence), (0, 1, 2));
    assert_eq!(answer.ext.iter().next(), Some(Ok(Ext::NPaths(1))));
    // On a new link it is not probed again: it would take the number 0 for a new beginning.
    core.lost(now, link);
    now = now + Duration::from_secs(1);
    core.tick(now);
    events.clear();
    core.take_events(&mut events);
    let dialled = events.iter().find_map(|event| match event {
        Event::Dial(link, ..) => Some(*link),
        _ => None,
    });
    let link = dialled.unwrap();
    assert!(core.opened(now, link, &[]));
    out.clear();
    core.transmit(now, link, &mut out);
    let probes = out.iter().filter(|transmission| match transmission {
        Transmission::Frame(frame) => Header::decode(&frame.header).unwrap().0.sport == 1,
        Transmission::Rdma(_) => true,
    });
    assert_eq!(probes.count(), 0);
}

#[derive(Debug)]
struct FakeLease;

impl Leased for FakeLease {
    fn key(&self) -> RemoteKey {
        RemoteKey::from_bits(9)
    }

    fn remote_addr(&self) -> u64 {
        0
    }

    fn addr(&self) -> u64 {
        1
    }

    fn release(self: Box<Self>) {}

    fn invalidate(self: Box<Self>) -> Result<Vec<u8>, StillAlive> {
        Err(StillAlive("test".into()))
    }
}

#[test]
fn the_word_of_a_use_is_held_until_the_key_is_dead() {
    let mut pair = Pair::new(|_| {});
    let (sock, cookie) = (pair.socks[1], Cookie::from_bits(9));
    let region = Region {
        cookie,
        flags: MrFlags::USE_ONCE | MrFlags::INVALIDATE,
        lease: Box::new(FakeLease),
    };
    pair.cores[1].add_region(sock, region).unwrap();
    pair.send(b"before");
    pair.write(1);
    pair.send(b"behind");
    pair.run(all);
    assert_eq!(pair.invalidated, [cookie]);
    assert_eq!(pair.received(), [b"before".to_vec()], "the rest is held");
    assert_eq!(pair.cores[1].is_readable(sock), Some(false));
    pair.cores[1].key_dead(sock, cookie);
    assert_eq!(pair.received(), [b"written".to_vec(), b"behind".to_vec()]);
}

#[test]
fn an_unknown_extension_is_counted_and_the_message_arrives() {
    let mut pair = Pair::new(|_| {});
    pair.send(b"begin");
    pair.run(all);
    let header = Header {
        sequence: 2,
        len: 1,
        sport: 7,
        dport: 7,
        ext: ExtArea::from_bytes([9; 16]),
        ..Header::default()
    };
    let link = pair.links[1].unwrap();
    pair.cores[1].frame(pair.now, link, &header.encode(), Payload::Bytes(b"x"));
    assert_eq!(pair.received().len(), 2);
    assert_eq!(pair.cores[1].counters.lite_unknown_ext, 1);
}

#[test]
fn connections_are_bounded_whoever_makes_them() {
    let mut pair = Pair::new(|config| config.max_connections = 2);
    for last in 10..20 {
        let path = Path {
            local: ip(1),
            remote: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        };
        let accepted = pair.cores[1].asked(pair.now, path, &[]);
        assert_eq!(accepted.is_ok(), last < 12);
    }
    assert_eq!(pair.cores[1].counters.lite_refused_connections, 8);
    let mut message = Sending::default();
    let to = addr(0);
    let refused = pair.cores[1].send(pair.now, pair.socks[1], to, &mut message);
    assert!(matches!(refused, Err(SendError::TooManyPeers(2))));
}

#[test]
fn pings_that_wait_for_their_answer_are_bounded() {
    let mut pair = Pair::new(|config| config.max_pongs = 4);
    pair.send(b"begin");
    pair.run(all);
    let link = pair.links[1].unwrap();
    for sequence in 2..12 {
        let ping = Header {
            sequence,
            sport: 7,
            ..Header::default()
        };
        pair.cores[1].frame(pair.now, link, &ping.encode(), Payload::Bytes(&[]));
    }
    assert_eq!(pair.cores[1].counters.send_pong, 4);
    assert_eq!(pair.cores[1].counters.lite_pings_ignored, 6);
}
