//! Does the steps that come over TCP connections, one step each, on one stack.
//!
//! It trusts whoever connects: it belongs on a network of its own.

mod blocked;
mod network;
mod peer;
mod rdma;
mod stream;
mod stress;
mod table;

pub use peer::Peer;

use crate::load::{self, Checker, fingerprint};
use crate::stack::{Buffers, Stack};
use crate::step::{LINE_MAX, LONGEST, Reply, Step};
use anyhow::{Context, Result, bail};
use rds_lite::wire::MAX_MESSAGE;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use table::Table;

/// Steps at the same time.
const MOST_STEPS: usize = 64;

/// How long a client may take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What all connections share.
struct Shared {
    stack: Box<dyn Stack>,
    sockets: Table,
    /// The network device whose packets may be made to suffer.
    interface: Option<String>,
    steps: AtomicUsize,
    stopped: AtomicBool,
}

/// An agent that runs. Dropping it ends it.
pub struct Agent {
    shared: Arc<Shared>,
    addr: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts an agent that listens at `addr`.
    ///
    /// # Errors
    ///
    /// It cannot listen there.
    pub fn start(stack: impl Stack, addr: SocketAddr, interface: Option<String>) -> Result<Self> {
        let listener =
            TcpListener::bind(addr).with_context(|| format!("cannot listen at {addr}"))?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            stack: Box::new(stack),
            sockets: Table::default(),
            interface,
            steps: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("agent".into())
            .spawn(move || serve(&serving, &listener))?;
        Ok(Self {
            shared,
            addr,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits for ever: nobody ends it.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has said what there is to say.
            let _ = thread.join();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.sockets.close_all();
        // It sits in accept, so something must come.
        let woken = TcpStream::connect_timeout(&self.addr, Duration::from_secs(1));
        if woken.is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Arc<Shared>, listener: &TcpListener) {
    while !shared.stopped.load(Ordering::SeqCst) {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, most likely: others have to end first.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if shared.steps.fetch_add(1, Ordering::SeqCst) >= MOST_STEPS {
            shared.steps.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let counted = Arc::clone(shared);
        let started = std::thread::Builder::new()
            .name(blocked::STEP.into())
            .spawn(move || {
                // A client that has gone away needs no answer.
                let _ = answer(&counted, &stream);
                counted.steps.fetch_sub(1, Ordering::SeqCst);
            });
        if started.is_err() {
            shared.steps.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn answer(shared: &Shared, mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let line = read_line(stream)?;
    let reply = serde_json::from_slice(&line)
        .context("no step")
        .and_then(|step| run(shared, step))
        .unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// One line, of bounded length.
fn read_line(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(stream)
        .take(LINE_MAX as u64)
        .read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "half a line, or too long a one",
        ));
    }
    Ok(line)
}

/// When a step that may take so many milliseconds has to end.
fn deadline(within: u64) -> Instant {
    Instant::now() + Duration::from_millis(within).min(LONGEST)
}

fn interface(shared: &Shared) -> Result<&str> {
    let interface = shared.interface.as_deref();
    interface.context("this agent was not given a network device")
}

fn run(shared: &Shared, step: Step) -> Result<Reply> {
    let sockets = &shared.sockets;
    match step {
        Step::Bind {
            socket,
            addr,
            send_buffer,
            receive_buffer,
        } => {
            let buffers = Buffers {
                send: send_buffer,
                receive: receive_buffer,
            };
            let endpoint = shared.stack.bind(addr, buffers)?;
            let addr = endpoint.local_addr();
            sockets.add(socket, endpoint)?;
            Ok(Reply::Bound(addr))
        }
        Step::Close { socket } => {
            sockets.close(socket);
            Ok(Reply::Done)
        }
        Step::Send {
            socket,
            to,
            messages,
            if_congested,
            within,
        } => {
            let (endpoint, closed) = sockets.get(socket)?;
            let by = deadline(within);
            let sent = load::send(&*endpoint, to, &messages, if_congested, by, &closed)?;
            Ok(Reply::Sent(sent))
        }
        Step::Receive {
            socket,
            from,
            order,
            within,
        } => {
            let (endpoint, closed) = sockets.get(socket)?;
            let mut checker = Checker::new(&from, order);
            load::receive(&*endpoint, &mut checker, deadline(within), &closed)?;
            Ok(Reply::Received(checker.receipts()))
        }
        Step::Ping {
            socket,
            to,
            count,
            within,
        } => {
            let (endpoint, _) = sockets.get(socket)?;
            let slowest = load::ping(&*endpoint, to, count, deadline(within))?;
            let slowest = u64::try_from(slowest.as_micros()).unwrap_or(u64::MAX);
            Ok(Reply::Pinged(slowest))
        }
        Step::Lend {
            socket,
            to,
            seed,
            len,
            skew,
            term,
        } => {
            if len > MAX_MESSAGE || skew > MAX_MESSAGE {
                bail!("no operation moves so much");
            }
            let (endpoint, _) = sockets.get(socket)?;
            rdma::lend(&*endpoint, to, (seed, len), (skew, term))
        }
        Step::Borrow {
            socket,
            seed,
            within,
        } => {
            let (endpoint, closed) = sockets.get(socket)?;
            rdma::borrow(&*endpoint, seed, deadline(within), &closed)
        }
        Step::Transfer {
            socket,
            to,
            transfer,
            within,
        } => {
            if transfer.len > MAX_MESSAGE {
                bail!("no operation moves so much");
            }
            let (endpoint, closed) = sockets.get(socket)?;
            rdma::transfer(&*endpoint, to, &transfer, deadline(within), &closed)
        }
        Step::Hear {
            socket,
            token,
            within,
        } => {
            let (endpoint, closed) = sockets.get(socket)?;
            rdma::hear(&*endpoint, token, deadline(within), &closed)
        }
        Step::Stream {
            socket,
            to,
            stream,
            within,
        } => {
            let (endpoint, closed) = sockets.get(socket)?;
            stream::run(&*endpoint, to, &stream, deadline(within), &closed)
        }
        Step::Follow {
            socket,
            stream,
            within,
        } => {
            let (endpoint, closed) = sockets.get(socket)?;
            stream::follow(&*endpoint, &stream, deadline(within), &closed)
        }
        Step::Recall { socket, cookie } => {
            let (endpoint, _) = sockets.get(socket)?;
            endpoint.recall(cookie).map(Reply::Recalled)
        }
        Step::Look { socket, cookie } => {
            let (endpoint, _) = sockets.get(socket)?;
            let content = endpoint.content(cookie)?;
            Ok(Reply::Content(fingerprint(&content)))
        }
        Step::Stress { part, within } => {
            stress::take_part(&*shared.stack, &part, within).map(Reply::Stressed)
        }
        Step::Restart => {
            sockets.clear()?;
            shared.stack.restart()?;
            Ok(Reply::Done)
        }
        Step::Cut => shared.stack.cut().map(|()| Reply::Done),
        Step::Blocked => Ok(Reply::Blocked(blocked::steps())),
        Step::Counters => shared.stack.counters().map(Reply::Counters),
        Step::Network { fault } => network::set(interface(shared)?, fault).map(|()| Reply::Done),
        Step::Outage { millis } => {
            network::outage(interface(shared)?, Duration::from_millis(millis)).map(|()| Reply::Done)
        }
    }
}
