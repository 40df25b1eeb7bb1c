//! What two sides say of themselves when a link is made: over fabrics that carry something with a dial
//! (the private data of an InfiniBand connection manager). Others greet over the link.

use crate::proto::connection::Greeting;
use crate::proto::credits::Credits;
use crate::proto::{Core, DropReason, LinkId, Path};
use crate::wire::{Connect, Generations, Rejection, Version};
use mr_core::Time;
use std::net::IpAddr;

impl Core {
    /// A peer asks for a link on `path`, and says `introduction` of itself. With `Ok` it gets one of
    /// this name, and the bytes as the answer; [`opened`](Self::opened) or [`lost`](Self::lost)
    /// follows.
    ///
    /// # Errors
    ///
    /// It gets none, and the bytes as the reason: the path is none of this host, this side's own dial
    /// has precedence, there are too many connections, or there is no common version.
    pub fn asked(
        &mut self,
        now: Time,
        path: Path,
        introduction: &[u8],
    ) -> Result<(LinkId, Vec<u8>), Vec<u8>> {
        self.now = self.now.max(now);
        let peer = self.read_introduction(path, introduction)?;
        let index = self.admit_peer(path).ok_or_else(Rejection::encode)?;
        self.make_way(index);
        let conn = &mut self.conns[index];
        conn.incarnation += 1;
        conn.dialling = false;
        let link = conn.link();
        let Some((peer, version)) = peer else {
            return Ok((link, Vec::new()));
        };
        conn.version = version;
        self.meet(now, index, &peer);
        // Who does not count its buffers does not count this side's.
        let counts = self.config.flow_control && peer.credit > 0;
        self.conns[index].granted = if counts { peer.credit } else { 0 };
        Ok((link, self.introduce(index, version, counts)))
    }

    /// What a peer that asks says, with the version to speak with it; `Ok(None)` where nothing is said
    /// with a dial.
    fn read_introduction(
        &mut self,
        path: Path,
        introduction: &[u8],
    ) -> Result<Option<(Connect, Version)>, Vec<u8>> {
        if self.kind.greeting == Greeting::Probe {
            return Ok(None);
        }
        let peer = Connect::decode(introduction).filter(|peer| is_between(peer, path));
        let version = peer.as_ref().and_then(Connect::choose);
        match peer.zip(version) {
            Some(known) => Ok(Some(known)),
            None => {
                self.counters.lite_bad_introductions += 1;
                Err(Rejection::encode())
            }
        }
    }

    /// What this side says when it dials.
    pub(crate) fn introduction(&self, index: usize) -> Vec<u8> {
        let version = self.conns[index].proposed;
        self.introduce(index, version, self.config.flow_control)
    }

    fn introduce(&self, index: usize, version: Version, counts: bool) -> Vec<u8> {
        let conn = &self.conns[index];
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (conn.path.local, conn.path.remote)
        else {
            return Vec::new();
        };
        if self.kind.greeting == Greeting::Probe {
            return Vec::new();
        }
        let connect = Connect {
            source,
            destination,
            version,
            minors: Version::MINORS,
            tos: 0,
            ack: conn.acknowledgement(),
            credit: if counts { self.kind.receive_ring } else { 0 },
            generations: Some(Generations {
                own: conn.generation,
                peers: conn.peer_generation.unwrap_or(0),
            }),
        };
        connect.encode()
    }

    /// What the peer says to this side's dial. Says whether it can be worked with.
    pub(crate) fn answered(&mut self, now: Time, index: usize, introduction: &[u8]) -> bool {
        if self.kind.greeting == Greeting::Probe {
            return true;
        }
        let conn = &mut self.conns[index];
        conn.granted = 0;
        let Some(peer) = Connect::decode(introduction) else {
            // A peer that says nothing takes what was proposed.
            conn.version = conn.proposed;
            return true;
        };
        let Some(version) = peer.choose().filter(|_| is_between(&peer, conn.path)) else {
            self.counters.lite_bad_introductions += 1;
            return false;
        };
        conn.version = version;
        if self.config.flow_control {
            conn.granted = peer.credit;
        }
        self.meet(now, index, &peer);
        true
    }

    /// Takes note of who the peer is and of what has arrived there.
    fn meet(&mut self, now: Time, index: usize, peer: &Connect) {
        let generation = peer.generations.map(|generations| generations.own);
        let own = self.conns[index].generation;
        self.meet_generation(index, generation);
        // An acknowledgement counts for the one whose messages it is about.
        let about_this = peer
            .generations
            .is_none_or(|generations| generations.peers == own);
        if about_this {
            self.acknowledged(now, index, peer.ack);
        }
    }

    /// A peer does not want the link that this side has dialled, and says `reason`. Another version is
    /// proposed next time, if there is one.
    pub fn rejected(&mut self, now: Time, link: LinkId, reason: &[u8]) {
        let Some(index) = self.current(link) else {
            return;
        };
        let rejection = Rejection::decode(reason);
        tracing::debug!(path = %self.conns[index].path, ?rejection, "a dial was rejected");
        self.counters.lite_dials_rejected += 1;
        if rejection == Rejection::Incompatible {
            self.conns[index].proposed = Version::V3_1;
        }
        self.lost(now, link);
    }

    /// What a link that has just been opened begins with.
    pub(crate) fn begin_link(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        conn.proposed = self.config.version;
        conn.credits = Credits::new(conn.granted, self.kind.receive_ring);
    }

    /// A link whose peer cannot be worked with is given up.
    pub(crate) fn decline(&mut self, now: Time, index: usize) {
        let link = self.conns[index].link();
        tracing::debug!(path = %self.conns[index].path, "{}", DropReason::Incompatible);
        self.lost(now, link);
    }
}

/// Whether the addresses that a peer says are those that it dials between. One that says none is who
/// the fabric says it is.
fn is_between(peer: &Connect, path: Path) -> bool {
    let agrees = |said: std::net::Ipv4Addr, is: IpAddr| said.is_unspecified() || is == said;
    agrees(peer.source, path.remote) && agrees(peer.destination, path.local)
}
