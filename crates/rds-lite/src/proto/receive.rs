//! From frames of the fabric to messages.

use crate::proto::connection::Partial;
use crate::proto::socket::MessageFate;
use crate::proto::{Buf, Core, DropReason, Greeting, LinkId, LinkState, Share, SockId, seq};
use crate::wire::{Flags, HEADER_LEN, Header, HeaderError, MAP_LEN};
use mr_core::Time;
use std::net::SocketAddr;
use std::time::Duration;

/// How often a link looks whether messages have arrived, if they do.
const LOOK_SOON: Duration = Duration::from_millis(1);

/// How often a link that sheds looks for room.
const SHED_PAUSE: Duration = Duration::from_millis(10);

/// The widest gap between two numbers: far more than can be taken back at once. What goes beyond is
/// damage, and following it would make everything behind it look old.
const MAX_GAP: u64 = 1 << 32;

/// What came behind a header.
#[derive(Debug)]
pub enum Payload<'a> {
    /// The payload of this frame, to be copied.
    Bytes(&'a [u8]),
    /// The whole message, in a buffer of this host.
    Whole(Buf),
    /// The fabric had no buffer for it, and has thrown it away.
    Shed,
}

impl Core {
    /// A frame has arrived.
    pub fn frame(
        &mut self,
        now: Time,
        link: LinkId,
        header: &[u8; HEADER_LEN],
        payload: Payload<'_>,
    ) {
        self.now = self.now.max(now);
        let Some(index) = self.open_link(link) else {
            return;
        };
        match Header::decode(header) {
            Ok((header, summed)) => {
                if summed && !self.conns[index].peer_acks {
                    self.expect_acks(now, index);
                }
                let conn = &mut self.conns[index];
                let held = !conn.credits.allow();
                let owes = conn.credits.arrived(header.credit);
                conn.ack_due |= owes;
                self.decoded(now, index, &header, payload);
                if held || owes {
                    self.wants_transmit(index as u32);
                }
            }
            Err(error) => {
                if error == HeaderError::Checksum {
                    self.counters.recv_drop_bad_checksum += 1;
                }
                self.fault(now, index, DropReason::BadHeader);
            }
        }
    }

    fn decoded(&mut self, now: Time, index: usize, header: &Header, payload: Payload<'_>) {
        if self.is_greeting(header) {
            self.learn_generation(index, header);
        }
        self.acknowledged(now, index, header.ack);
        let waits = self.kind.greeting == Greeting::Connect && self.conns[index].wants_opening();
        if self.conns[index].state == LinkState::Greeting && !waits {
            self.greeted(now, index);
        }
        let is_ack = header.sport == 0 && header.dport == 0 && header.sequence == 0;
        // It may come between two fragments.
        if is_ack && header.len == 0 {
            self.counters.ib_ack_received += 1;
            return;
        }
        if self.hushed {
            return;
        }
        if let Some(buf) = self.assemble(now, index, header, payload) {
            self.message(now, index, header, buf);
        }
    }

    /// Puts a fragment to its message. Returns the message if that completes it.
    fn assemble(
        &mut self,
        now: Time,
        index: usize,
        header: &Header,
        payload: Payload<'_>,
    ) -> Option<Buf> {
        let len = header.len as usize;
        if self.conns[index].shedding && header.flags != Flags::CONG_BITMAP {
            return None;
        }
        let bytes = match payload {
            Payload::Shed => return self.shed(now, index, header),
            Payload::Whole(buf) if self.conns[index].partial.is_none() && buf.len() == len => {
                return Some(buf);
            }
            Payload::Whole(_) => {
                self.fault(now, index, DropReason::BadFragment);
                return None;
            }
            Payload::Bytes(bytes) => bytes,
        };
        let mut partial = match self.conns[index].partial.take() {
            Some(partial) if partial.takes(header) => partial,
            Some(_) => {
                self.fault(now, index, DropReason::BadFragment);
                return None;
            }
            None => match self.buffer_for(index, &header.encode_unchecked()) {
                Some(buf) => Partial {
                    header: *header,
                    buf,
                    got: 0,
                    by: now,
                },
                None => return self.shed(now, index, header),
            },
        };
        let end = partial.got + bytes.len();
        // A fragment is full unless it is the last.
        let expected = self.kind.fragment.min(len - partial.got);
        if bytes.len() != expected {
            self.fault(now, index, DropReason::BadFragment);
            return None;
        }
        partial.buf.bytes_mut()[partial.got..end].copy_from_slice(bytes);
        partial.got = end;
        if end == len {
            return Some(partial.buf);
        }
        // The peer gives up, too, when it hears nothing for so long.
        partial.by = now + self.config.ack_timeout * 2;
        self.arm(partial.by);
        self.conns[index].partial = Some(partial);
        None
    }

