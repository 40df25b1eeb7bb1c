//! The connections of a host by peer, of which there is a limited number.

use crate::proto::connection::Connection;
use crate::proto::{Core, LinkState, Path, SendError};

impl Core {
    /// The connection of `path`, made if there is none. At the limit a peer that has been away is
    /// forgotten for it.
    ///
    /// # Errors
    ///
    /// [`SendError::TooManyPeers`]: all connections are in use.
    pub(crate) fn connection(&mut self, path: Path) -> Result<&mut Connection, SendError> {
        let known = self.paths.get(&path).copied();
        let index = match known {
            Some(index) => index,
            None => self.make(path)?,
        };
        let conns = self.conns.len();
        self.conns
            .get_mut(index as usize)
            .ok_or(SendError::TooManyPeers(conns))
    }

    fn make(&mut self, path: Path) -> Result<u32, SendError> {
        let full = self.conns.len() >= self.config.max_connections;
        let index = if full {
            self.forget()?
        } else {
            self.conns.len() as u32
        };
        let mut conn = Connection::new(index, path, &self.kind, &self.config);
        conn.generation = self.generation;
        conn.down_since = self.now;
        match self.conns.get_mut(index as usize) {
            Some(place) => {
                // No link of this place ever has the name of an earlier one.
                conn.incarnation = place.incarnation;
                conn.links_before = place.incarnation;
                *place = conn;
            }
            None => self.conns.push(conn),
        }
        self.paths.insert(path, index);
        Ok(index)
    }

    /// Gives up what is known of one peer that nothing is under way to, and returns the place.
    ///
    /// Lost are the numbers of both sides. If such a peer came back, it would take new messages for old
    /// ones, and send again what this host has delivered and could not acknowledge. So this host is
    /// another to it then: whoever is met from now on is told another generation, and who knew the
    /// old one reports what it cannot know the fate of, as when a host begins anew. A kernel over verbs knows no
    /// generations: its new messages are told from old ones by the opening, as after a restart, but it may
    /// say again what it has said.
    ///
    /// Therefore a peer goes first with which there is nothing to lose, and then the one that has been
    /// away for the longest.
    fn forget(&mut self) -> Result<u32, SendError> {
        let rests = self.conns.iter().filter(|conn| conn.rests());
        let Some(conn) = rests.min_by_key(|conn| (conn.has_history(), conn.down_since)) else {
            self.counters.lite_refused_connections += 1;
            return Err(SendError::TooManyPeers(self.conns.len()));
        };
        let (index, path) = (conn.index, conn.path);
        if conn.has_history() {
            // Odd as it was, so never none.
            self.generation = self.generation.wrapping_add(2);
        }
        tracing::debug!(%path, "forgotten: another peer needs the place");
        self.counters.lite_forgotten_peers += 1;
        self.paths.remove(&path);
        Ok(index)
    }
}

impl Connection {
    /// Whether there is no link, and no use for one.
    fn rests(&self) -> bool {
        let waits = self.dial_at.is_some() || !self.waiters.is_empty();
        self.state == LinkState::Down && !self.is_needed() && !waits
    }

    /// Whether anything with a number has gone either way.
    fn has_history(&self) -> bool {
        self.next_rx != 0 || self.last_tx != 0
    }
}
