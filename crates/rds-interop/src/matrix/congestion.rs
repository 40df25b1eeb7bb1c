//! A receiver that stops reading.

use super::case::Pair;
use super::remote::RemoteSocket;
use super::traffic::{mixed_messages, transfer};
use crate::load::{IfCongested, Messages, Sizes};
use anyhow::{Result, bail};

/// The receive buffer of the one that stops.
const BUFFER: usize = 64 << 10;

/// What is sent to it, at most: a sender that is not told by then never is.
const FLOOD: u64 = 20_000;
const LENGTH: usize = 4096;

/// What others and the recovered one get.
const AFTERWARDS: u64 = 200;

/// The sender is told, others get what is for them, and when it reads again all goes on.
pub(super) fn stalled(pair: &Pair<'_>) -> Result<String> {
    let from = RemoteSocket::bind(pair, pair.from)?;
    let other = RemoteSocket::bind(pair, pair.from)?;
    let stalled = RemoteSocket::bind_with(pair.to, pair.ports.next(pair.to.ip), Some(BUFFER))?;
    let reads = RemoteSocket::bind(pair, pair.to)?;

    let flood = Messages {
        seed: 4,
        first: 0,
        count: FLOOD,
        sizes: Sizes::Cycle(vec![LENGTH]),
    };
    let sent = from.send(pair, stalled.addr, &flood, IfCongested::Stop)?;
    if sent.congested == 0 {
        bail!(
            "{} messages of {LENGTH} bytes were sent to a buffer of {BUFFER}, and nobody was told",
            sent.messages
        );
    }
    if sent.messages * (LENGTH as u64) < BUFFER as u64 {
        bail!(
            "congested after {} messages of {LENGTH} bytes",
            sent.messages
        );
    }
    // Another socket is told, too; and both may send to whoever reads.
    let none = other.send(pair, stalled.addr, &flood, IfCongested::Stop)?;
    if none.messages != 0 {
        bail!("another socket of the same host was not told");
    }
    transfer(pair, &from, &reads, &mixed_messages(5, AFTERWARDS))?;
    transfer(pair, &other, &reads, &mixed_messages(6, AFTERWARDS))?;

    let arrived = flood.from(0, sent.messages);
    stalled.receive_all(pair, &[(from.addr, arrived)])?;
    let more = flood.from(sent.messages, AFTERWARDS);
    transfer(pair, &from, &stalled, &more)?;
    Ok(format!(
        "told after {} KiB",
        (sent.messages * LENGTH as u64) >> 10
    ))
}