    /// A buffer for the message behind `header`, if there is room for it.
    pub(crate) fn buffer(&self, link: LinkId, header: &[u8; HEADER_LEN]) -> Option<Buf> {
        match self.open_link(link) {
            Some(index) => self.buffer_for(index, header),
            None => self.buffers.get_for(header, Share::Whole),
        }
    }

    fn buffer_for(&self, index: usize, header: &[u8; HEADER_LEN]) -> Option<Buf> {
        let dport = u16::from_be_bytes([header[22], header[23]]);
        let share = match self.overrun(index, dport) {
            Some(_) => Share::Half,
            None => Share::Whole,
        };
        self.buffers.get_for(header, share)
    }

    /// The socket of this port, if it is overrun.
    fn overrun(&self, index: usize, port: u16) -> Option<SockId> {
        let to = SocketAddr::new(self.conns[index].path.local, port);
        let sock = *self.ports.get(&to)?;
        self.sockets.get(sock)?.is_overrun().then_some(sock)
    }

    /// There is no buffer for a message. It is not acknowledged, nor is anything behind it, until
    /// there is room and a new link brings all of it again. Acknowledgements go on meanwhile.
    fn shed<T>(&mut self, now: Time, index: usize, header: &Header) -> Option<T> {
        self.counters.lite_shed += 1;
        let shed_for = self.overrun(index, header.dport);
        let conn = &mut self.conns[index];
        conn.shedding = true;
        conn.shed_for = shed_for;
        conn.partial = None;
        conn.shed_until = Some(now + SHED_PAUSE);
        self.arm(now + SHED_PAUSE);
        None
    }

    /// Drops a link on which messages were shed, once there is room again. Applications give
    /// buffers back without a word to this crate, so it looks.
    ///
    /// Where a socket was overrun, not before it is no longer congested or there is plenty of room: the new
    /// link would be shedding after the next message.
    pub(crate) fn end_shedding(&mut self, now: Time, index: usize) {
        let socket = self.conns[index].shed_for;
        let socket = socket.and_then(|sock| self.sockets.get(sock));
        let share = match socket {
            Some(socket) if socket.congested => Share::Half,
            _ => Share::Whole,
        };
        if self.buffers.has_room(share) {
            self.fault(now, index, DropReason::Shed);
        } else {
            self.conns[index].shed_until = Some(now + SHED_PAUSE);
        }
    }

    /// Where not every peer acknowledges, those do that sum their headers.
    fn expect_acks(&mut self, now: Time, index: usize) {
        let by = now + self.config.ack_timeout;
        let conn = &mut self.conns[index];
        conn.peer_acks = true;
        conn.look_at = None;
        if !conn.unacked.is_empty() {
            conn.ack_by = Some(by);
            self.arm(by);
        }
    }

    /// The peer's side of the fabric has so many bytes of this link; `None`: the fabric cannot tell, and
    /// all that it has taken counts. For a peer that acknowledges this means nothing.
    ///
    /// A kernel over TCP has what its TCP has: it takes messages out as they come.
    pub fn arrived(&mut self, now: Time, link: LinkId, bytes: Option<u64>) {
        self.now = self.now.max(now);
        let Some(index) = self.open_link(link) else {
            return;
        };
        if self.conns[index].peer_acks {
            return;
        }
        let mut progress = false;
        loop {
            let conn = &mut self.conns[index];
            let there = conn
                .unacked
                .pop_front_if(|first| bytes.is_none_or(|bytes| first.end <= bytes));
            let Some(message) = there else {
                break;
            };
            progress = true;
            conn.acked = message.seq;
            self.settle(message, MessageFate::Arrived);
        }
        if !self.conns[index].unacked.is_empty() {
            self.look_later(now, index, progress);
        }
    }

