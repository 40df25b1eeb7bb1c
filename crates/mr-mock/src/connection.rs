//! What both ends of a connection share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Requests that a peer has room for.
const ROOM: usize = 4096;

/// One connection (an RC queue pair with its other end).
#[derive(Debug)]
pub(crate) struct Connection {
    number: u32,
    error: AtomicBool,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    messages: VecDeque<Vec<u8>>,
    /// Places kept for messages to come.
    kept: usize,
}

/// A place in the peer's inbox. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Place<'c>(&'c Connection);

impl Connection {
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            error: AtomicBool::new(false),
            inbox: Mutex::default(),
        }
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn is_in_error(&self) -> bool {
        self.error.load(Ordering::Acquire)
    }

    pub(crate) fn set_error(&self, error: bool) {
        self.error.store(error, Ordering::Release);
    }

    /// Keeps a place for a message; `None` if the peer has no room, since it does not receive.
    pub(crate) fn keep_place(&self) -> Option<Place<'_>> {
        let mut inbox = self.inbox();
        if inbox.messages.len() + inbox.kept >= ROOM {
            return None;
        }
        inbox.kept += 1;
        Some(Place(self))
    }

    /// The oldest message.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        self.inbox().messages.pop_front()
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// The peer gets the message.
    pub(crate) fn put(self, message: Vec<u8>) {
        self.0.inbox().messages.push_back(message);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.inbox().kept -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_receive_has_no_room_in_the_end() {
        let connection = Connection::new(1);
        let places: Vec<_> = std::iter::from_fn(|| connection.keep_place()).collect();
        assert_eq!(places.len(), ROOM);
        for (n, place) in places.into_iter().enumerate().skip(1) {
            place.put(n.to_be_bytes().to_vec());
        }
        // The first was given back without a message.
        connection.keep_place().unwrap().put(Vec::new());
        assert!(connection.keep_place().is_none());
        assert_eq!(connection.receive().unwrap(), 1_usize.to_be_bytes());
        assert!(connection.keep_place().is_some());
    }
}
