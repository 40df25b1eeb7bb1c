//! Links come and go: dials, greetings, losses, pauses.

use crate::proto::connection::Connection;
use crate::proto::outgoing::OpStage;
use crate::proto::socket::MessageFate;
use crate::proto::{Core, DropReason, Event, Greeting, LinkEvent, LinkId, LinkState, Path};
use mr_core::Time;
use rand_chacha::rand_core::RngCore;
use std::time::Duration;

impl Core {
    /// The fabric has the link that [`Event::Dial`] asked for, or that a peer has
    /// [asked](Self::asked) for. To a dial belongs what the peer says of itself, as far as the fabric
    /// carries that. Says whether the link is still wanted.
    pub fn opened(&mut self, now: Time, link: LinkId, introduction: &[u8]) -> bool {
        self.now = self.now.max(now);
        let awaited = self
            .current(link)
            .filter(|&index| self.conns[index].state == LinkState::Connecting);
        let Some(index) = awaited else {
            return false;
        };
        if self.conns[index].dialling && !self.answered(now, index, introduction) {
            self.decline(now, index);
            return false;
        }
        self.open(now, index);
        true
    }

    /// The connection for a peer that asks for a link; `None` refuses it: this side's own dial has
    /// precedence, or there are too many connections.
    pub(crate) fn admit_peer(&mut self, path: Path) -> Option<usize> {
        if self.closed || !self.locals.contains(&path.local) || path.local == path.remote {
            return None;
        }
        let index = self.connection(path).ok()?.index as usize;
        let conn = &self.conns[index];
        if conn.state == LinkState::Connecting && conn.dialling {
            self.counters.ib_connect_raced += 1;
            // Both dial at once: the smaller address wins.
            if path.local < path.remote {
                return None;
            }
        }
        Some(index)
    }

    /// Makes room for a link that a peer has asked for.
    pub(crate) fn make_way(&mut self, index: usize) {
        if self.conns[index].state.has_link() {
            let old = self.conns[index].link();
            self.events.push(Event::Drop(old, DropReason::Replaced));
            self.end_link(index);
            self.counters.conn_reset += 1;
        }
        self.conns[index].dial_at = None;
        self.step(index, LinkEvent::Asked);
    }

    /// A peer with a larger address asks to be dialled.
    pub fn dial_wanted(&mut self, now: Time, path: Path) {
        if self.closed || !self.locals.contains(&path.local) || path.local >= path.remote {
            return;
        }
        let Ok(conn) = self.connection(path) else {
            return;
        };
        let index = conn.index as usize;
        if self.dead_link(now, path).is_some() {
            self.fault(now, index, DropReason::Replaced);
        }
        let conn = &mut self.conns[index];
        if conn.state == LinkState::Down {
            conn.attempts = 0;
            self.dial(index);
        }
    }

    /// The link to a peer that [asks to be dialled](Self::dial_wanted): it would not ask if it had one,
    /// so this side's is dead and does not know it. Unless it is so young that the peer may have asked
    /// before it had it.
    pub fn dead_link(&self, now: Time, path: Path) -> Option<LinkId> {
        let conn = &self.conns[*self.paths.get(&path)? as usize];
        let young = now.since(conn.opened_at) < self.config.greet_timeout;
        (conn.state.has_link() && !young).then(|| conn.link())
    }

    /// The fabric has lost a link, or could not make it.
    pub fn lost(&mut self, now: Time, link: LinkId) {
        let Some(index) = self.current(link) else {
            return;
        };
        if self.conns[index].state.has_link() {
            self.counters.conn_reset += 1;
        }
        self.go_down(now, index);
    }

    /// Whether this link is the one that its connection has or awaits.
    pub fn is_current(&self, link: LinkId) -> bool {
        self.current(link).is_some()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        for index in 0..self.conns.len() {
            let conn = &mut self.conns[index];
            if conn.deadline().is_none_or(|at| at > now) {
                continue;
            }
            if due(conn.dial_at) {
                self.dial(index);
            }
            if due(self.conns[index].greet_by) {
                self.miss_greeting(now, index);
            }
            if due(self.conns[index].ack_at) {
                let conn = &mut self.conns[index];
                conn.ack_at = None;
                conn.ack_due = true;
                self.wants_transmit(index as u32);
            }
            if due(self.conns[index].ack_by) {
                self.miss_ack(now, index);
            }
            if due(self.conns[index].look_at) {
                let conn = &mut self.conns[index];
                conn.look_at = None;
                let link = conn.link();
                self.events.push(Event::Look(link));
            }
            if due(self.conns[index].partial.as_ref().map(|partial| partial.by)) {
                self.fault(now, index, DropReason::Unfinished);
            }
            if due(self.conns[index].map_at) {
                self.refresh_map(now, index);
            }
            if due(self.conns[index].shed_until) {
                self.end_shedding(now, index);
            }
        }
    }