    /// Arranges for a look at how much has arrived: soon while there is progress, or room is wanted.
    pub(crate) fn look_later(&mut self, now: Time, index: usize, soon: bool) {
        let pause = if soon {
            LOOK_SOON
        } else {
            self.config.ack_delay
        };
        let conn = &mut self.conns[index];
        let at = now + pause;
        if conn.look_at.is_none_or(|earlier| at < earlier) {
            conn.look_at = Some(at);
            self.arm(at);
        }
    }

    /// Messages up to `ack` have arrived.
    pub(crate) fn acknowledged(&mut self, now: Time, index: usize, ack: u64) {
        let conn = &mut self.conns[index];
        // Nobody can have received what was not sent; and an older word says nothing new.
        let unsent = ack == 0 || seq::before(conn.last_tx, ack);
        if unsent || (conn.acked != 0 && seq::before(ack, conn.acked)) {
            return;
        }
        conn.acked = ack;
        let mut progress = false;
        loop {
            let conn = &mut self.conns[index];
            let arrived = conn
                .unacked
                .pop_front_if(|first| seq::covers(ack, first.seq));
            let Some(message) = arrived else {
                break;
            };
            progress = true;
            self.settle(message, MessageFate::Arrived);
        }
        let conn = &mut self.conns[index];
        if conn.unacked.is_empty() {
            conn.ack_by = None;
            conn.ack_tries = 0;
        } else if progress {
            let by = now + self.config.ack_timeout;
            conn.ack_by = Some(by);
            conn.ack_tries = 0;
            self.arm(by);
        }
    }

    /// A whole message.
    fn message(&mut self, now: Time, index: usize, header: &Header, buf: Buf) {
        if header.flags.contains(Flags::CONG_BITMAP) {
            let exact = header.flags == Flags::CONG_BITMAP && buf.len() == MAP_LEN;
            return self.map_received(index, exact.then_some(&*buf));
        }
        if header.sport == 0 && header.dport == 0 {
            return;
        }
        if header.sequence != 0 && !self.take_number(now, index, header) {
            return;
        }
        self.deliver(index, header, buf);
    }

    /// Notes the number of a message, and that it wants an acknowledgement. Says whether the message
    /// is new.
    fn take_number(&mut self, now: Time, index: usize, header: &Header) -> bool {
        let delay = self.config.ack_delay;
        let conn = &mut self.conns[index];
        let known = conn.next_rx != 0;
        let old = known && seq::before(header.sequence, conn.next_rx);
        if known && !old && header.sequence.wrapping_sub(conn.next_rx) > MAX_GAP {
            self.fault(now, index, DropReason::BadHeader);
            return false;
        }
        // An old number without the flag, first on a link, is a peer that begins anew. Later on the
        // link the fabric has said something twice; unless it is the kernel over TCP, which begins anew
        // in the middle of a link: behind its answer to the greeting of a host that is not the one it knew.
        let twice = conn.heard && conn.peer_acks;
        let again = header.flags.contains(Flags::RETRANSMITTED) || twice;
        conn.heard = true;
        let duplicate = old && again;
        if duplicate {
            self.counters.recv_drop_old_seq += 1;
        } else {
            conn.next_rx = seq::next(header.sequence);
            conn.last_rx = header.sequence;
        }
        // A duplicate is acknowledged again: the first acknowledgement may be lost.
        if duplicate || header.flags.contains(Flags::ACK_REQUIRED) {
            if header.flags.contains(Flags::ACK_REQUIRED) {
                self.counters.recv_ack_required += 1;
            }
            conn.ack_due = true;
            self.wants_transmit(index as u32);
        } else if conn.ack_at.is_none() && !conn.ack_due {
            conn.ack_at = Some(now + delay);
            self.arm(now + delay);
        }
        !duplicate
    }
}
