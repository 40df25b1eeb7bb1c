//! This host's end of a connection to a peer, which outlives the queue pairs that it goes through.

use crate::arena::ArenaBuffer;
use crate::inbox::{Found, Message};
use crate::link::Link;
use crate::peer_keys::PeerKeys;
use crate::post::{Remote, Work};
use crate::recovery::Connector;
use crate::wait::Patience;
use crate::{Domain, Error, ProtocolError, Status};
use mr_core::RemoteKey;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// The settings of an [`Endpoint`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Work requests that may be under way, at least 4. Half of it is the longest chain of
    /// invalidations. Defaults to 1024.
    pub send_depth: u32,
    /// Messages that may wait to be received, at least 1. Defaults to 64.
    pub receive_depth: u32,
    /// Bytes of the longest message. Messages go inline, so this is small: defaults to 128.
    pub message_bytes: u32,
    /// 4.096 µs × 2 to this power until a packet that was not acknowledged goes again. Defaults
    /// to 14 (67 ms).
    pub ack_timeout: u8,
    /// How often it goes again before the connection is lost, at most 7. Defaults to 7.
    pub retries: u8,
    /// How long a call waits for the HCA, or for a peer that does not receive, before the connection
    /// is given up. Longer than all retries together; defaults to 5 s.
    pub timeout: Duration,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            send_depth: 1024,
            receive_depth: 64,
            message_bytes: 128,
            ack_timeout: 14,
            retries: 7,
            timeout: Duration::from_secs(5),
        }
    }
}

impl EndpointConfig {
    pub(crate) fn clamped(self) -> Self {
        Self {
            send_depth: self.send_depth.max(4),
            receive_depth: self.receive_depth.max(1),
            message_bytes: self.message_bytes.max(1),
            retries: self.retries.min(7),
            ack_timeout: self.ack_timeout.clamp(1, 31),
            ..self
        }
    }
}

/// This host's end of a reliable connection.
///
/// When a queue pair fails, the next call that needs one builds a new one: see [`Connector`]. All
/// calls block, in bounded time, and may be made from any thread.
pub struct Endpoint {
    pub(crate) domain: Arc<Domain>,
    pub(crate) config: EndpointConfig,
    /// `None`: the other end connects.
    pub(crate) connector: Option<Box<dyn Connector>>,
    pub(crate) link: RwLock<Option<Arc<Link>>>,
    /// Held while a new queue pair is built.
    pub(crate) recovery: Mutex<()>,
    pub(crate) keys: PeerKeys,
    pub(crate) connections: AtomicU64,
}

impl Endpoint {
    /// The domain.
    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The settings, within their bounds.
    pub const fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// How many queue pairs have been connected so far: one more than failures that were
    /// recovered from.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// It may have arrived or not; the connection is rebuilt at the next use.
    pub fn send(&self, message: &[u8]) -> Result<(), Error> {
        self.check_message(message)?;
        self.run("sending a message", Work::Send { message })
    }

    /// Posts messages and does not wait for them, as chained maps do with their requests: in chains as
    /// long as the send queue takes, with one doorbell for each. Waits only for room in the queue.
    ///
    /// # Errors
    ///
    /// Of the first chain that was not sent; those behind it were not, either. Whether what was
    /// posted arrives is not said: if it does not, the connection is lost, and the next call that
    /// waits says so.
    pub fn post(&self, messages: &[impl AsRef<[u8]>]) -> Result<(), Error> {
        for message in messages {
            self.check_message(message.as_ref())?;
        }
        let link = self.link()?;
        let queue = link.queue();
        for chain in messages.chunks(queue.longest_chain()) {
            let works = chain.iter().map(|message| Work::Send {
                message: message.as_ref(),
            });
            let mut patience = Patience::new(self.config.timeout);
            // SAFETY: messages are copied at once.
            let posted = unsafe { queue.post(works, false, &mut patience) };
            posted.map_err(|trouble| {
                trouble.into_error("posting messages", chain.len(), queue, &patience)
            })?;
        }
        Ok(())
    }

    /// Sends a message, and has the peer's HCA invalidate `key`, which the peer has bound for this
    /// connection.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send). That the peer's HCA does not know the key breaks the connection
    /// at the other end, after this call has succeeded.
    pub fn send_invalidating(&self, message: &[u8], key: RemoteKey) -> Result<(), Error> {
        self.check_message(message)?;
        let key = key.bits();
        self.run(
            "sending with invalidation",
            Work::SendInvalidating { message, key },
        )
    }

    /// RDMA write of the first `len` bytes of `from` to `addr` of the peer, through `key`.
    ///
    /// # Errors
    ///
    /// [`Error::ConnectionLost`] with [`Status::RemoteAccess`] if the key is not honoured (any
    /// more). Some of the bytes may have been written.
    pub fn write(
        &self,
        from: &ArenaBuffer,
        len: usize,
        addr: u64,
        key: RemoteKey,
    ) -> Result<(), Error> {
        let local = from.local(transfer_len(from, len)?);
        let remote = Remote {
            addr,
            key: key.bits(),
        };
        self.run("RDMA write", Work::Write { local, remote })
    }