    /// The host is about to end: takes no message any more, and has what it has taken acknowledged, so that the
    /// peer does not send it to the next host again. Only where the end of an acknowledgement is known, and
    /// with it that the peer has it.
    pub fn say_last_word(&mut self) {
        if !self.kind.own_ack {
            return;
        }
        self.hushed = true;
        for index in 0..self.conns.len() {
            let conn = &mut self.conns[index];
            if conn.state == LinkState::Up && conn.acknowledgement() != 0 {
                conn.ack_due = true;
                self.wants_transmit(index as u32);
            }
        }
    }

    /// Whether a [last word](Self::say_last_word) is still to be sent or under way.
    pub fn has_more_to_say(&self) -> bool {
        let speaks = |conn: &Connection| conn.ack_due || conn.ack_under_way;
        let mut links = self.conns.iter().filter(|conn| conn.state == LinkState::Up);
        self.hushed && links.any(speaks)
    }

    /// Ends everything: links are let go, and nothing is accepted any more. Messages that have not
    /// arrived are lost with their sockets.
    pub fn shut_down(&mut self) {
        self.closed = true;
        for index in 0..self.conns.len() {
            let link = self.conns[index].link();
            let had = self.conns[index].state != LinkState::Down;
            self.step(index, LinkEvent::Close);
            if had {
                self.events.push(Event::Drop(link, DropReason::Closed));
            }
            let conn = &mut self.conns[index];
            conn.forget_link();
            conn.dial_at = None;
        }
    }

    /// Takes a transition of the table. Whoever calls has checked that it is there.
    fn step(&mut self, index: usize, event: LinkEvent) {
        let conn = &mut self.conns[index];
        match conn.state.after(event) {
            Some(next) => {
                tracing::debug!(path = %conn.path, from = %conn.state, to = %next, "connection");
                conn.state = next;
            }
            None => {
                tracing::error!(path = %conn.path, state = %conn.state, ?event, "no such transition")
            }
        }
    }

    pub(crate) fn current(&self, link: LinkId) -> Option<usize> {
        let conn = self.conns.get(link.conn as usize)?;
        let live = matches!(
            conn.state,
            LinkState::Connecting | LinkState::Greeting | LinkState::Up
        );
        (live && conn.incarnation == link.incarnation).then_some(link.conn as usize)
    }

    /// The current link of this name, if it is open.
    pub(crate) fn open_link(&self, link: LinkId) -> Option<usize> {
        let index = self.current(link)?;
        self.conns[index].state.has_link().then_some(index)
    }

    fn dial(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        conn.dial_at = None;
        if conn.state != LinkState::Down || self.closed {
            return;
        }
        conn.incarnation += 1;
        conn.attempts += 1;
        conn.dialling = true;
        let (link, path) = (conn.link(), conn.path);
        self.step(index, LinkEvent::Dial);
        let introduction = self.introduction(index);
        self.events.push(Event::Dial(link, path, introduction));
    }

    fn open(&mut self, now: Time, index: usize) {
        self.step(index, LinkEvent::Opened);
        let conn = &mut self.conns[index];
        conn.dial_at = None;
        conn.opened_at = now;
        conn.forget_link();
        self.begin_link(index);
        let conn = &mut self.conns[index];
        let (greets, patience) = match self.kind.greeting {
            // A peer that has been heard before and does not greet is a kernel: on a new link it takes
            // an unnumbered probe for the begin of a new numbering.
            Greeting::Probe => {
                let new = conn.next_rx == 0 && conn.acked == 0;
                let greets = conn.peer_generation.is_some() || new;
                (greets, self.config.greet_timeout)
            }
            // Who has said its generation is known. Any other has to be told where numbers begin.
            Greeting::Connect => (conn.wants_opening(), self.config.ack_timeout),
        };
        if greets {
            conn.probe_due = true;
            let by = now + patience;
            conn.greet_by = Some(by);
            self.arm(by);
            self.wants_transmit(index as u32);
        } else {
            self.greeted(now, index);
        }
    }

