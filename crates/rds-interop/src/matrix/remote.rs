//! Sockets of an agent.

use super::case::{Pair, Side};
use crate::agent::Peer;
use crate::load::{IfCongested, Messages, Order, Receipt, Sent};
use crate::step::{Reply, Step};
use anyhow::{Result, bail};
use std::net::SocketAddr;
use std::time::Duration;

/// The longest that a step takes which has nothing to wait for.
pub(super) const SHORT: Duration = Duration::from_secs(20);

/// A socket of an agent. Dropping it closes it.
pub(super) struct RemoteSocket<'a> {
    pub(super) peer: &'a Peer,
    pub(super) name: u32,
    pub(super) addr: SocketAddr,
}

impl<'a> RemoteSocket<'a> {
    /// Binds a socket to a port of its own.
    pub(super) fn bind(pair: &Pair<'a>, side: Side<'a>) -> Result<Self> {
        Self::bind_with(side, pair.ports.next(side.ip), None)
    }

    /// Binds a socket to this address.
    pub(super) fn bind_with(
        side: Side<'a>,
        addr: SocketAddr,
        receive_buffer: Option<usize>,
    ) -> Result<Self> {
        let name = u32::from(addr.port());
        let step = Step::Bind {
            socket: name,
            addr,
            send_buffer: None,
            receive_buffer,
        };
        match side.peer.call(&step, SHORT)? {
            Reply::Bound(addr) => Ok(Self {
                peer: side.peer,
                name,
                addr,
            }),
            other => bail!("a socket was bound, and the answer is {other:?}"),
        }
    }

    /// Sends messages; gives up when the case is over.
    pub(super) fn send(
        &self,
        pair: &Pair<'_>,
        to: SocketAddr,
        messages: &Messages,
        if_congested: IfCongested,
    ) -> Result<Sent> {
        let left = pair.check()?;
        let step = Step::Send {
            socket: self.name,
            to,
            messages: messages.clone(),
            if_congested,
            within: millis(left),
        };
        match self.peer.call(&step, left)? {
            Reply::Sent(sent) => Ok(sent),
            other => bail!("messages were sent, and the answer is {other:?}"),
        }
    }

    /// Sends all of these messages.
    pub(super) fn send_all(
        &self,
        pair: &Pair<'_>,
        to: SocketAddr,
        messages: &Messages,
    ) -> Result<Sent> {
        let sent = self.send(pair, to, messages, IfCongested::Wait)?;
        if sent.messages != messages.count {
            bail!(
                "{} of {} messages were sent in time ({} times congested, {} times full)",
                sent.messages,
                messages.count,
                sent.congested,
                sent.full
            );
        }
        Ok(sent)
    }

    /// Receives messages of several senders; gives up after `within`.
    pub(super) fn receive(
        &self,
        from: &[(SocketAddr, Messages)],
        order: Order,
        within: Duration,
    ) -> Result<Vec<(SocketAddr, Receipt)>> {
        let step = Step::Receive {
            socket: self.name,
            from: from.to_vec(),
            order,
            within: millis(within),
        };
        match self.peer.call(&step, within)? {
            Reply::Received(receipts) => Ok(receipts),
            other => bail!("messages were received, and the answer is {other:?}"),
        }
    }

    /// Receives all of these messages, in order.
    pub(super) fn receive_all(
        &self,
        pair: &Pair<'_>,
        from: &[(SocketAddr, Messages)],
    ) -> Result<Vec<(SocketAddr, Receipt)>> {
        let receipts = self.receive(from, Order::Exact, pair.check()?)?;
        for ((_, messages), (from, receipt)) in from.iter().zip(&receipts) {
            if receipt.messages != messages.count {
                bail!(
                    "{} of {} messages from {from} have come in time",
                    receipt.messages,
                    messages.count
                );
            }
        }
        Ok(receipts)
    }

    /// Sends pings; returns the microseconds of the slowest.
    pub(super) fn ping(&self, pair: &Pair<'_>, to: std::net::IpAddr, count: u64) -> Result<u64> {
        let left = pair.check()?;
        let step = Step::Ping {
            socket: self.name,
            to,
            count,
            within: millis(left),
        };
        match self.peer.call(&step, left)? {
            Reply::Pinged(slowest) => Ok(slowest),
            other => bail!("pings were sent, and the answer is {other:?}"),
        }
    }
}

impl RemoteSocket<'_> {
    /// Closes it, which also ends the steps on it.
    pub(super) fn close(&self) {
        // One that is gone with its agent, or by a restart, is closed.
        let _ = self.peer.call(&Step::Close { socket: self.name }, SHORT);
    }
}

impl Drop for RemoteSocket<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Has an agent do something that has no answer.
pub(super) fn order(peer: &Peer, step: &Step) -> Result<()> {
    match peer.call(step, SHORT)? {
        Reply::Done => Ok(()),
        other => bail!("something was done, and the answer is {other:?}"),
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