    /// RDMA read of `len` bytes at `addr` of the peer, through `key`, into the start of `into`,
    /// which comes back with them.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write). The buffer comes back unless the HCA may still write to it: then
    /// it is leaked.
    pub fn read(
        &self,
        into: ArenaBuffer,
        len: usize,
        addr: u64,
        key: RemoteKey,
    ) -> Result<ArenaBuffer, (Error, Option<ArenaBuffer>)> {
        let what = "RDMA read";
        let len = match transfer_len(&into, len) {
            Ok(len) => len,
            Err(error) => return Err((error, Some(into))),
        };
        let link = match self.link() {
            Ok(link) => link,
            Err(error) => return Err((error, Some(into))),
        };
        let local = into.local(len);
        let remote = Remote {
            addr,
            key: key.bits(),
        };
        match self.run_on(&link, what, Work::Read { local, remote }) {
            Ok(()) => Ok(into),
            Err(error) => {
                // The queue pair is in error; when all its requests have been flushed, it has let
                // go of the buffer.
                let mut patience = Patience::new(self.config.timeout);
                let free = !link.queue().has_failed() || link.queue().drain(&mut patience);
                let back = if free {
                    Some(into)
                } else {
                    std::mem::forget(into);
                    None
                };
                Err((error, back))
            }
        }
    }

    /// The next message of the peer; `None` if none comes within `limit`.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`] if the peer has broken the protocol; unless it is
    /// [`ProtocolError::Refused`] the connection goes on. Else the connection is lost.
    pub fn receive(&self, limit: Duration) -> Result<Option<Message>, Error> {
        let link = self.link()?;
        let Some(inbox) = link.inbox() else {
            return Ok(None);
        };
        let mut patience = Patience::new(limit);
        loop {
            match inbox.fetch(link.queue().pair(), &self.keys) {
                Found::Message(message) => return Ok(Some(message)),
                Found::Breach(breach) => return Err(breach.into()),
                Found::Failed(status) => {
                    link.queue().give_up();
                    return Err(match status {
                        Status::Flushed => Error::ConnectionLost {
                            what: "receiving",
                            status,
                        },
                        status => ProtocolError::Refused(status).into(),
                    });
                }
                Found::Nothing if !patience.pause() => return Ok(None),
                Found::Nothing => {}
            }
        }
    }

    /// Takes note of keys that the peer has had invalidated, without fetching messages.
    pub(crate) fn look_for_invalidations(&self) {
        let link = self
            .link
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(link) = link
            && let Some(inbox) = link.inbox()
        {
            inbox.look(link.queue().pair(), &self.keys);
        }
    }

    /// Ends the connection: queue pair and completion queues are freed.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while others hold the endpoint (a backend does), or windows are bound on
    /// its queue pair.
    pub fn close(self: Arc<Self>) -> Result<(), Error> {
        let what = "the queue pair";
        let endpoint = Arc::try_unwrap(self).map_err(|shared| Error::Busy {
            what,
            bound: format!(
                "{} others hold its endpoint",
                Arc::strong_count(&shared) - 1
            ),
        })?;
        let link = endpoint
            .link
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(link) = link else {
            return Ok(());
        };
        link.queue().give_up();
        Arc::try_unwrap(link).map(drop).map_err(|link| Error::Busy {
            what,
            bound: format!("{} windows are bound on it", Arc::strong_count(&link) - 1),
        })
    }

    pub(crate) fn check_message(&self, message: &[u8]) -> Result<(), Error> {
        let max = self.config.message_bytes as usize;
        if message.len() > max {
            return Err(Error::TooLong {
                len: message.len() as u64,
                max: max as u64,
            });
        }
        Ok(())
    }

    fn run(&self, what: &'static str, work: Work<'_>) -> Result<(), Error> {
        let link = self.link()?;
        self.run_on(&link, what, work)
    }

    /// Posts one request and waits for it.
    fn run_on(&self, link: &Link, what: &'static str, work: Work<'_>) -> Result<(), Error> {
        let queue = link.queue();
        let mut patience = Patience::new(self.config.timeout);
        // SAFETY: a message is copied at once. Memory of an arena stays registered for as long as
        // the buffer, or a buffer's arena, lives: a read owns its buffer (see `read`), and what a
        // write that was given up still reads of a buffer that went back is wrong but harmless.
        let posted = unsafe { queue.post([work].into_iter(), true, &mut patience) };
        posted
            .and_then(|number| queue.wait(number, &mut patience))
            .map_err(|trouble| trouble.into_error(what, 1, queue, &patience))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("device", &self.domain.device().name())
            .field("config", &self.config)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

fn transfer_len(buffer: &ArenaBuffer, len: usize) -> Result<u32, Error> {
    let max = buffer.len().min(1 << 30);
    match u32::try_from(len) {
        Ok(len) if len as usize <= max => Ok(len),
        _ => Err(Error::TooLong {
            len: len as u64,
            max: max as u64,
        }),
    }
}