    /// The peer is who it is: messages may flow.
    pub(crate) fn greeted(&mut self, now: Time, index: usize) {
        self.step(index, LinkEvent::Greeted);
        let conn = &mut self.conns[index];
        conn.greet_by = None;
        conn.attempts = 0;
        conn.backoff = None;
        // What the peer is about to send again may have arrived.
        conn.ack_due |= conn.acknowledgement() != 0;
        self.announce_map(now, index);
        self.wants_transmit(index as u32);
    }

    fn miss_greeting(&mut self, now: Time, index: usize) {
        self.conns[index].greet_by = None;
        let numbered = self.kind.greeting == Greeting::Connect;
        if numbered || self.conns[index].peer_generation.is_some() {
            // Going on could give an old message to a peer that has greeted before and is a new one, or have
            // one that was not told where numbers begin take new messages for old ones.
            self.fault(now, index, DropReason::GreetTimeout);
        } else {
            self.greeted(now, index);
        }
    }

    fn miss_ack(&mut self, now: Time, index: usize) {
        let conn = &mut self.conns[index];
        conn.ack_by = None;
        let Some(first) = conn.unacked.front() else {
            return;
        };
        conn.ack_tries += 1;
        // Only what has no RDMA operation may be sent again, and it is enough to ask once.
        if conn.ack_tries > 1 || !matches!(first.op, OpStage::None) {
            return self.fault(now, index, DropReason::AckTimeout);
        }
        if let Some(mut first) = conn.unacked.pop_front() {
            first.again = true;
            let under_way = usize::from(conn.head.is_some());
            conn.queue.insert(under_way, first);
            let by = now + self.config.ack_timeout;
            conn.ack_by = Some(by);
            self.arm(by);
            self.wants_transmit(index as u32);
        }
    }

    /// Lets a link go since something on it is wrong.
    pub(crate) fn fault(&mut self, now: Time, index: usize, reason: DropReason) {
        let link = self.conns[index].link();
        tracing::debug!(path = %self.conns[index].path, %reason, "link dropped");
        self.events.push(Event::Drop(link, reason));
        self.counters.conn_reset += 1;
        self.go_down(now, index);
    }

    fn go_down(&mut self, now: Time, index: usize) {
        self.step(index, LinkEvent::Lost);
        self.conns[index].down_since = now;
        self.end_link(index);
        self.schedule_dial(now, index);
    }

    /// Puts everything unacknowledged back in front of the queue, to be sent again; except for what
    /// goes with an RDMA operation, which is never done twice.
    fn end_link(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        let under_way = conn.head.is_some();
        conn.forget_link();
        // What the peer's map says may be out of date; it comes anew with the next link.
        conn.peer_map = crate::wire::CongestionMap::new();
        if under_way && let Some(head) = conn.queue.front_mut() {
            head.again = true;
        }
        let mut dropped = Vec::new();
        while let Some(mut message) = conn.unacked.pop_back() {
            message.again = true;
            conn.queue.push_front(message);
        }
        let mut kept = std::collections::VecDeque::with_capacity(conn.queue.len());
        for message in conn.queue.drain(..) {
            match message.op {
                OpStage::Posted(_) => dropped.push(message),
                OpStage::None | OpStage::Queued(..) => kept.push_back(message),
            }
        }
        conn.queue = kept;
        for message in dropped {
            self.settle(message, MessageFate::Lost);
        }
        self.wake_waiters(index);
    }

    /// Arranges for a link if there is a use for one.
    pub(crate) fn wants_link(&mut self, index: u32) {
        let index = index as usize;
        let conn = &mut self.conns[index];
        if conn.state == LinkState::Down && conn.dial_at.is_none() {
            conn.attempts = 0;
            self.dial(index);
        }
    }

    fn schedule_dial(&mut self, now: Time, index: usize) {
        let rests = self.conns[index].attempts >= self.config.idle_attempts
            && !self.conns[index].is_needed();
        if rests || self.closed || self.conns[index].state != LinkState::Down {
            return;
        }
        let conn = &mut self.conns[index];
        let pause = match conn.backoff {
            // The first attempt after a loss is immediate.
            None => {
                conn.backoff = Some(self.config.reconnect_min);
                Duration::ZERO
            }
            Some(bound) => {
                conn.backoff = Some((bound * 2).min(self.config.reconnect_max));
                bound.mul_f64(f64::from(self.random.next_u32()) / f64::from(u32::MAX))
            }
        };
        conn.dial_at = Some(now + pause);
        self.arm(now + pause);
    }
}
