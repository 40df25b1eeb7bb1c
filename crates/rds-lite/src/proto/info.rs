//! What a host holds, as rds-info shows it.

use crate::proto::connection::Connection;
use crate::proto::outgoing::Outgoing;
use crate::proto::socket::SocketState;
use crate::proto::{Core, LinkState, Path};
use crate::wire::Version;
use std::net::SocketAddr;

/// A socket, as rds-info shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketInfo {
    /// Its address.
    pub bound: SocketAddr,
    /// Its receive buffer.
    pub receive_buffer: usize,
    /// Its send buffer.
    pub send_buffer: usize,
    /// Messages queued to be received.
    pub receive_queue: usize,
    /// Their bytes.
    pub receive_queue_bytes: usize,
    /// Bytes queued or unacknowledged.
    pub send_queue_bytes: usize,
    /// Regions that peers may use.
    pub regions: usize,
}

/// A connection, as rds-info shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Between whom.
    pub path: Path,
    /// Its state.
    pub state: LinkState,
    /// The number that the next message gets.
    pub next_tx_seq: u64,
    /// The number that the next message from the peer has at least.
    pub next_rx_seq: u64,
    /// Messages queued.
    pub send_queue: usize,
    /// Messages sent and not acknowledged.
    pub retransmit_queue: usize,
    /// Links so far.
    pub links: u64,
    /// The version that is spoken, where links negotiate one.
    pub version: Version,
    /// Frames that the peer has receive buffers for, where that is counted.
    pub credits: Option<u32>,
}

/// A queue that messages wait in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// To be sent.
    Send,
    /// Sent, and not acknowledged.
    Retransmit,
    /// To be received.
    Receive,
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageInfo {
    /// Where it waits.
    pub queue: QueueKind,
    /// The socket on this host.
    pub local: SocketAddr,
    /// The socket at the other end.
    pub remote: SocketAddr,
    /// Its number; 0 where it is not known any more.
    pub sequence: u64,
    /// Its bytes.
    pub bytes: usize,
}

impl Core {
    /// All connections.
    pub fn connection_infos(&self) -> Vec<ConnectionInfo> {
        let info = |conn: &Connection| ConnectionInfo {
            path: conn.path,
            state: conn.state,
            next_tx_seq: conn.next_tx,
            next_rx_seq: conn.next_rx,
            send_queue: conn.queue.len(),
            retransmit_queue: conn.unacked.len(),
            links: conn.incarnation - conn.links_before,
            version: conn.version,
            credits: conn.credits.left(),
        };
        self.conns.iter().map(info).collect()
    }

    /// All sockets.
    pub fn socket_infos(&self) -> Vec<SocketInfo> {
        self.sockets.iter().map(|(_, state)| state.info()).collect()
    }

    /// All messages in queues.
    pub fn message_infos(&self) -> Vec<MessageInfo> {
        let mut all = Vec::new();
        for conn in &self.conns {
            let info = |queue, message: &Outgoing| MessageInfo {
                queue,
                local: SocketAddr::new(conn.path.local, message.sport),
                remote: SocketAddr::new(conn.path.remote, message.dport),
                sequence: message.seq,
                bytes: message.payload.len(),
            };
            all.extend(
                conn.queue
                    .iter()
                    .map(|message| info(QueueKind::Send, message)),
            );
            let unacked = conn.unacked.iter();
            all.extend(unacked.map(|message| info(QueueKind::Retransmit, message)));
        }
        for (_, state) in self.sockets.iter() {
            all.extend(state.queue.iter().map(|queued| MessageInfo {
                queue: QueueKind::Receive,
                local: state.addr,
                remote: queued.message.from,
                sequence: 0,
                bytes: queued.message.payload.len(),
            }));
        }
        all
    }
}

impl SocketState {
    pub(crate) fn info(&self) -> SocketInfo {
        SocketInfo {
            bound: self.addr,
            receive_buffer: self.receive_buffer,
            send_buffer: self.send_buffer,
            receive_queue: self.queue.len(),
            receive_queue_bytes: self.queued_bytes,
            send_queue_bytes: self.out_bytes,
            regions: self.regions.len(),
        }
    }
}
