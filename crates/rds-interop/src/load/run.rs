//! Sending and receiving.

use super::{Checker, Messages};
use crate::stack::{Endpoint, Refusal};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest wait between two looks at the clock.
const GLANCE: Duration = Duration::from_millis(20);

/// What to do when the destination is congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfCongested {
    /// Wait until it is not.
    Wait,
    /// Send no more.
    Stop,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// How many messages.
    pub messages: u64,
    /// How often the destination was congested.
    pub congested: u64,
    /// How often the socket's buffer was full.
    pub full: u64,
}

/// Sends messages until all are sent, the deadline or `closed`.
///
/// # Errors
///
/// A message was refused for good.
pub fn send(
    endpoint: &dyn Endpoint,
    to: SocketAddr,
    messages: &Messages,
    if_congested: IfCongested,
    deadline: Instant,
    closed: &AtomicBool,
) -> anyhow::Result<Sent> {
    let mut sent = Sent::default();
    let mut message = Vec::new();
    for number in messages.first..messages.end() {
        messages.write(number, &mut message);
        while let Err(refusal) = endpoint.send(&message, to) {
            match refusal {
                Refusal::Failed(_) if closed.load(Ordering::SeqCst) => return Ok(sent),
                Refusal::Failed(error) => return Err(error),
                Refusal::Congested => sent.congested += 1,
                Refusal::Full => sent.full += 1,
            }
            let stop = matches!(refusal, Refusal::Congested) && if_congested == IfCongested::Stop;
            if stop || Instant::now() >= deadline || closed.load(Ordering::SeqCst) {
                return Ok(sent);
            }
            endpoint.wait_to_send(to, &refusal, GLANCE);
        }
        sent.messages += 1;
    }
    Ok(sent)
}

/// Receives until `checker` has all, the deadline or `closed`.
///
/// # Errors
///
/// Something came that should not, or the endpoint failed.
pub fn receive(
    endpoint: &dyn Endpoint,
    checker: &mut Checker,
    deadline: Instant,
    closed: &AtomicBool,
) -> anyhow::Result<()> {
    let mut message = Vec::new();
    while !checker.is_complete() && Instant::now() < deadline && !closed.load(Ordering::SeqCst) {
        let from = match endpoint.receive(&mut message, GLANCE) {
            Ok(from) => from,
            Err(_) if closed.load(Ordering::SeqCst) => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(from) = from {
            checker
                .take(from, &message)
                .map_err(|wrong| anyhow::anyhow!("from {}: {}", wrong.from, wrong.what))?;
        }
    }
    Ok(())
}
