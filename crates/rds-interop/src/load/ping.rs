//! Pings.

use crate::stack::{Endpoint, Refusal};
use anyhow::{Result, bail};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Sends `count` pings, each when the one before was answered. Returns the longest time that one took.
///
/// # Errors
///
/// One was not answered before the deadline, or could not be sent, or something else came.
pub fn ping(
    endpoint: &dyn Endpoint,
    to: IpAddr,
    count: u64,
    deadline: Instant,
) -> Result<Duration> {
    let to = SocketAddr::new(to, 0);
    let mut answer = Vec::new();
    let mut longest = Duration::ZERO;
    for number in 1..=count {
        let start = Instant::now();
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Err(refusal) = endpoint.send(&[], to) {
            if let Refusal::Failed(error) = refusal {
                return Err(error.context("a ping was refused"));
            }
            if left().is_zero() {
                bail!("ping {number} of {count} could not be sent: {refusal:?}");
            }
            endpoint.wait_to_send(to, &refusal, left());
        }
        loop {
            match endpoint.receive(&mut answer, left())? {
                Some(from) if from == to && answer.is_empty() => break,
                Some(from) => bail!("{} bytes from {from} instead of a pong", answer.len()),
                None if left().is_zero() => bail!("ping {number} of {count} was not answered"),
                None => {}
            }
        }
        longest = longest.max(start.elapsed());
    }
    Ok(longest)
}
