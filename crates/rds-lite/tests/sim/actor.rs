//! What applications do, at random.

use crate::checker::{Checker, TAG, Uid};
use crate::memory::{Memory, assert_dead};
use crate::world::{Dice, World, ip};
use mr_core::Access;
use rds_lite::proto::{AtomicOp, Notification, Received, SendError, Status};
use rds_lite::rdma::{FreeOutcome, MrFlags};
use rds_lite::{Buffers, Cookie, Incoming, RdmaFlags, RdmaOp, Socket};
use std::net::SocketAddr;

/// Sockets per node.
pub(crate) const PORTS: u64 = 3;

/// Marks what a message is about as an operation that was done.
const DONE: u32 = 1 << 31;

/// A socket and who it is to the checker.
pub(crate) struct Actor {
    pub(crate) uid: Uid,
    pub(crate) node: usize,
    pub(crate) socket: Socket,
}

impl Actor {
    pub(crate) fn addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }
}

/// A cookie that a peer has sent.
#[derive(Clone, Copy)]
struct Known {
    node: usize,
    owner: SocketAddr,
    cookie: Cookie,
    number: u32,
    len: usize,
}

/// The same bytes in one buffer or several, some of them empty.
fn in_parts(mut buffer: Vec<u8>, dice: &mut Dice) -> Buffers {
    if dice.one_in(2) {
        return buffer.into();
    }
    let mut parts = Vec::new();
    for _ in 0..dice.below(4) {
        let at = dice.below(buffer.len() as u64 + 1) as usize;
        let rest = buffer.split_off(at);
        parts.push(std::mem::replace(&mut buffer, rest));
    }
    parts.push(buffer);
    parts.into()
}

/// All applications.
pub(crate) struct Cast {
    pub(crate) actors: Vec<Actor>,
    pub(crate) checker: Checker,
    pub(crate) memory: Memory,
    known: Vec<Known>,
    tokens: u64,
    pub(crate) operations: u64,
    pub(crate) congested: u64,
    pub(crate) succeeded: u64,
}

impl Cast {
    pub(crate) fn new() -> Self {
        Self {
            actors: Vec::new(),
            checker: Checker::default(),
            memory: Memory::default(),
            known: Vec::new(),
            tokens: 0,
            operations: 0,
            congested: 0,
            succeeded: 0,
        }
    }

    pub(crate) fn bind(&mut self, world: &World, node: usize, port: u16) {
        let addr = SocketAddr::new(ip(node), port);
        if self.actors.iter().any(|actor| actor.addr() == addr) {
            return;
        }
        let socket = world.nodes[node].host.bind(addr).unwrap();
        let uid = self.checker.bound(addr.ip());
        world.note(|| format!("{addr} bound as {uid}"));
        self.actors.push(Actor { uid, node, socket });
    }

    /// Takes a socket away.
    pub(crate) fn close(&mut self, world: &World, place: usize) {
        let actor = self.actors.remove(place);
        world.note(|| format!("{} closes", actor.uid));
        self.checker.closed(actor.uid, actor.addr());
        self.memory.forget(actor.uid);
        let addr = actor.addr();
        self.known.retain(|known| known.owner != addr);
    }

    /// Ends a host and all that is on it, and begins it anew.
    pub(crate) fn restart(&mut self, world: &mut World, node: usize) {
        world.note(|| format!("node {node} restarts"));
        while let Some(place) = self.actors.iter().position(|actor| actor.node == node) {
            self.close(world, place);
        }
        self.known.retain(|known| known.node != node);
        // The old host ends before the new one begins.
        let fresh = world.build(node);
        let old = std::mem::replace(&mut world.nodes[node], fresh);
        drop(old);
    }

    fn place(&self, dice: &mut Dice) -> Option<usize> {
        let count = self.actors.len() as u64;
        (count > 0).then(|| dice.below(count) as usize)
    }

    /// Somebody sends something to someone.
    pub(crate) fn send(&mut self, world: &World, dice: &mut Dice) {
        let Some(place) = self.place(dice) else {
            return;
        };
        if dice.one_in(10) {
            self.actors[place].socket.set_corked(dice.one_in(2));
        }
        let node = dice.below(world.nodes.len() as u64) as usize;
        let to = SocketAddr::new(ip(node), 10 + dice.below(PORTS) as u16);
        let len = match dice.below(100) {
            0..70 => TAG + dice.below(200) as usize,
            70..90 => TAG + dice.below(5000) as usize,
            90..98 => TAG + dice.below(20_000) as usize,
            _ => 39_000,
        };
        let uid = self.actors[place].uid;
        let bytes = self.checker.compose(uid, len, 0);
        let sent = self.actors[place].socket.try_send_to(&bytes, to);
        self.note_sent(world, uid, to, len, None, sent);
    }

