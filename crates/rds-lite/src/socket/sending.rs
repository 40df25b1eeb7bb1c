//! Sending datagrams.

use crate::proto::{SendError, Sending};
use crate::rdma::Cookie;
use crate::socket::Socket;
use bytes::Bytes;
use mr_core::Time;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a socket can do without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// A message to the destination would be taken.
    Writable,
    /// There is no room for a message to anyone.
    WouldBlock,
    /// Only this destination takes none; others may.
    Congested(SocketAddr),
}

impl Socket {
    /// Sends a datagram of at most 1 MiB. Returns a number that names it in a failure report.
    ///
    /// When it returns the message is queued: it arrives, or a report says that it may not have.
    /// Unless the socket is non-blocking this waits for room, and for a congested destination. The
    /// bytes are copied; [`send_bytes`](Self::send_bytes) does not.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message was not queued.
    pub fn send_to(&self, message: &[u8], to: SocketAddr) -> Result<u64, SendError> {
        self.send_bytes(self.copy_in(message), to)
    }

    /// Sends to the peer that the socket is [connected](Self::connect) to.
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to).
    pub fn send(&self, message: &[u8]) -> Result<u64, SendError> {
        let peer = self.peer_addr().ok_or(SendError::NotConnected)?;
        self.send_to(message, peer)
    }

    /// Sends a datagram without copying it. It is shared with the caller until it has arrived.
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to).
    pub fn send_bytes(&self, message: Bytes, to: SocketAddr) -> Result<u64, SendError> {
        self.send_message(
            &mut Sending {
                payload: message,
                ..Sending::default()
            },
            to,
        )
    }

    /// Sends a datagram with a cookie of this socket, for the peer to use.
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to).
    pub fn send_with_cookie(
        &self,
        message: Bytes,
        cookie: Cookie,
        to: SocketAddr,
    ) -> Result<u64, SendError> {
        let mut sending = Sending {
            payload: message,
            cookie: Some(cookie),
            op: None,
        };
        self.send_message(&mut sending, to)
    }

    /// Sends a datagram if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`SendError::WouldBlock`], or [`SendError::Congested`] where only this destination cannot
    /// take it: a loop that waits to become writable and ignores the difference would spin.
    pub fn try_send_to(&self, message: &[u8], to: SocketAddr) -> Result<u64, SendError> {
        let payload = self.copy_in(message);
        let mut sending = Sending {
            payload,
            ..Sending::default()
        };
        self.try_send_message(&mut sending, to)
    }

    /// What could be sent to `to` right now.
    ///
    /// # Errors
    ///
    /// What no waiting would change.
    pub fn readiness(&self, to: SocketAddr) -> Result<Readiness, SendError> {
        let now = self.host.now();
        let shared = &self.host.shared;
        match shared.with(|core| core.writable(now, self.id, to)) {
            Ok(()) => Ok(Readiness::Writable),
            Err(SendError::WouldBlock) => Ok(Readiness::WouldBlock),
            Err(SendError::Congested(to)) => Ok(Readiness::Congested(to)),
            Err(error) => Err(error),
        }
    }

    /// Waits until a message to `to` would be taken, at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`SendError::TimedOut`], or what no waiting would change.
    pub fn wait_writable(&self, to: SocketAddr, timeout: Duration) -> Result<(), SendError> {
        let deadline = self.deadline(Some(timeout));
        loop {
            let epoch = self.signals.writable.epoch();
            if self.readiness(to)? == Readiness::Writable {
                return Ok(());
            }
            self.wait_to_send(epoch, deadline)?;
        }
    }

    /// Waits until everything that this socket has sent has arrived or was reported, at most
    /// `timeout`. Says whether that is so.
    pub fn wait_sent(&self, timeout: Duration) -> bool {
        let deadline = self.deadline(Some(timeout));
        loop {
            let epoch = self.signals.writable.epoch();
            if self.unsent() == 0 {
                return true;
            }
            if self.wait_to_send(epoch, deadline).is_err() {
                return false;
            }
        }
    }

    /// Messages that have neither arrived nor been reported.
    pub fn unsent(&self) -> usize {
        self.host.shared.lock().unsent(self.id)
    }

    /// Takes back everything queued or unacknowledged for `to`. Each message is reported as
    /// canceled; one that was under way may arrive all the same.
    pub fn cancel(&self, to: SocketAddr) {
        let shared = &self.host.shared;
        shared.with(|core| core.cancel(self.id, Some(to)));
    }

    fn copy_in(&self, message: &[u8]) -> Bytes {
        let copied = &self.host.shared.tallies.copied_in;
        copied.fetch_add(message.len() as u64, Ordering::Relaxed);
        Bytes::copy_from_slice(message)
    }

    pub(crate) fn send_message(
        &self,
        message: &mut Sending,
        to: SocketAddr,
    ) -> Result<u64, SendError> {
        let mut deadline = None;
        loop {
            let epoch = self.signals.writable.epoch();
            match self.try_send_message(message, to) {
                Err(refusal @ (SendError::WouldBlock | SendError::Congested(_)))
                    if self.blocks() =>
                {
                    if matches!(refusal, SendError::Congested(_)) {
                        let waits = &self.host.shared.tallies.congested_waits;
                        waits.fetch_add(1, Ordering::Relaxed);
                    }
                    let timeout = self.options().send_timeout;
                    deadline = deadline.or_else(|| self.deadline(timeout));
                    self.wait_to_send(epoch, deadline)?;
                }
                result => return result,
            }
        }
    }

    pub(crate) fn try_send_message(
        &self,
        message: &mut Sending,
        to: SocketAddr,
    ) -> Result<u64, SendError> {
        let now = self.host.now();
        self.with_core(|core| core.send(now, self.id, to, message))
    }

    fn wait_to_send(&self, epoch: u64, deadline: Option<Time>) -> Result<(), SendError> {
        self.send_held();
        if !self.blocks() && self.host.shared.driving == crate::Driving::Manual {
            return Err(SendError::TimedOut);
        }
        let writable = &self.signals.writable;
        if self.host.shared.wait(writable, epoch, deadline) {
            return Ok(());
        }
        Err(SendError::TimedOut)
    }
}
