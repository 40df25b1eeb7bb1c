//! The side that answers.

use super::Load;
use super::cpu;
use super::load::{Note, Wish};
use super::seat::{Came, Seat, Sent};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The longest wait between two looks at the clock.
const GLANCE: Duration = Duration::from_millis(20);

/// What answering brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Answers that count.
    pub operations: u64,
    /// Time that the processors of this machine were busy, from the first request that counts to the last.
    pub busy: Duration,
}

/// A request without an answer.
struct Due {
    to: SocketAddr,
    note: Note,
    cookie: Option<u64>,
}

/// Answers requests, until the one that says that it is the last is answered.
///
/// # Errors
///
/// A request made no sense, or it took longer than `within`, or the seat failed.
pub fn answer(seat: &mut dyn Seat, load: Load, within: Duration) -> Result<Answered> {
    let deadline = Instant::now() + within;
    let mut answered = Answered::default();
    let mut begun = None;
    let mut due: VecDeque<Due> = VecDeque::new();
    let mut came = Vec::new();
    let mut message = vec![0xa5; load.message];
    loop {
        let wait = if due.is_empty() { GLANCE } else { GLANCE / 10 };
        let mut next = seat.receive(&mut came, wait)?;
        while let Some(request) = next {
            due.push_back(read(request, &came, load)?);
            // An asker that keeps to the load has no more under way.
            ensure!(due.len() <= load.depth, "too many requests at a time");
            next = seat.receive(&mut came, Duration::ZERO)?;
        }
        while let Some(Due { to, note, cookie }) = due.front() {
            if note.wish == Wish::Answer && begun.is_none() {
                begun = Some(cpu::busy()?);
            }
            note.write(&mut message);
            let write = cookie.map(|cookie| (cookie, note.number));
            if seat.answer(*to, &message, write)? == Sent::NotNow {
                break;
            }
            let wish = note.wish;
            due.pop_front();
            match wish {
                Wish::WarmUp => {}
                Wish::Answer => answered.operations += 1,
                Wish::Last => {
                    let begun = begun.context("no request counted")?;
                    answered.busy = cpu::busy()?.saturating_sub(begun);
                    seat.push();
                    return Ok(answered);
                }
            }
        }
        if Instant::now() > deadline {
            bail!(
                "no last request within {within:?}, after {}",
                answered.operations
            );
        }
    }
}

fn read(request: Came, message: &[u8], load: Load) -> Result<Due> {
    let (to, len) = (request.from, message.len());
    let note = Note::read(message).filter(|_| len == load.message);
    let note = note.with_context(|| format!("{len} bytes from {to} that are no request"))?;
    ensure!(
        load.rdma > 0 || request.cookie.is_none(),
        "a cookie, and the load has no RDMA"
    );
    Ok(Due {
        to,
        note,
        cookie: request.cookie,
    })
}