    fn note_sent(
        &mut self,
        world: &World,
        uid: Uid,
        to: SocketAddr,
        len: usize,
        token: Option<u64>,
        sent: Result<u64, SendError>,
    ) {
        match sent {
            Ok(id) => {
                world.note(|| format!("{uid} sends {len} bytes to {to} as {id}"));
                let nobody = !self.actors.iter().any(|actor| actor.addr() == to);
                self.checker.sent(uid, to, len, id, token, nobody);
            }
            Err(SendError::Congested(_)) => self.congested += 1,
            Err(SendError::WouldBlock | SendError::NoRdma(_)) => {}
            Err(error) => panic!("{uid} cannot send to {to}: {error}"),
        }
    }

    /// Somebody lends memory to someone.
    pub(crate) fn lend(&mut self, world: &World, dice: &mut Dice) {
        let Some(place) = self.place(dice) else {
            return;
        };
        let (uid, node) = (self.actors[place].uid, self.actors[place].node);
        let longest = if dice.one_in(4) { 2000 } else { 30 };
        let len = 8 * (1 + dice.below(longest) as usize);
        let flags = MrFlags::from_bits_truncate(dice.below(4) as u8);
        let (number, buffer) = self.memory.prepare(len);
        let Ok(cookie) = self.actors[place]
            .socket
            .get_mr(buffer, Access::all(), flags)
        else {
            return;
        };
        world.note(|| format!("{uid} lends {len} bytes, number {number}, {cookie:?} {flags:?}"));
        let lent = Memory::new_lent(number, uid, len, flags == MrFlags::all());
        self.memory.lend(node, cookie, lent);
        let to = ip(dice.below(world.nodes.len() as u64) as usize);
        let to = SocketAddr::new(to, 10 + dice.below(PORTS) as u16);
        let bytes = self.checker.compose(uid, TAG, number);
        let socket = &self.actors[place].socket;
        let sent = socket.send_with_cookie(bytes.into(), cookie, to);
        self.note_sent(world, uid, to, TAG, None, sent);
    }

    /// Somebody uses memory that was lent.
    pub(crate) fn operate(&mut self, world: &World, dice: &mut Dice) {
        let (Some(place), Some(&known)) = (self.place(dice), dice.pick(&self.known)) else {
            return;
        };
        let uid = self.actors[place].uid;
        self.tokens += 1;
        let token = self.tokens;
        let mut flags = RdmaFlags::NOTIFY;
        flags.set(RdmaFlags::FENCE, dice.one_in(2));
        // Now and then beyond the end.
        let beyond = if dice.one_in(20) { 8 } else { 0 };
        let len = 1 + dice.below(known.len as u64 + beyond);
        let bytes = self.checker.compose(uid, TAG, known.number | DONE);
        let op = RdmaOp::new(known.cookie)
            .flags(flags)
            .token(token)
            .message(bytes);
        let socket = &self.actors[place].socket;
        let sent = match dice.below(5) {
            0 | 1 => {
                let value = 0x80 | dice.below(64) as u8;
                self.memory.will_write(known.node, known.cookie, value);
                let buffer = in_parts(vec![value; len as usize], dice);
                socket
                    .rdma_write(known.owner, op, buffer)
                    .map_err(SendError::from)
            }
            2 | 3 => {
                let buffer = in_parts(vec![0; len as usize], dice);
                socket
                    .rdma_read(known.owner, op, buffer)
                    .map_err(SendError::from)
            }
            _ => socket.atomic(known.owner, op, AtomicOp::FetchAdd { add: 1 }),
        };
        self.operations += u64::from(sent.is_ok());
        let number = known.number;
        world.note(|| format!("{uid} operates on number {number}, token {token}: {sent:?}"));
        self.note_sent(world, uid, known.owner, TAG, Some(token), sent);
    }

    /// Somebody receives for a while.
    pub(crate) fn receive(&mut self, world: &World, dice: &mut Dice) {
        if let Some(place) = self.place(dice) {
            for _ in 0..1 + dice.below(10) {
                if !self.receive_one(world, place) {
                    break;
                }
            }
        }
    }

    /// Everybody receives what there is. Says whether there was anything.
    pub(crate) fn receive_all(&mut self, world: &World) -> bool {
        let mut any = false;
        for place in 0..self.actors.len() {
            while self.receive_one(world, place) {
                any = true;
            }
        }
        any
    }

    fn receive_one(&mut self, world: &World, place: usize) -> bool {
        match self.actors[place].socket.try_recv() {
            Ok(Incoming::Message(message)) => self.take_message(world, place, &message),
            Ok(Incoming::Notification(note)) => self.take_note(world, place, note),
            Ok(_) | Err(_) => return false,
        }
        true
    }

