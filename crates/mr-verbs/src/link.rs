//! One connection: a queue pair with both its sides. It is used until it fails, and then replaced.

use crate::endpoint::EndpointConfig;
use crate::inbox::Inbox;
use crate::qp::{QpAddress, QueuePair, Retries};
use crate::send_queue::SendQueue;
use crate::sys::QpSize;
use crate::{Domain, Error};
use std::sync::Arc;

/// A connection. It is shared by whoever uses it and by every type 2 window bound on it, so that a
/// queue pair goes only after its windows; by then it has long been in error.
pub(crate) struct Link {
    // First the queue pair, then the buffers that it receives into.
    queue: SendQueue,
    inbox: Option<Inbox>,
}

impl Link {
    /// Makes a connection that leads nowhere yet.
    pub(crate) fn new(domain: &Arc<Domain>, config: &EndpointConfig) -> Result<Self, Error> {
        let inline_bytes = config.message_bytes;
        let pair = QueuePair::new(
            domain,
            QpSize {
                sends: config.send_depth,
                receives: config.receive_depth,
                inline_bytes,
            },
        )?;
        if pair.size().inline_bytes < inline_bytes {
            return Err(Error::TooLong {
                len: u64::from(inline_bytes),
                max: u64::from(pair.size().inline_bytes),
            });
        }
        let inbox = Inbox::new(domain, config.receive_depth, config.message_bytes)?;
        let link = Self {
            queue: SendQueue::new(pair),
            inbox: Some(inbox),
        };
        if let Some(inbox) = &link.inbox {
            inbox.post_all(link.queue.pair())?;
        }
        Ok(link)
    }

    /// Makes a connection of a queue pair with itself: it does what the local HCA does for itself,
    /// and no peer can break it.
    pub(crate) fn with_itself(domain: &Arc<Domain>, depth: u32) -> Result<Self, Error> {
        let size = QpSize {
            sends: depth,
            receives: 1,
            inline_bytes: 0,
        };
        let link = Self {
            queue: SendQueue::new(QueuePair::new(domain, size)?),
            inbox: None,
        };
        let retries = Retries {
            ack_timeout: 14,
            count: 7,
        };
        link.queue.pair().connect(&link.address(), retries)?;
        Ok(link)
    }

    pub(crate) fn connect(&self, peer: &QpAddress, config: &EndpointConfig) -> Result<(), Error> {
        let retries = Retries {
            ack_timeout: config.ack_timeout,
            count: config.retries,
        };
        self.queue.pair().connect(peer, retries)
    }

    pub(crate) const fn address(&self) -> QpAddress {
        self.queue.pair().address()
    }

    pub(crate) const fn queue(&self) -> &SendQueue {
        &self.queue
    }

    pub(crate) const fn inbox(&self) -> Option<&Inbox> {
        self.inbox.as_ref()
    }
}
