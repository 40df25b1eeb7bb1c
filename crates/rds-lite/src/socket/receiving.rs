//! Receiving datagrams and notifications.

use crate::proto::{Core, Notification, Received};
use crate::rdma::Cookie;
use crate::socket::Socket;
use mr_core::Time;
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a socket receives.
#[derive(Debug)]
#[non_exhaustive]
pub enum Incoming {
    /// Something to know. Comes before messages.
    Notification(Notification),
    /// A message.
    Message(Received),
}

/// Nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// There is nothing at this moment.
    #[error("nothing to receive: wait until the socket is readable")]
    WouldBlock,
    /// Nothing came in time.
    #[error("nothing was received in time")]
    TimedOut,
    /// The socket or its host is closed.
    #[error("the socket is closed")]
    Closed,
}

impl Socket {
    /// Receives the next notification or message, as `recvmsg` of the kernel does: notifications
    /// first. Waits for one unless the socket is non-blocking.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn recv(&self) -> Result<Incoming, RecvError> {
        self.wait_for(next)
    }

    /// Receives the next notification or message if there is one.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn try_recv(&self) -> Result<Incoming, RecvError> {
        self.look_for(next)
    }

    /// Receives the next message, and leaves notifications for [`recv`](Self::recv) or
    /// [`notification`](Self::notification). Its buffer goes back to the host when it is dropped.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn recv_message(&self) -> Result<Received, RecvError> {
        self.wait_for(Core::receive)
    }

    /// Receives the next message if there is one.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn try_recv_message(&self) -> Result<Received, RecvError> {
        self.look_for(Core::receive)
    }

    /// Receives the next message into `buffer`, as much of it as fits. Returns the length of the
    /// whole message, and who sent it.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn recv_from(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), RecvError> {
        let message = self.recv_message()?;
        let len = message.payload.len().min(buffer.len());
        buffer[..len].copy_from_slice(&message.payload[..len]);
        let copied = &self.host.shared.tallies.copied_out;
        copied.fetch_add(len as u64, Ordering::Relaxed);
        Ok((message.payload.len(), message.from))
    }

    /// The next notification, if there is one.
    pub fn notification(&self) -> Option<Notification> {
        let shared = &self.host.shared;
        shared.with(|core| core.next_note(self.id))
    }

    /// Waits until there is something to receive, at most `timeout`. Says whether there is.
    pub fn wait_readable(&self, timeout: Duration) -> bool {
        let deadline = self.deadline(Some(timeout));
        loop {
            let epoch = self.signals.readable.epoch();
            match self.host.shared.lock().is_readable(self.id) {
                Some(false) => {}
                readable => return readable.is_some(),
            }
            self.send_held();
            let readable = &self.signals.readable;
            if !self.host.shared.wait(readable, epoch, deadline) {
                return false;
            }
        }
    }

    /// A buffer that this socket has released and whose key is dead by now, with its cookie.
    pub fn reclaim(&self) -> Option<(Cookie, Vec<u8>)> {
        let take = || {
            let mut returned = self
                .signals
                .returned
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            returned.pop_front()
        };
        take().or_else(|| {
            self.host.shared.memory.reclaim(&self.host.shared);
            take()
        })
    }

    /// Cookies that this socket has released and whose keys may still be honoured.
    pub fn stale_cookies(&self) -> Vec<Cookie> {
        self.host.shared.memory.reclaim(&self.host.shared);
        self.host.shared.memory.stale_of(self.id)
    }

    pub(super) fn look_for<T>(
        &self,
        take: impl Fn(&mut Core, crate::proto::SockId) -> Option<T>,
    ) -> Result<T, RecvError> {
        self.host.shared.with(|core| match take(core, self.id) {
            Some(taken) => Ok(taken),
            None if core.is_open(self.id) => Err(RecvError::WouldBlock),
            None => Err(RecvError::Closed),
        })
    }

    fn wait_for<T>(
        &self,
        take: impl Fn(&mut Core, crate::proto::SockId) -> Option<T>,
    ) -> Result<T, RecvError> {
        let mut deadline: Option<Time> = None;
        loop {
            let epoch = self.signals.readable.epoch();
            match self.look_for(&take) {
                Err(RecvError::WouldBlock) if self.blocks() => {}
                result => return result,
            }
            self.send_held();
            let timeout = self.options().receive_timeout;
            deadline = deadline.or_else(|| self.deadline(timeout));
            let readable = &self.signals.readable;
            if !self.host.shared.wait(readable, epoch, deadline) {
                return Err(RecvError::TimedOut);
            }
        }
    }
}

pub(super) fn next(core: &mut Core, sock: crate::proto::SockId) -> Option<Incoming> {
    match core.next_note(sock) {
        Some(note) => Some(Incoming::Notification(note)),
        None => core.receive(sock).map(Incoming::Message),
    }
}
