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