    fn take_message(&mut self, world: &World, place: usize, message: &Received) {
        let actor = &self.actors[place];
        let (uid, node, addr) = (actor.uid, actor.node, actor.addr());
        let bytes = &message.payload;
        let (sender, about) = self.checker.received(uid, addr, message.from, bytes);
        world.note(|| format!("{uid} receives {} bytes of {sender}", bytes.len()));
        if let Some(cookie) = message.cookie {
            let from = self.actors.iter().find(|actor| actor.uid == sender);
            if let Some((from, lent)) = from.and_then(|from| {
                let lent = self.memory.get(from.node, cookie)?;
                Some(((from.node, from.addr()), lent))
            }) && lent.number == about
            {
                self.known.push(Known {
                    node: from.0,
                    owner: from.1,
                    cookie,
                    number: about,
                    len: lent.len,
                });
            }
        }
        if about & DONE != 0 {
            self.check_used(world, uid, node, about & !DONE);
        }
    }

    /// The word that an operation was done must not come before the key of a use-once region that
    /// is to be invalidated is dead.
    fn check_used(&mut self, world: &World, owner: Uid, node: usize, number: u32) {
        let mine = self.memory.of(owner).into_iter().find(|&cookie| {
            let lent = self.memory.get(node, cookie);
            lent.is_some_and(|lent| lent.number == number && lent.once_and_dead)
        });
        if let Some(cookie) = mine {
            assert_dead(&world.nodes[node].hca, cookie);
        }
    }

    fn take_note(&mut self, world: &World, place: usize, note: Notification) {
        let uid = self.actors[place].uid;
        world.note(|| match &note {
            Notification::Rdma { token, status, .. } => format!("{uid}: rdma {token}: {status:?}"),
            other => format!("{uid}: {other:?}"),
        });
        match note {
            Notification::Rdma { token, status, .. } => {
                if status == Status::Success {
                    self.succeeded += 1;
                } else {
                    self.checker.op_failed(uid, token);
                }
            }
            Notification::SendFailed { id, .. } => self.checker.failed(uid, id),
            Notification::PeerRestarted(peer) => self.checker.told_of_restart(uid, peer),
            _ => {}
        }
    }

    /// Somebody frees memory.
    pub(crate) fn free(&mut self, world: &World, dice: &mut Dice) {
        let Some(place) = self.place(dice) else {
            return;
        };
        let mine = self.memory.of(self.actors[place].uid);
        if let Some(&cookie) = dice.pick(&mine) {
            self.free_cookie(world, place, cookie, dice.one_in(2));
        }
    }

    fn free_cookie(&mut self, world: &World, place: usize, cookie: Cookie, invalidate: bool) {
        let (uid, node) = (self.actors[place].uid, self.actors[place].node);
        let freed = self.actors[place].socket.free_mr(cookie, invalidate);
        let dead = matches!(freed, Ok(FreeOutcome::Dead(_)));
        world.note(|| format!("{uid} frees {cookie:?}, invalidate {invalidate}: dead {dead}"));
        match freed {
            Ok(FreeOutcome::Dead(buffer)) => {
                self.memory
                    .back(node, cookie, buffer, &world.nodes[node].hca);
            }
            // In progress; or used up, and on its way back by itself.
            _ => {
                if let Some(lent) = self.memory.get(node, cookie) {
                    lent.freed = true;
                }
            }
        }
    }

    /// Everybody takes back what is back.
    pub(crate) fn reclaim(&mut self, world: &World) {
        for place in 0..self.actors.len() {
            let (uid, node) = (self.actors[place].uid, self.actors[place].node);
            while let Some((cookie, buffer)) = self.actors[place].socket.reclaim() {
                world.note(|| format!("{uid} has {cookie:?} back"));
                self.memory
                    .back(node, cookie, buffer, &world.nodes[node].hca);
            }
        }
        self.memory.check_kept();
    }

    pub(crate) fn cancel(&mut self, world: &World, dice: &mut Dice) {
        if let Some(place) = self.place(dice) {
            let node = dice.below(world.nodes.len() as u64) as usize;
            let to = SocketAddr::new(ip(node), 10 + dice.below(PORTS) as u16);
            world.note(|| format!("{} cancels what goes to {to}", self.actors[place].uid));
            self.actors[place].socket.cancel(to);
        }
    }

    /// Everybody frees everything.
    pub(crate) fn free_all(&mut self, world: &World) {
        for place in 0..self.actors.len() {
            for cookie in self.memory.of(self.actors[place].uid) {
                self.free_cookie(world, place, cookie, true);
            }
        }
    }
}
