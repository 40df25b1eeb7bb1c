//! From a message to the socket that it is for.

use crate::proto::{
    Buf, Core, Event, FailReason, Notification, Received, Sending, SockId, outgoing,
};
use crate::rdma::{Cookie, MrFlags};
use crate::wire::{Ext, ExtArea, Header, PROBE_PORT};
use mr_core::RemoteKey;
use std::net::SocketAddr;

impl Core {
    /// A new message from a peer.
    pub(crate) fn deliver(&mut self, index: usize, header: &Header, buf: Buf) {
        let path = self.conns[index].path;
        if header.dport == 0 {
            return self.answer(index, header);
        }
        if header.dport == PROBE_PORT {
            return;
        }
        let to = SocketAddr::new(path.local, header.dport);
        let from = SocketAddr::new(path.remote, header.sport);
        self.hand_over(to, from, &header.ext, buf);
    }

    fn hand_over(&mut self, to: SocketAddr, from: SocketAddr, ext: &ExtArea, buf: Buf) {
        let Some(&sock) = self.ports.get(&to) else {
            self.counters.recv_drop_no_sock += 1;
            return;
        };
        let cookie = self.act_on(sock, ext);
        let Some(state) = self.sockets.get_mut(sock) else {
            self.counters.recv_drop_dead_sock += 1;
            return;
        };
        self.counters.recv_queued += 1;
        self.counters.recv_bytes_added_to_sock += buf.len() as u64;
        state.push(Received {
            from,
            payload: buf,
            cookie,
        });
        if state.has_message() {
            self.events.push(Event::Readable(sock));
        }
        self.update_congestion(sock);
    }

    /// Does what extension headers ask for. Returns the cookie that one may carry.
    fn act_on(&mut self, sock: SockId, ext: &ExtArea) -> Option<Cookie> {
        let mut cookie = None;
        for record in ext {
            match record {
                Ok(Ext::Rdma { rkey }) => self.key_used(sock, rkey),
                Ok(Ext::RdmaDest { rkey, offset }) => {
                    cookie = Some(Cookie::new(RemoteKey::from_bits(rkey), offset));
                }
                Ok(Ext::RdmaBytes { bytes, .. }) => {
                    self.counters.recv_rdma_bytes += u64::from(bytes);
                }
                Ok(_) => {}
                Err(_) => self.counters.lite_unknown_ext += 1,
            }
        }
        cookie
    }

    /// The peer says that it has used a key of this socket. A use-once region ends with that; one
    /// that is to be invalidated holds everything behind it until its key is dead.
    fn key_used(&mut self, sock: SockId, rkey: u32) {
        let Some(state) = self.sockets.get_mut(sock) else {
            return;
        };
        let Some(region) = state.regions.take_used(rkey) else {
            return;
        };
        let (cookie, lease) = (region.cookie, region.lease);
        self.events
            .push(if region.flags.contains(MrFlags::INVALIDATE) {
                state.await_death(cookie);
                Event::Invalidate(sock, cookie, lease)
            } else {
                Event::Release(sock, cookie, lease)
            });
    }

    /// A message to an address of this host: nothing goes over any wire.
    pub(crate) fn deliver_locally(&mut self, sock: SockId, to: SocketAddr, message: Sending) {
        let Some(from) = self.address(sock) else {
            return;
        };
        let ext = outgoing::ext_of(&message);
        if to.port() == 0 {
            self.counters.recv_ping += 1;
            self.counters.send_pong += 1;
            let pinged = SocketAddr::new(to.ip(), 0);
            return self.hand_over(from, pinged, &ExtArea::EMPTY, Buf::empty());
        }
        let Some(mut buf) = self.buffers.get(message.payload.len()) else {
            // The socket's receive buffer is a part of the budget; only a host whose applications
            // hold on to all of it gets here.
            self.counters.lite_shed += 1;
            self.notify(
                sock,
                Notification::SendFailed {
                    to,
                    id: self.next_id - 1,
                    reason: FailReason::NoBuffer,
                },
            );
            return;
        };
        buf.bytes_mut().copy_from_slice(&message.payload);
        self.hand_over(to, from, &ext, buf);
    }
}
