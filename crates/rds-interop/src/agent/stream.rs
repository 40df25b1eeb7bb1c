//! Many operations on one loan, and the messages behind them.

use super::rdma::{GLANCE, shown};
use crate::load::{self, Heard, IfCongested, Messages, Sizes, Stream, Streamed};
use crate::stack::{Arrived, End, Endpoint, Operation};
use crate::step::Reply;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Does operations until one does not succeed; ends when all that were begun have ended, and says so to
/// the peer. With `closed` it leaves them alone.
pub(super) fn run(
    endpoint: &dyn Endpoint,
    to: SocketAddr,
    stream: &Stream,
    deadline: Instant,
    closed: &AtomicBool,
) -> Result<Reply> {
    if !stream.is_sound() {
        bail!("these operations cannot be verified");
    }
    let mut streamed = Streamed::default();
    // Those that run; the window is counted from the first of them.
    let mut running = BTreeSet::new();
    loop {
        if closed.load(Ordering::SeqCst) {
            return Ok(Reply::Streamed(streamed));
        }
        let first = running.first().copied().unwrap_or(streamed.begun);
        let goes_on = streamed.refused + streamed.dropped == 0 && streamed.begun < stream.count;
        if goes_on && streamed.begun < first + stream.depth {
            begin(endpoint, to, stream, streamed.begun)?;
            running.insert(streamed.begun);
            streamed.begun += 1;
            continue;
        }
        if running.is_empty() {
            break;
        }
        if Instant::now() >= deadline {
            bail!("{} operations have not ended, {streamed:?}", running.len());
        }
        match endpoint.next(GLANCE)? {
            Some(Arrived::Ended { token, end, local }) => {
                let nth = token.wrapping_sub(stream.first);
                if !running.remove(&nth) {
                    bail!("operation {nth} has ended, which did not run");
                }
                match end {
                    End::Success if local != stream.bytes(nth) => {
                        bail!("operation {nth} moved other bytes, {streamed:?}");
                    }
                    End::Success => streamed.succeeded += 1,
                    End::RemoteError => streamed.refused += 1,
                    End::Dropped => streamed.dropped += 1,
                    End::Other | End::NotYet => bail!("operation {nth} has ended with {end:?}"),
                }
            }
            Some(other) => bail!("operations were to end, and not {}", shown(&other)),
            None => {}
        }
    }
    let last = Messages {
        seed: 0,
        first: stream.token(stream.count),
        count: 1,
        sizes: Sizes::Cycle(vec![size_of::<u64>()]),
    };
    load::send(endpoint, to, &last, IfCongested::Wait, deadline, closed)?;
    Ok(Reply::Streamed(streamed))
}

fn begin(endpoint: &dyn Endpoint, to: SocketAddr, stream: &Stream, nth: u64) -> Result<()> {
    let range = stream.range(nth);
    let write = stream.writes(nth);
    let bytes = if write {
        stream.bytes(nth)
    } else {
        vec![0; range.len()]
    };
    let token = stream.token(nth);
    let operation = Operation {
        cookie: stream.cookie,
        offset: range.start as u64,
        write,
        pieces: vec![bytes],
        token,
    };
    endpoint.operate(operation, &token.to_be_bytes(), to)
}

/// Waits for the messages behind operations, until there is the last, the deadline or `closed`.
pub(super) fn follow(
    endpoint: &dyn Endpoint,
    stream: &Stream,
    deadline: Instant,
    closed: &AtomicBool,
) -> Result<Reply> {
    let mut heard = Heard::default();
    let mut next = 0;
    while !heard.end && Instant::now() < deadline && !closed.load(Ordering::SeqCst) {
        let payload = match endpoint.next(GLANCE)? {
            Some(Arrived::Message { payload, .. }) => payload,
            Some(other) => bail!("messages were to come, and not {}", shown(&other)),
            None => continue,
        };
        let number = Messages::number_of(&payload).filter(|_| payload.len() == size_of::<u64>());
        let Some(nth) = number.map(|token| token.wrapping_sub(stream.first)) else {
            bail!("{} bytes instead of a token", payload.len());
        };
        if nth < next || nth > stream.count {
            bail!("message {nth}, where {next} or a later one should come");
        }
        next = nth + 1;
        heard.end = nth == stream.count;
        if !heard.end {
            heard.prefix += u64::from(heard.prefix == nth);
            heard.messages += 1;
        }
    }
    Ok(Reply::Heard(heard))
}
