//! A peer that does what the kernel does over TCP, as far as it was seen to differ from what one would expect.

use super::*;

const TCP: LinkKind = LinkKind {
    fragment: 1 << 20,
    greeting: Greeting::Probe,
    always_acks: false,
    packets_per_ack: 64,
    rdma: false,
    fences: false,
    receive_ring: 0,
    own_ack: false,
    smaller_dials: true,
};

/// One core, and a script for its peer.
struct Script {
    core: Core,
    sock: SockId,
    link: LinkId,
    now: Time,
}

impl Script {
    /// A host with the larger address, to which the kernel has just connected.
    fn new() -> Self {
        let config = Config {
            seed: Some(1),
            ..Config::default()
        };
        let mut core = Core::new(config, TCP).unwrap();
        let sock = core.bind(addr(1)).unwrap();
        let now = Time::from_nanos(1);
        let (link, _) = core.asked(now, Self::path(), &[]).unwrap();
        assert!(core.opened(now, link, &[]));
        Self {
            core,
            sock,
            link,
            now,
        }
    }

    fn path() -> Path {
        Path {
            local: ip(1),
            remote: ip(0),
        }
    }

    fn frame(&mut self, header: &Header, payload: &[u8]) {
        let header = Header {
            len: payload.len() as u32,
            ..*header
        };
        let header = header.encode_unchecked();
        let payload = Payload::Bytes(payload);
        self.core.frame(self.now, self.link, &header, payload);
    }

    fn message(&mut self, sequence: u64, flags: Flags, payload: &[u8]) {
        let header = Header {
            sequence,
            sport: 7,
            dport: 7,
            flags,
            ..Header::default()
        };
        self.frame(&header, payload);
    }

    fn pong(&mut self, sequence: u64) {
        let header = Header {
            sequence,
            dport: 1,
            ext: ExtArea::EMPTY.with(Ext::NPaths(8)),
            ..Header::default()
        };
        self.frame(&header, &[]);
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.core.receive(self.sock))
            .map(|message| message.payload.to_vec())
            .collect()
    }
}

/// A kernel that is greeted by another host than it knew answers with its old numbers, and begins anew
/// behind that, on the same connection.
#[test]
fn a_kernel_that_numbers_anew_behind_its_answer_is_followed() {
    let mut script = Script::new();
    script.pong(3);
    for (number, payload) in [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")] {
        script.message(number, Flags::empty(), payload);
    }
    assert_eq!(
        script.received(),
        [b"a", b"b", b"c", b"d"].map(|text| text.to_vec())
    );
    // What it marks as sent again it has sent before.
    script.message(3, Flags::RETRANSMITTED | Flags::ACK_REQUIRED, b"c");
    script.message(5, Flags::RETRANSMITTED | Flags::ACK_REQUIRED, b"e");
    assert_eq!(script.received(), [b"e".to_vec()]);
    assert_eq!(script.core.counters().recv_drop_old_seq, 1);
}

impl Script {
    fn send(&mut self, payload: &'static [u8]) {
        let mut message = Sending {
            payload: Bytes::from_static(payload),
            ..Sending::default()
        };
        let (now, sock) = (self.now, self.sock);
        self.core.send(now, sock, addr(0), &mut message).unwrap();
    }

    /// What is sent now: numbers and flags of messages.
    fn sent(&mut self) -> Vec<(u64, Flags)> {
        let mut out = Vec::new();
        self.core.transmit(self.now, self.link, &mut out);
        out.iter()
            .filter_map(|transmission| match transmission {
                Transmission::Frame(frame) => Some(Header::decode(&frame.header).unwrap().0),
                Transmission::Rdma(_) => None,
            })
            .filter(|header| header.sport == 7)
            .map(|header| (header.sequence, header.flags))
            .collect()
    }

    /// Whether the core asks how much has arrived.
    fn looks(&mut self) -> bool {
        self.core.tick(self.now);
        let mut events = Vec::new();
        self.core.take_events(&mut events);
        events
            .iter()
            .any(|event| matches!(event, Event::Look(link) if *link == self.link))
    }
}

/// A kernel acknowledges nothing, and a connection may end with messages that only this side's TCP has.
/// These are sent again, and no others.
#[test]
fn what_tcp_still_had_when_a_connection_ended_is_sent_again() {
    let mut script = Script::new();
    script.pong(1);
    script.sent();
    let before = script.core.counters();
    for payload in [&b"one"[..], b"two", b"three"] {
        script.send(payload);
    }
    assert_eq!(script.sent().len(), 3);
    script.now = script.now + Duration::from_millis(20);
    assert!(script.looks());
    // The greeting, the map, the first message, and all of the second but a byte.
    let so_far = 48 + (48 + MAP_LEN) + (48 + 3) + (48 + 2);
    script
        .core
        .arrived(script.now, script.link, Some(so_far as u64));
    assert_eq!(script.core.unsent(script.sock), 2);

    script.core.lost(script.now, script.link);
    let (link, _) = script.core.asked(script.now, Script::path(), &[]).unwrap();
    assert!(script.core.opened(script.now, link, &[]));
    script.link = link;
    let again = Flags::RETRANSMITTED | Flags::ACK_REQUIRED;
    assert_eq!(script.sent(), [(2, again), (3, again)]);
    script.now = script.now + Duration::from_millis(1);
    assert!(script.looks(), "soon, since it was asked for");
    // Bytes are counted anew on each connection.
    let map = 48 + MAP_LEN;
    script
        .core
        .arrived(script.now, script.link, Some((map + 51) as u64));
    assert_eq!(script.core.unsent(script.sock), 1);
    script.now = script.now + Duration::from_millis(1);
    assert!(script.looks(), "soon, since there is progress");
    script
        .core
        .arrived(script.now, script.link, Some((map + 51 + 53) as u64));
    assert_eq!(script.core.unsent(script.sock), 0);
    script.now = script.now + Duration::from_secs(1);
    assert!(!script.looks(), "nothing to look for");
    let sent_again = script.core.counters().lite_retransmitted - before.lite_retransmitted;
    assert_eq!(sent_again, 2);
}
