//! Congestion: which ports take no more, here and at the peers.

use crate::proto::{Core, Event, LinkState, Notification, SockId};
use crate::wire::CongestionMap;
use mr_core::Time;
use std::net::SocketAddr;

/// How far the pause between two repetitions of a map grows.
const MAX_GROWTH: u32 = 64;

impl Core {
    /// Sets or clears the bit of a socket: above its receive buffer, below half of it.
    pub(crate) fn update_congestion(&mut self, sock: SockId) {
        let Some(state) = self.sockets.get_mut(sock) else {
            return;
        };
        let full =
            state.queued_bytes > state.receive_buffer || state.queue.len() > self.config.max_queued;
        let low = state.queued_bytes < state.receive_buffer.div_ceil(2)
            && state.queue.len() <= self.config.max_queued / 2;
        if (full && !state.congested) || (low && state.congested) {
            state.congested = full;
            let addr = state.addr;
            self.set_local_bit(addr, full);
        }
    }

    /// Announces that a port of this host is congested, or no longer.
    pub(crate) fn set_local_bit(&mut self, addr: SocketAddr, congested: bool) {
        let map = self.local_maps.entry(addr.ip()).or_default();
        if !map.set(addr.port(), congested) {
            return;
        }
        for index in 0..self.conns.len() {
            let conn = &mut self.conns[index];
            if conn.path.local == addr.ip() && conn.state == LinkState::Up {
                conn.map_due = true;
                conn.map_pause = self.config.map_refresh;
                let at = self.now + conn.map_pause;
                conn.map_at = Some(at);
                self.arm(at);
                self.wants_transmit(index as u32);
            }
        }
        if !congested {
            let starved = std::mem::take(&mut self.starved);
            self.events.extend(starved.into_iter().map(Event::Writable));
        }
    }

    /// Tells a peer that has just greeted.
    pub(crate) fn announce_map(&mut self, now: Time, index: usize) {
        let refresh = self.config.map_refresh;
        let conn = &mut self.conns[index];
        let map = self.local_maps.get(&conn.path.local);
        conn.map_due = true;
        conn.map_pause = refresh;
        // One that was never anything but empty cannot mislead if it is lost.
        conn.map_at = map.map(|_| now + refresh);
    }

    /// Sends a map again in case the last one was lost.
    pub(crate) fn refresh_map(&mut self, now: Time, index: usize) {
        let longest = self.config.map_refresh * MAX_GROWTH;
        let conn = &mut self.conns[index];
        conn.map_pause = (conn.map_pause * 2).min(longest);
        conn.map_at = Some(now + conn.map_pause);
        conn.map_due = true;
        self.wants_transmit(index as u32);
    }

    /// A peer's map; `None` if it is none.
    pub(crate) fn map_received(&mut self, index: usize, bytes: Option<&[u8]>) {
        let Some(map) = bytes.and_then(CongestionMap::decode) else {
            self.counters.lite_bad_map += 1;
            return;
        };
        self.counters.cong_update_received += 1;
        self.conns[index].peer_map = map;
        self.wake_waiters(index);
    }

    /// Tells those who wait for a port that is no longer congested.
    pub(crate) fn wake_waiters(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        let remote = conn.path.remote;
        let map = &conn.peer_map;
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut conn.waiters)
            .into_iter()
            .partition(|&(_, port)| map.contains(port));
        conn.waiters = stay;
        for (sock, port) in go {
            self.notify_once(
                sock,
                Notification::Uncongested(SocketAddr::new(remote, port)),
            );
            self.events.push(Event::Writable(sock));
        }
    }
}
