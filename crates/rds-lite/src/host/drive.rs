//! What the fabric says goes into the core; what the core wants is done.

use crate::fabric::{Arrival, ArrivedPayload, Link, Sink};
use crate::host::{Driving, Shared};
use crate::proto::{Buf, Core, Event, LinkId, Path, Payload, RdmaDone, Share};
use crate::wire::HEADER_LEN;
use mr_core::Time;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

thread_local! {
    /// Reused, so that a message in steady state needs no allocation.
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

impl Shared {
    /// Runs `change` on the core, and then what follows from it, without the lock.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Core) -> T) -> T {
        self.with_holding(None, change)
    }

    /// As [`with`](Self::with); with `held`, links that have something to send are named there rather
    /// than sent on.
    pub(crate) fn with_holding<T>(
        &self,
        held: Option<&mut Vec<LinkId>>,
        change: impl FnOnce(&mut Core) -> T,
    ) -> T {
        let mut events = EVENTS.take();
        let (result, armed) = {
            let mut core = self.lock();
            let result = change(&mut core);
            core.take_events(&mut events);
            let ends = |event: &&Event| matches!(event, Event::Release(..));
            self.memory.will_release(events.iter().filter(ends).count());
            (result, core.take_armed())
        };
        if let Some(at) = armed {
            self.timer.arm(at);
        }
        if !events.is_empty() {
            self.carry_out(&mut events, held);
            self.pump();
        }
        EVENTS.set(events);
        result
    }

    /// Carries out events; what is caused by that is carried out by nested calls.
    fn carry_out(&self, events: &mut Vec<Event>, mut held: Option<&mut Vec<LinkId>>) {
        let mut last_readable = None;
        for event in events.drain(..) {
            match event {
                Event::Dial(id, path, introduction) => {
                    self.fabric.dial(id, path, introduction, self.sink());
                }
                Event::Drop(id, reason) => {
                    tracing::debug!(?id, %reason, "link let go");
                    if let Some(open) = self.links.remove(id) {
                        open.close();
                    }
                }
                Event::Transmit(id) => match &mut held {
                    Some(held) if held.contains(&id) => {}
                    Some(held) => held.push(id),
                    None => self.send_on(id),
                },
                Event::Look(id) => self.look(id),
                Event::Readable(sock) => {
                    // A batch of messages to one socket wakes it once.
                    if last_readable.replace(sock) != Some(sock)
                        && let Some(signals) = self.signals_of(sock)
                    {
                        signals.readable.raise();
                    }
                }
                Event::Writable(sock) => {
                    if let Some(signals) = self.signals_of(sock) {
                        signals.writable.raise();
                    }
                }
                Event::Release(sock, cookie, lease) => self.memory.release(sock, cookie, lease),
                Event::Invalidate(sock, cookie, lease) => {
                    self.memory.invalidate(self, sock, cookie, lease);
                }
            }
        }
    }

    fn send_on(&self, id: LinkId) {
        if let Some(open) = self.links.get(id) {
            open.send(self, id);
        }
    }

    /// Tells the core how much of a link has arrived.
    fn look(&self, id: LinkId) {
        if let Some(open) = self.links.get(id) {
            let bytes = open.arrived();
            let now = self.clock.now();
            self.with(|core| core.arrived(now, id, bytes));
        }
    }

    /// Sends on links that were named earlier.
    pub(crate) fn send_held(&self, held: &mut Vec<LinkId>) {
        if held.is_empty() {
            return;
        }
        for id in held.drain(..) {
            self.send_on(id);
        }
        self.pump();
    }

    /// In virtual time nothing happens between two steps of the network.
    fn pump(&self) -> Option<Time> {
        if self.driving == Driving::Manual {
            return None;
        }
        let next = self.fabric.pump();
        if let Some(at) = next {
            self.timer.arm(at);
        }
        next
    }

    fn sink(&self) -> Weak<dyn Sink> {
        self.memory.sink()
    }

    /// Does what is due, and says when to come again.
    pub(crate) fn poll(&self) -> Option<Time> {
        let now = self.clock.now();
        self.with(|core| core.tick(now));
        let pool = if self.driving == Driving::Manual {
            self.memory.step()
        } else {
            None
        };
        let deaths = self.memory.poll_deaths(self, now);
        let fabric = self.pump();
        let core = self.lock().deadline();
        [pool, deaths, fabric, core].into_iter().flatten().min()
    }
}

impl Sink for Shared {
    fn asked(&self, path: Path, introduction: &[u8]) -> Result<(LinkId, Vec<u8>), Vec<u8>> {
        let now = self.clock.now();
        self.with(|core| core.asked(now, path, introduction))
    }

    fn wants(&self, id: LinkId) -> bool {
        self.lock().is_current(id)
    }

    fn opened(&self, id: LinkId, introduction: &[u8], link: Arc<dyn Link>) -> bool {
        let now = self.clock.now();
        self.with(|core| {
            let wanted = core.opened(now, id, introduction);
            if wanted {
                // Before anyone can be told to send on it.
                self.links.insert(id, link);
            }
            wanted
        })
    }

    fn rejected(&self, id: LinkId, reason: &[u8]) {
        let now = self.clock.now();
        self.with(|core| core.rejected(now, id, reason));
    }

    fn dial_wanted(&self, path: Path) {
        let now = self.clock.now();
        let dead = self.lock().dead_link(now, path);
        if let Some(open) = dead.and_then(|id| self.links.get(id)) {
            // A peer that does not acknowledge will not send again what has arrived on it.
            open.finish();
        }
        // The time of the question: a link that has been made meanwhile is no answer to it.
        self.with(|core| core.dial_wanted(now, path));
    }

    fn frames(&self, id: LinkId, frames: &mut Vec<Arrival>) {
        let now = self.clock.now();
        self.with(|core| {
            for Arrival { header, payload } in frames.drain(..) {
                match payload {
                    ArrivedPayload::Bytes(bytes) => {
                        core.frame(now, id, &header, Payload::Bytes(&bytes));
                    }
                    ArrivedPayload::Whole(buf) => {
                        core.frame(now, id, &header, Payload::Whole(buf));
                    }
                    ArrivedPayload::Shed => core.frame(now, id, &header, Payload::Shed),
                }
            }
        });
    }

    fn buffer(&self, id: LinkId, header: &[u8; HEADER_LEN]) -> Option<Buf> {
        // Half of the budget is there for any socket: no need to know which one it is.
        let buf = self.buffers.get_for(header, Share::Half);
        buf.or_else(|| self.lock().buffer(id, header))
    }

    fn buffer_beyond(&self, header: &[u8; HEADER_LEN]) -> Option<Buf> {
        self.buffers.get_beyond(header)
    }

    fn stalled(&self, id: LinkId) {
        tracing::debug!(?id, "no receive buffers: the peer is held back");
        self.tallies.stalls.fetch_add(1, Ordering::Relaxed);
    }

    fn writable(&self, id: LinkId) {
        if let Some(open) = self.links.get(id) {
            open.note_writable();
        }
        self.with(|core| core.set_blocked(id, false));
    }

    fn ack_ended(&self, id: LinkId) {
        self.with(|core| core.ack_ended(id));
    }

    fn rdma_done(&self, done: RdmaDone) {
        self.with(|core| core.rdma_done(done));
    }

    fn lost(&self, id: LinkId) {
        // What has arrived on it is not to be sent on the next.
        self.look(id);
        let now = self.clock.now();
        self.links.remove(id);
        self.with(|core| core.lost(now, id));
    }
}
