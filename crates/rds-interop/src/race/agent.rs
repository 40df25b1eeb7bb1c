//! Takes seats and answers as it is told, over one TCP connection at a time.
//!
//! It trusts whoever connects: it belongs on a network of its own.

use super::modules::Modules;
use super::{Answered, Load, Method, Seat, answer};
use crate::step::LINE_MAX;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The longest that an order may take.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a client may think between two orders, and how long the agent may be out of reach.
const PATIENCE: Duration = Duration::from_secs(120);
const ARRIVAL: Duration = Duration::from_secs(10);

/// What the agent is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    /// Have the kernel's RDS loaded, or not.
    Kernel(bool),
    /// Take a seat.
    Sit(Method, SocketAddr, Load),
    /// Answer until the last request, at most so many milliseconds.
    Answer(u64),
    /// Leave the seat.
    Leave,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Done,
    Answered(Answered),
    Failed(String),
}

/// Serves for ever.
///
/// # Errors
///
/// It cannot listen there.
pub fn serve(addr: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(addr).with_context(|| format!("cannot listen at {addr}"))?;
    let mut modules = Modules::default();
    loop {
        let (stream, _) = listener.accept().context("cannot accept")?;
        // A client that goes away, or talks nonsense, is followed by the next.
        let _ = Line::new(stream).and_then(|line| attend(line, &mut modules));
    }
}

fn attend(mut line: Line, modules: &mut Modules) -> Result<()> {
    let mut seat: Option<(Box<dyn Seat>, Load)> = None;
    while let Some(order) = line.read()? {
        let done = obey(order, modules, &mut seat);
        let outcome = done.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        line.write(&outcome)?;
    }
    Ok(())
}

fn obey(
    order: Order,
    modules: &mut Modules,
    seat: &mut Option<(Box<dyn Seat>, Load)>,
) -> Result<Outcome> {
    match order {
        Order::Kernel(loaded) => modules.set(loaded)?,
        Order::Sit(method, addr, load) => {
            // The old one first: it may have the address.
            *seat = None;
            *seat = Some((method.sit(addr, load)?, load));
        }
        Order::Answer(within) => {
            let (seat, load) = seat.as_mut().context("there is no seat")?;
            let within = Duration::from_millis(within).min(LONGEST);
            return Ok(Outcome::Answered(answer(&mut **seat, *load, within)?));
        }
        Order::Leave => *seat = None,
    }
    Ok(Outcome::Done)
}

/// The agent, seen from whoever orders it about.
pub(super) struct Agent(Line);

impl Agent {
    /// Connects to it.
    pub(super) fn reach(addr: SocketAddr) -> Result<Self> {
        let deadline = Instant::now() + ARRIVAL;
        loop {
            match TcpStream::connect_timeout(&addr, ARRIVAL) {
                Ok(stream) => return Ok(Self(Line::new(stream)?)),
                Err(error) if Instant::now() > deadline => {
                    return Err(error).with_context(|| format!("no agent at {addr}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Gives an order, and does not wait.
    pub(super) fn begin(&mut self, order: &Order) -> Result<()> {
        self.0.write(order)
    }

    /// Waits for the end of an order.
    pub(super) fn end(&mut self) -> Result<Outcome> {
        match self.0.read()?.context("the agent has gone away")? {
            Outcome::Failed(error) => bail!("the agent: {error}"),
            outcome => Ok(outcome),
        }
    }

    /// Gives an order that has no answer, and waits for its end.
    pub(super) fn call(&mut self, order: &Order) -> Result<()> {
        self.begin(order)?;
        match self.end()? {
            Outcome::Done => Ok(()),
            other => bail!("the agent has done something, and the answer is {other:?}"),
        }
    }
}

/// A connection with lines of JSON, of bounded length.
struct Line(BufReader<TcpStream>);

impl Line {
    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The next one; none at the end.
    fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = Vec::new();
        let mut bounded = self.0.by_ref().take(LINE_MAX as u64);
        bounded.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }

    fn write(&mut self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        Ok(self.0.get_mut().write_all(&line)?)
    }
}
