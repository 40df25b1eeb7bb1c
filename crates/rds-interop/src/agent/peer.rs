//! An agent, seen from whoever tells it what to do.

use super::read_line;
use crate::step::{Reply, Step};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long the agent may take beyond the bound of the step: it must be the first to give up.
const SLACK: Duration = Duration::from_secs(15);

/// How long it may take to be there.
const ARRIVAL: Duration = Duration::from_secs(10);

/// An agent.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What its stack is called.
    pub name: &'static str,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Peer {
    /// Has it do a step that takes at most `within`, and waits for the end.
    ///
    /// # Errors
    ///
    /// It cannot be reached, or has failed, or takes too long.
    pub fn call(&self, step: &Step, within: Duration) -> Result<Reply> {
        match self.ask(step, within) {
            Ok(Reply::Failed(error)) => bail!("{}: {error}", self.name),
            Ok(reply) => Ok(reply),
            Err(error) => {
                let waiting = self.blocked();
                Err(error.context(format!("{} at {}{waiting}", self.name, self.addr)))
            }
        }
    }

    /// What its steps are waiting for, if it still says so.
    fn blocked(&self) -> String {
        match self.ask(&Step::Blocked, Duration::ZERO) {
            Ok(Reply::Blocked(steps)) if !steps.is_empty() => {
                format!(" (whose steps are in {})", steps.join("; "))
            }
            _ => String::new(),
        }
    }

    fn ask(&self, step: &Step, within: Duration) -> Result<Reply> {
        let mut line = serde_json::to_vec(step)?;
        line.push(b'\n');
        let mut stream = self.connect()?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SLACK))?;
        stream.set_read_timeout(Some(within + SLACK))?;
        stream.write_all(&line)?;
        let line = read_line(&stream).context("no answer")?;
        Ok(serde_json::from_slice(&line)?)
    }

    fn connect(&self) -> Result<TcpStream> {
        let deadline = Instant::now() + ARRIVAL;
        loop {
            match TcpStream::connect_timeout(&self.addr, ARRIVAL) {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}
