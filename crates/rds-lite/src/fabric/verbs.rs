//! RDS over InfiniBand verbs: reliable connections that librdmacm makes, as the kernel's `rds_rdma`.
//!
//! A frame is a SEND of a header and up to 4 KiB behind it, into a ring of receive buffers; an RDMA
//! operation goes out with the same doorbell as the message behind it. Connections are made at port
//! 18634 of the address, with the introduction as their private data. The pool of the host must be on
//! the fabric's [domain](VerbsFabric::domain), with keys that count from the page
//! ([`RegistrationBackend::zero_based`](mr_verbs::RegistrationBackend::zero_based)), and its policy is the
//! user's.
//!
//! An acknowledgement that has nothing to ride on has a work request of its own, as in the kernel: it goes
//! also where the send ring is full, and only one is under way at a time.
//!
//! Each address that is listened at has a thread, and so has each connection, from the dial to its
//! end: it receives, and posts what found no room. Everything else is posted in the caller's thread.

mod dial;
mod dials;
mod link;
mod listen;
mod run;
mod threads;

use crate::fabric::{Fabric, Sink, join_within};
use crate::proto::{Greeting, LinkId, LinkKind, Path};
use crate::wire::{CM_PORT, FRAGMENT_LEN, HEADER_LEN};
use dials::Dials;
use link::VerbsLink;
use listen::Listening;
use mr_core::{Clock, SystemClock};
use mr_verbs::cm::{ConnectionConfig, Waker};
use mr_verbs::{Device, Domain, Error};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use threads::Threads;

/// The settings of a verbs fabric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerbsConfig {
    /// The port that hosts listen at, the same on all of them. Defaults to 18634, as the kernel's.
    pub port: u16,
    /// How long a dial may take, and how long a peer whose request was accepted has to get ready.
    /// Defaults to 3 s.
    pub connect_timeout: Duration,
    /// Connections at a time, those that are being made or ended among them: each has the memory of
    /// [`ConnectionConfig::memory`]. More are refused. Defaults to 256.
    pub max_links: usize,
    /// Requests of peers at a time that are not answered. Defaults to 64.
    pub backlog: u32,
    /// The rings and timers of each connection; the lengths of header and payload are always those of
    /// RDS. One more send is for acknowledgements.
    pub connection: ConnectionConfig,
    /// How long the end of the host waits for the ends of its connections, within its own
    /// [limit](crate::proto::Config::shutdown_timeout). Defaults to 5 s.
    pub shutdown_timeout: Duration,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            port: CM_PORT,
            connect_timeout: Duration::from_secs(3),
            max_links: 256,
            backlog: 64,
            connection: ConnectionConfig::default(),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// One host's RDS over verbs.
pub struct VerbsFabric {
    shared: Arc<Shared>,
}

/// What the threads of a fabric share.
struct Shared {
    domain: Arc<Domain>,
    config: VerbsConfig,
    stopped: AtomicBool,
    listeners: Mutex<HashMap<Ipv4Addr, Listening>>,
    dials: Dials,
    links: Mutex<HashMap<LinkId, Weak<VerbsLink>>>,
    threads: Threads,
}

impl VerbsFabric {
    /// A fabric in this domain.
    pub fn new(domain: &Arc<Domain>, mut config: VerbsConfig) -> Self {
        config.connection.header_bytes = HEADER_LEN as u32;
        config.connection.payload_bytes = FRAGMENT_LEN as u32;
        config.connection.sends = config.connection.sends.saturating_add(1);
        Self {
            shared: Arc::new(Shared {
                domain: Arc::clone(domain),
                threads: Threads::new(config.max_links),
                config,
                stopped: AtomicBool::new(false),
                listeners: Mutex::new(HashMap::new()),
                dials: Dials::default(),
                links: Mutex::new(HashMap::new()),
            }),
        }
    }

