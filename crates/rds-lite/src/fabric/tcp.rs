//! RDS/TCP: a header and its payload after the other on a TCP connection.
//!
//! As in the kernel, every connection is from the smaller address to port 16385 of the larger. The
//! side with the larger address asks to be dialled by dialling itself: the other resets that
//! connection and dials back. Beyond the kernel, headers carry checksums and acknowledgements,
//! which the kernel ignores; a peer that sums its headers is one that acknowledges. One that does not
//! takes for delivered what its TCP was told has arrived: where there is no room for a message of such a
//! peer, its connection is not read from until there is.
//!
//! Each connection has a thread that reads, unless an application that waits does so itself. Sending is
//! done in the caller's thread; only when the kernel's buffer is full a second thread waits for room.

mod custody;
mod dial;
mod link;
mod listen;
mod queue;
mod reader;
mod spin;
mod stall;

use crate::fabric::{Fabric, Sink, join_within};
use crate::proto::{Greeting, LinkId, LinkKind, Path};
use crate::wire::{MAX_MESSAGE, TCP_PORT};
use listen::Listener;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The settings of a TCP fabric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TcpConfig {
    /// The port that hosts listen at; the same on all of them. Defaults to 16385.
    pub port: u16,
    /// How long a dial waits for the peer's TCP. Defaults to 2 s.
    pub connect_timeout: Duration,
    /// How long a peer with a smaller address has for dialling back. Defaults to 2 s.
    pub dial_back_timeout: Duration,
    /// Idle time before TCP looks whether the peer is there, and between further looks; after five
    /// without an answer the connection ends. Defaults to 5 s, as the kernel's.
    pub keepalive: Duration,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            port: TCP_PORT,
            connect_timeout: Duration::from_secs(2),
            dial_back_timeout: Duration::from_secs(2),
            keepalive: Duration::from_secs(5),
        }
    }
}

/// One host's RDS/TCP.
pub struct TcpFabric {
    config: TcpConfig,
    listeners: Mutex<HashMap<IpAddr, Listener>>,
    stopped: Arc<AtomicBool>,
}

impl TcpFabric {
    /// RDS/TCP with these settings.
    pub fn new(config: TcpConfig) -> Self {
        Self {
            config,
            listeners: Mutex::new(HashMap::new()),
            stopped: Arc::new(AtomicBool::new(false)),
        }
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<IpAddr, Listener>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for TcpFabric {
    fn default() -> Self {
        Self::new(TcpConfig::default())
    }
}

impl Fabric for TcpFabric {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn kind(&self) -> LinkKind {
        LinkKind {
            fragment: MAX_MESSAGE,
            greeting: Greeting::Probe,
            always_acks: false,
            packets_per_ack: 64,
            rdma: false,
            fences: false,
            receive_ring: 0,
            own_ack: false,
            smaller_dials: true,
        }
    }

    fn listen(&self, ip: IpAddr, sink: Weak<dyn Sink>) -> Result<(), String> {
        let mut listeners = self.listeners();
        if listeners.contains_key(&ip) {
            return Ok(());
        }
        if self.stopped.load(Ordering::SeqCst) {
            return Err("the host is shut down".into());
        }
        let stopped = Arc::clone(&self.stopped);
        let listener = Listener::start(&self.config, ip, sink, stopped);
        let port = self.config.port;
        let listener =
            listener.map_err(|error| format!("cannot listen at port {port}: {error}"))?;
        listeners.insert(ip, listener);
        Ok(())
    }

    fn dial(&self, id: LinkId, path: Path, _introduction: Vec<u8>, sink: Weak<dyn Sink>) {
        let config = self.config.clone();
        let later = Weak::clone(&sink);
        let started = start_thread("rds-dial", move || dial::run(&config, id, path, &sink));
        if let Err(error) = started {
            tracing::warn!(%path, %error, "no thread to dial with");
            // Not from this call: the host may be in the middle of something.
            if let Some(sink) = later.upgrade() {
                let _ = start_thread("rds-dial", move || sink.lost(id));
            }
        }
    }

    fn shut_down(&self, patience: Duration) -> usize {
        self.stopped.store(true, Ordering::SeqCst);
        let listeners = std::mem::take(&mut *self.listeners());
        let threads = listeners.into_values().map(Listener::stop).collect();
        join_within(threads, patience)
    }
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map(drop)
}

/// What all connections of this fabric have in common.
fn set_options(socket: &socket2::Socket, config: &TcpConfig) -> io::Result<()> {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(config.keepalive)
        .with_interval(config.keepalive)
        .with_retries(5);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_nodelay(true)
}

/// Ends a connection with a reset, which leaves nothing behind on either side.
fn reset(socket: socket2::Socket) {
    // If it fails the connection ends all the same, only more slowly.
    let _ = socket.set_linger(Some(Duration::ZERO));
    drop(socket);
}
