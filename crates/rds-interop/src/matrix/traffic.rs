//! Cases in which nothing goes wrong.

use super::case::Pair;
use super::remote::RemoteSocket;
use crate::load::{Messages, Receipt, Sizes};
use anyhow::{Context, Result};
use std::thread;

/// Pings per case.
const PINGS: u64 = 20;

/// Around the fragment of RDS/IB, and the longest there is.
const LENGTHS: &[usize] = &[0, 1, 4095, 4096, 4097, 65_536, 1 << 20];

/// How often each of the lengths is sent.
const ROUNDS: u64 = 2;

const MIXED: u64 = 10_000;

/// The longest of mixed messages.
const LONGEST: usize = 65_536;

/// Sockets per side, and messages from each to each.
const SOCKETS: usize = 4;
const PER_SOCKET: u64 = 100;

/// Messages of many lengths; the content depends on `seed`.
pub(super) fn mixed_messages(seed: u64, count: u64) -> Messages {
    Messages {
        seed,
        first: 0,
        count,
        sizes: Sizes::Mixed(LONGEST),
    }
}

pub(super) fn pings(pair: &Pair<'_>) -> Result<String> {
    let socket = RemoteSocket::bind(pair, pair.from)?;
    // Whoever is pinged must be bound to something, or a stack in user space is not there.
    let _answers = RemoteSocket::bind(pair, pair.to)?;
    let slowest = socket.ping(pair, pair.to.ip, PINGS)?;
    Ok(format!("slowest of {PINGS}: {slowest} us"))
}

pub(super) fn sizes(pair: &Pair<'_>) -> Result<String> {
    let messages = Messages {
        seed: 1,
        first: 0,
        count: ROUNDS * LENGTHS.len() as u64,
        sizes: Sizes::Cycle(LENGTHS.to_vec()),
    };
    one_way(pair, &messages).map(|receipt| shown(&receipt))
}

pub(super) fn mixed(pair: &Pair<'_>) -> Result<String> {
    one_way(pair, &mixed_messages(2, MIXED)).map(|receipt| shown(&receipt))
}

pub(super) fn both_ways(pair: &Pair<'_>) -> Result<String> {
    let messages = mixed_messages(3, MIXED / 5);
    both(pair, &messages).map(|receipt| format!("{} each way", shown(&receipt)))
}

/// These messages, each way, at the same time, between the same sockets.
pub(super) fn both(pair: &Pair<'_>, messages: &Messages) -> Result<Receipt> {
    let near = RemoteSocket::bind(pair, pair.from)?;
    let far = RemoteSocket::bind(pair, pair.to)?;
    thread::scope(|scope| {
        let there = scope.spawn(|| transfer(pair, &near, &far, messages));
        let back = transfer(&pair.back(), &far, &near, messages);
        let there = join(there)?;
        back.context("back")?;
        there
    })
}

/// These messages, from one socket to another.
fn one_way(pair: &Pair<'_>, messages: &Messages) -> Result<Receipt> {
    let from = RemoteSocket::bind(pair, pair.from)?;
    let to = RemoteSocket::bind(pair, pair.to)?;
    transfer(pair, &from, &to, messages)
}

/// Sends and receives at the same time.
pub(super) fn transfer(
    pair: &Pair<'_>,
    from: &RemoteSocket<'_>,
    to: &RemoteSocket<'_>,
    messages: &Messages,
) -> Result<Receipt> {
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let sent = from.send_all(pair, to.addr, messages);
            if sent.is_err() {
                // Nobody needs to wait for the rest.
                to.close();
            }
            sent
        });
        let received = to.receive_all(pair, &[(from.addr, messages.clone())]);
        match (join(sending)?, received) {
            (Ok(_), received) => {
                let receipt = received?.first().map(|(_, receipt)| *receipt);
                Ok(receipt.unwrap_or_default())
            }
            (Err(error), Ok(_)) => Err(error),
            (Err(error), Err(received)) => Err(error.context(format!("{received:#}"))),
        }
    })
}

/// Every socket of one side to every socket of the other.
pub(super) fn sockets(pair: &Pair<'_>) -> Result<String> {
    let bind = |side| {
        (0..SOCKETS)
            .map(|_| RemoteSocket::bind(pair, side))
            .collect::<Result<Vec<_>>>()
    };
    let (senders, receivers) = (bind(pair.from)?, bind(pair.to)?);
    // The content depends on the sender alone, so a message that takes another's place is seen.
    let of = |sender: &RemoteSocket<'_>| mixed_messages(u64::from(sender.addr.port()), PER_SOCKET);
    thread::scope(|scope| {
        let mut sending = Vec::new();
        for sender in &senders {
            for receiver in &receivers {
                sending
                    .push(scope.spawn(move || sender.send_all(pair, receiver.addr, &of(sender))));
            }
        }
        let receiving: Vec<_> = receivers
            .iter()
            .map(|receiver| {
                let expected: Vec<_> = senders.iter().map(|from| (from.addr, of(from))).collect();
                scope.spawn(move || receiver.receive_all(pair, &expected))
            })
            .collect();
        for received in receiving {
            join(received)??;
        }
        for sent in sending {
            join(sent)??;
        }
        Ok(format!("{PER_SOCKET} messages each"))
    })
}

pub(super) fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> Result<T> {
    thread
        .join()
        .map_err(|_| anyhow::anyhow!("a thread of the matrix has panicked"))
}

pub(super) fn shown(receipt: &Receipt) -> String {
    let kib = receipt.bytes >> 10;
    format!("{} messages, {kib} KiB", receipt.messages)
}