    /// A fabric on the device that has the address `own`, in a domain of its own.
    ///
    /// # Errors
    ///
    /// No device has it, or the device cannot be opened.
    pub fn at(own: Ipv4Addr, config: VerbsConfig) -> Result<Self, Error> {
        let domain = Domain::new(&Device::of_address(own)?)?;
        Ok(Self::new(&domain, config))
    }

    /// The domain that the host's pool must be on.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.shared.domain
    }
}

impl Fabric for VerbsFabric {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn kind(&self) -> LinkKind {
        LinkKind {
            fragment: FRAGMENT_LEN,
            greeting: Greeting::Connect,
            always_acks: true,
            packets_per_ack: 8,
            rdma: true,
            fences: true,
            receive_ring: self.shared.config.connection.receives,
            own_ack: true,
            smaller_dials: false,
        }
    }

    fn listen(&self, ip: IpAddr, sink: Weak<dyn Sink>) -> Result<(), String> {
        let IpAddr::V4(ip) = ip else {
            return Err("RDS over verbs has IPv4 addresses".into());
        };
        let mut listeners = lock(&self.shared.listeners);
        if listeners.contains_key(&ip) {
            return Ok(());
        }
        if self.shared.is_stopped() {
            return Err("the host is shut down".into());
        }
        let port = self.shared.config.port;
        let listening = Listening::start(&self.shared, ip, sink);
        let listening =
            listening.map_err(|error| format!("cannot listen at port {port}: {error}"))?;
        listeners.insert(ip, listening);
        Ok(())
    }

    fn dial(&self, id: LinkId, path: Path, introduction: Vec<u8>, sink: Weak<dyn Sink>) {
        let (shared, for_loss) = (Arc::clone(&self.shared), Weak::clone(&sink));
        let dialled = Waker::new().map_err(io::Error::other).and_then(|waker| {
            self.shared.dials.begin(id, path, waker.clone());
            self.shared.threads.start("rds-verbs", move || {
                dial::run(&shared, id, path, (&introduction, &waker), sink);
            })
        });
        if let Err(error) = dialled {
            tracing::warn!(%path, %error, "no dial");
            self.shared.dials.end(id, false);
            // Not from this call: the host may be in the middle of something.
            self.shared.threads.start_short(move || {
                if let Some(host) = for_loss.upgrade() {
                    host.lost(id);
                }
            });
        }
    }

    fn shut_down(&self, patience: Duration) -> usize {
        let clock = SystemClock::new();
        let until = clock.now() + patience.min(self.shared.config.shutdown_timeout);
        self.shared.stopped.store(true, Ordering::SeqCst);
        let listeners = std::mem::take(&mut *lock(&self.shared.listeners));
        let accepting: Vec<_> = listeners.into_values().map(Listening::stop).collect();
        self.shared.dials.wake_all();
        let links: Vec<_> = lock(&self.shared.links)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for link in links {
            link.end();
        }
        // Those that answer first: they start others.
        let left = join_within(accepting, until.since(clock.now()));
        left + self.shared.threads.wait(until.since(clock.now()))
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// From here on the end of the fabric ends the link. Says whether it has not ended already.
    fn enter(&self, id: LinkId, link: &Arc<VerbsLink>) -> bool {
        lock(&self.links).insert(id, Arc::downgrade(link));
        !self.is_stopped()
    }

    /// Ends the earlier links of this connection. One that its peer never got ready for is nothing that the host knows
    /// of, and would be there for as long as a peer may take: who asks again and again would have all of them.
    fn end_before(&self, id: LinkId) {
        let earlier = |other: &LinkId| other.conn == id.conn && other.incarnation < id.incarnation;
        let links = lock(&self.links);
        let ended: Vec<_> = links
            .iter()
            .filter(|(other, _)| earlier(other))
            .filter_map(|(_, link)| link.upgrade())
            .collect();
        drop(links);
        ended.into_iter().for_each(|link| link.end());
    }

    fn leave(&self, id: LinkId) {
        lock(&self.links).remove(&id);
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
