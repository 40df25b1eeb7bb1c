//! A receiver that stops reading.

use super::case::Pair;
use super::remote::{RemoteSocket, SHORT, millis};
use super::traffic::{mixed_messages, transfer};
use crate::load::{IfCongested, Messages, Sizes};
use crate::step::{Reply, Step};
use anyhow::{Result, bail};
use std::time::Duration;

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

/// More than a host has buffers for, though its bytes would fit: a message that is longer than 4 KiB takes
/// up 64 KiB of the 128 MiB. Few enough that no queue is full.
const SCATTERED: u64 = 3000;
const SCATTERED_LENGTH: usize = 4097;
const ROOMY: usize = 64 << 20;

/// How long the receiver does not read.
const PAUSE: Duration = Duration::from_secs(3);

/// The sender is not told that anything is full, and what the receiver has no buffers for arrives all the
/// same when it reads again: in order, and once.
pub(super) fn no_buffers(pair: &Pair<'_>) -> Result<String> {
    let from = RemoteSocket::bind(pair, pair.from)?;
    let stalled = RemoteSocket::bind_with(pair.to, pair.ports.next(pair.to.ip), Some(ROOMY))?;
    let flood = Messages {
        seed: 7,
        first: 0,
        count: SCATTERED,
        sizes: Sizes::Cycle(vec![SCATTERED_LENGTH]),
    };
    let step = Step::Send {
        socket: from.name,
        to: stalled.addr,
        messages: flood.clone(),
        if_congested: IfCongested::Stop,
        within: millis(PAUSE),
    };
    let sent = match from.peer.call(&step, SHORT)? {
        Reply::Sent(sent) => sent,
        other => bail!("messages were sent, and the answer is {other:?}"),
    };
    if sent.congested > 0 {
        bail!("congested after {} messages", sent.messages);
    }
    stalled.receive_all(pair, &[(from.addr, flood.from(0, sent.messages))])?;
    transfer(
        pair,
        &from,
        &stalled,
        &flood.from(sent.messages, AFTERWARDS),
    )?;
    Ok(format!("{} messages in the meantime", sent.messages))
}
