//! Greetings and pings.

use crate::proto::outgoing::OpStage;
use crate::proto::{Core, FailReason, Greeting, Notification, SockId, seq};
use crate::wire::{Ext, ExtArea, Header, PROBE_PORT};

impl Core {
    /// Whether a header greets: a probe from port 1 to 0, or the answer from 0 to 1.
    pub(crate) fn is_greeting(&self, header: &Header) -> bool {
        self.kind.greeting == Greeting::Probe
            && matches!(
                (header.sport, header.dport),
                (PROBE_PORT, 0) | (0, PROBE_PORT)
            )
    }

    /// A peer with another boot generation than before has begun anew: what it had not acknowledged
    /// must not be given to it, and numbers begin anew on both sides.
    pub(crate) fn learn_generation(&mut self, index: usize, header: &Header) {
        let generation = header.ext.iter().find_map(|ext| match ext {
            Ok(Ext::GenNum(generation)) if generation != 0 => Some(generation),
            _ => None,
        });
        if generation.is_some() {
            self.meet_generation(index, generation);
        }
    }

    /// The peer is of this generation; `None` if it has none, as a kernel.
    pub(crate) fn meet_generation(&mut self, index: usize, generation: Option<u32>) {
        let known = std::mem::replace(&mut self.conns[index].peer_generation, generation);
        if known.is_some() && known != generation {
            self.counters.lite_peer_restarts += 1;
            self.begin_anew(index);
        }
    }

    fn begin_anew(&mut self, index: usize) {
        let first = self.kind.first_number();
        let conn = &mut self.conns[index];
        conn.next_rx = 0;
        conn.last_rx = 0;
        conn.next_tx = first;
        conn.acked = 0;
        conn.last_tx = 0;
        conn.head = None;
        conn.partial = None;
        let remote = conn.path.remote;
        let mut old = std::mem::take(&mut conn.queue);
        old.extend(std::mem::take(&mut conn.unacked));
        let mut gone = Vec::new();
        for mut message in old {
            // What has never left this host is as good for the new peer as for the old one; except for
            // a cookie: the new peer may have given its key to other memory.
            if message.again || !matches!(message.op, OpStage::None) {
                gone.push(message);
                continue;
            }
            message.seq = conn.next_tx;
            conn.next_tx = seq::next(conn.next_tx);
            conn.queue.push_back(message);
        }
        for message in gone {
            self.fail(message, remote, FailReason::PeerRestarted);
        }
        let local = self.conns[index].path.local;
        let told: Vec<SockId> = self
            .sockets
            .iter()
            .filter(|(_, state)| state.addr.ip() == local)
            .map(|(sock, _)| sock)
            .collect();
        for sock in told {
            self.notify_once(sock, Notification::PeerRestarted(remote));
        }
    }

    /// Answers a ping, or a probe that is numbered as the kernel's are; this crate's own is not, and
    /// both sides send one.
    pub(crate) fn answer(&mut self, index: usize, header: &Header) {
        let probe = header.sport == PROBE_PORT;
        if probe && header.sequence == 0 {
            return;
        }
        self.counters.recv_ping += 1;
        if !self.config.answer_pings || self.conns[index].pongs >= self.config.max_pongs {
            self.counters.lite_pings_ignored += 1;
            return;
        }
        let ext = if probe {
            self.conns[index].greeting()
        } else {
            ExtArea::EMPTY
        };
        self.counters.send_pong += 1;
        self.conns[index].queue_answer(0, header.sport, ext);
        self.wants_transmit(index as u32);
    }
}
