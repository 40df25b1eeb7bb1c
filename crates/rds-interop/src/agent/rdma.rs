//! Steps with memory.

use crate::load::{content, fingerprint};
use crate::stack::{Arrived, End, Endpoint, Loan, Operation, Term};
use crate::step::{Reply, Transfer};
use anyhow::{Result, bail};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest wait between two looks at the clock.
pub(super) const GLANCE: Duration = Duration::from_millis(20);

pub(super) fn lend(
    endpoint: &dyn Endpoint,
    to: SocketAddr,
    (seed, len): (u64, usize),
    (skew, term): (usize, Term),
) -> Result<Reply> {
    let loan = Loan {
        content: content(seed, len),
        skew,
        term,
    };
    let message = seed.to_be_bytes();
    endpoint.lend(loan, &message, to).map(Reply::Lent)
}

/// Waits for the cookie of the memory that was made from `seed`.
pub(super) fn borrow(
    endpoint: &dyn Endpoint,
    seed: u64,
    deadline: Instant,
    closed: &AtomicBool,
) -> Result<Reply> {
    match message(endpoint, seed, deadline, closed)? {
        Some(Some(cookie)) => Ok(Reply::Lent(cookie)),
        Some(None) => bail!("a message without its cookie"),
        None => Ok(Reply::Nothing),
    }
}

/// Waits for the message behind an operation.
pub(super) fn hear(
    endpoint: &dyn Endpoint,
    token: u64,
    deadline: Instant,
    closed: &AtomicBool,
) -> Result<Reply> {
    match message(endpoint, token, deadline, closed)? {
        Some(_) => Ok(Reply::Done),
        None => Ok(Reply::Nothing),
    }
}

/// The message of this number, of which there is the cookie that came with it.
fn message(
    endpoint: &dyn Endpoint,
    number: u64,
    deadline: Instant,
    closed: &AtomicBool,
) -> Result<Option<Option<u64>>> {
    while Instant::now() < deadline && !closed.load(Ordering::SeqCst) {
        match endpoint.next(GLANCE)? {
            Some(Arrived::Message {
                payload, cookie, ..
            }) if payload == number.to_be_bytes() => return Ok(Some(cookie)),
            Some(other) => bail!("message {number} was to come, and not {}", shown(&other)),
            None => {}
        }
    }
    Ok(None)
}

/// Does an operation, and waits for its end.
pub(super) fn transfer(
    endpoint: &dyn Endpoint,
    to: SocketAddr,
    transfer: &Transfer,
    deadline: Instant,
    closed: &AtomicBool,
) -> Result<Reply> {
    let bytes = match transfer.write {
        Some(seed) => content(seed, transfer.len),
        None => vec![0; transfer.len],
    };
    let piece = transfer.len.div_ceil(transfer.pieces.max(1)).max(1);
    let token = transfer.token;
    let operation = Operation {
        cookie: transfer.cookie,
        offset: transfer.offset,
        write: transfer.write.is_some(),
        pieces: bytes.chunks(piece).map(<[u8]>::to_vec).collect(),
        token,
    };
    endpoint.operate(operation, &token.to_be_bytes(), to)?;
    while Instant::now() < deadline && !closed.load(Ordering::SeqCst) {
        match endpoint.next(GLANCE)? {
            Some(Arrived::Ended {
                token: whose,
                end,
                local,
            }) if whose == token => {
                return Ok(Reply::Ended(end, fingerprint(&local)));
            }
            Some(other) => bail!("operation {token} was to end, and not {}", shown(&other)),
            None => {}
        }
    }
    Ok(Reply::Ended(End::NotYet, 0))
}

pub(super) fn shown(arrived: &Arrived) -> String {
    match arrived {
        Arrived::Message { payload, from, .. } => {
            format!("a message of {} bytes from {from}", payload.len())
        }
        Arrived::Ended { token, end, .. } => {
            let how = if *end == End::Success {
                "well"
            } else {
                "badly"
            };
            format!("operation {token} end {how}")
        }
    }
}
