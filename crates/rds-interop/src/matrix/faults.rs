//! Cases in which hosts, connections and networks fail.

use super::case::Pair;
use super::remote::{RemoteSocket, SHORT, order};
use super::traffic::{both, join, mixed_messages, shown, transfer};
use crate::agent::Peer;
use crate::load::{IfCongested, Order, Receipt};
use crate::step::{NetworkFault, Step};
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

pub(super) const LOST: [NetworkFault; 2] = [NetworkFault::Loss(1), NetworkFault::Loss(10)];
pub(super) const DOUBLED: [NetworkFault; 2] =
    [NetworkFault::Duplication(1), NetworkFault::Duplication(10)];
pub(super) const REORDERED: [NetworkFault; 2] =
    [NetworkFault::Reordering(1), NetworkFault::Reordering(10)];

/// Messages each way over a network that misbehaves.
const OVER_FAULTS: u64 = 2000;

/// Messages around the restart of a host or the end of a connection: before, at the time of it, afterwards.
const BEFORE: u64 = 200;
const DURING: u64 = 5000;
const AFTER: u64 = 500;

/// How long messages flow before something is ended.
pub(super) const FLOW: Duration = Duration::from_millis(300);

/// Both begin anew, and `from` is the first to say something: also where the other has to connect.
pub(super) fn first_contact(pair: &Pair<'_>) -> Result<String> {
    restart(pair.from.peer)?;
    restart(pair.to.peer)?;
    let to = RemoteSocket::bind(pair, pair.to)?;
    let from = RemoteSocket::bind(pair, pair.from)?;
    let receipt = transfer(pair, &from, &to, &mixed_messages(7, BEFORE))?;
    transfer(&pair.back(), &to, &from, &mixed_messages(8, BEFORE))?;
    Ok(shown(&receipt))
}

/// The receiving host begins anew while messages flow. The old one gets a begin of them, the new one,
/// after one gap, the rest to the last.
pub(super) fn receiver_restarts(pair: &Pair<'_>) -> Result<String> {
    let from = RemoteSocket::bind(pair, pair.from)?;
    let addr = pair.ports.next(pair.to.ip);
    let old = RemoteSocket::bind_with(pair.to, addr, None)?;
    let all = mixed_messages(9, DURING + AFTER);

    thread::scope(|scope| {
        let sending = scope.spawn(|| from.send_all(pair, addr, &all.from(0, DURING)));
        let receiving =
            scope.spawn(|| old.receive(&[(from.addr, all.clone())], Order::Exact, pair.left()));
        thread::sleep(FLOW);
        restart(pair.to.peer)?;
        let before = first(join(receiving)?.context("before the restart")?);

        let new = RemoteSocket::bind_with(pair.to, addr, None)?;
        // What the old one has had must not come again.
        let next = before.last.map_or(0, |last| last + 1);
        let rest = all.from(next, all.end() - next);
        let later = scope.spawn(|| {
            join(sending)??;
            from.send_all(pair, addr, &all.from(DURING, AFTER))
        });
        let received = new.receive(&[(from.addr, rest)], Order::Increasing, pair.check()?)?;
        join(later)??;
        let after = first(received);
        if after.last != Some(all.end() - 1) || after.gaps > 1 {
            bail!("after the restart: {after:?}");
        }
        let lost = all.count - before.messages - after.messages;
        Ok(format!(
            "{} before, {} after, {lost} lost with the host",
            before.messages, after.messages
        ))
    })
}

/// The sending host begins anew while messages flow. What arrives of the old one is a begin of what it
/// sent; behind it, all that the new one sends.
pub(super) fn sender_restarts(pair: &Pair<'_>) -> Result<String> {
    let addr = pair.ports.next(pair.from.ip);
    let old = RemoteSocket::bind_with(pair.from, addr, None)?;
    let to = RemoteSocket::bind(pair, pair.to)?;
    let all = mixed_messages(10, DURING + AFTER);
    let before = all.from(0, DURING);

    thread::scope(|scope| {
        // It ends with its host.
        let sending = scope.spawn(|| old.send(pair, to.addr, &before, IfCongested::Wait));
        let receiving =
            scope.spawn(|| to.receive(&[(addr, all.clone())], Order::Increasing, pair.left()));
        thread::sleep(FLOW);
        restart(pair.from.peer)?;
        let sent = join(sending)?.context("before the restart")?;

        let new = RemoteSocket::bind_with(pair.from, addr, None)?;
        new.send_all(pair, to.addr, &all.from(DURING, AFTER))?;
        let receipt = first(join(receiving)??);
        if receipt.last != Some(all.end() - 1) || receipt.messages < AFTER || receipt.gaps > 1 {
            bail!("{receipt:?}");
        }
        let before = receipt.messages - AFTER;
        Ok(format!(
            "{before} of {} before, {AFTER} after",
            sent.messages
        ))
    })
}

/// Connections end while messages flow, and no host does: everything arrives, once and in order.
pub(super) fn connection_cut(pair: &Pair<'_>) -> Result<String> {
    let from = RemoteSocket::bind(pair, pair.from)?;
    let to = RemoteSocket::bind(pair, pair.to)?;
    let messages = mixed_messages(11, DURING);
    thread::scope(|scope| {
        let transferring = scope.spawn(|| transfer(pair, &from, &to, &messages));
        let mut cuts = 0;
        while !transferring.is_finished() && cuts < 5 {
            thread::sleep(FLOW);
            order(pair.cutter, &Step::Cut)?;
            cuts += 1;
        }
        let receipt = join(transferring)??;
        Ok(format!("{} over {cuts} cuts", shown(&receipt)))
    })
}

/// Messages each way over a network that misbehaves on the way out of either host.
pub(super) fn network(pair: &Pair<'_>, fault: NetworkFault) -> Result<String> {
    suffer(pair, fault, || {
        let receipt = both(pair, &mixed_messages(12, OVER_FAULTS))?;
        Ok(format!("{} each way", shown(&receipt)))
    })
}

/// Does something while the network misbehaves on the way out of either host.
pub(super) fn suffer(
    pair: &Pair<'_>,
    fault: NetworkFault,
    what: impl FnOnce() -> Result<String>,
) -> Result<String> {
    let peers = [pair.from.peer, pair.to.peer];
    let set = |fault| {
        peers
            .into_iter()
            .map(|peer| order(peer, &Step::Network { fault }))
            .collect::<Result<Vec<()>>>()
    };
    set(Some(fault))?;
    let result = what();
    set(None)?;
    result
}

/// What has come from the only sender.
fn first(receipts: Vec<(SocketAddr, Receipt)>) -> Receipt {
    receipts
        .first()
        .map(|(_, receipt)| *receipt)
        .unwrap_or_default()
}

pub(super) fn restart(peer: &Peer) -> Result<()> {
    peer.call(&Step::Restart, 2 * SHORT).map(drop)
}
