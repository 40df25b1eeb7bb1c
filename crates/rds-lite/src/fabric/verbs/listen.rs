//! Being dialled.

use super::Shared;
use super::link::VerbsLink;
use crate::fabric::Sink;
use crate::proto::Path;
use mr_verbs::Error;
use mr_verbs::cm::{Listener, Request, Waker};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a peer's dial waits for the end of this side's that it has crossed.
const CROSSING: Duration = Duration::from_millis(250);

/// A thread that answers those who dial an address.
pub(super) struct Listening {
    waker: Waker,
    thread: JoinHandle<()>,
}

impl Listening {
    /// Listens at the address.
    ///
    /// # Errors
    ///
    /// The address is none of the device, or its port is taken; or there is no thread.
    pub(super) fn start(
        shared: &Arc<Shared>,
        ip: Ipv4Addr,
        sink: Weak<dyn Sink>,
    ) -> Result<Self, String> {
        let at = SocketAddrV4::new(ip, shared.config.port);
        let listener = Listener::bind(&shared.domain, at, shared.config.backlog);
        let listener = listener.map_err(|error| error.to_string())?;
        let waker = listener.waker().clone();
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("rds-accept".into());
        let thread = thread.spawn(move || run(&shared, &listener, &sink));
        Ok(Self {
            waker,
            thread: thread.map_err(|error| error.to_string())?,
        })
    }

    /// Has the thread end.
    pub(super) fn stop(self) -> JoinHandle<()> {
        self.waker.wake();
        self.thread
    }
}

fn run(shared: &Arc<Shared>, listener: &Listener, sink: &Weak<dyn Sink>) {
    while !shared.is_stopped() {
        match listener.wait(Duration::from_secs(60)) {
            Ok(Some(request)) => answer(shared, request, sink),
            Ok(None) => {}
            Err(error) => return tracing::error!(%error, "nobody can dial this host any more"),
        }
    }
}

fn answer(shared: &Arc<Shared>, request: Request, sink: &Weak<dyn Sink>) {
    let path = Path {
        local: IpAddr::V4(*request.local_addr().ip()),
        remote: IpAddr::V4(*request.peer_addr().ip()),
    };
    let Some(host) = sink.upgrade().filter(|_| !shared.is_stopped()) else {
        return reject(request, &[]);
    };
    if !shared.threads.has_room() {
        tracing::warn!(%path, "a peer is refused: raise max_links");
        return reject(request, &[]);
    }
    // Where dials cross, the smaller address wins. But a kernel that finds the request of the dial that yields when
    // it is connected already takes it for a new life of this side, and drops the connection. So the peer is
    // accepted when such a request was answered; and one that is not made by then is not wanted any more.
    if path.local > path.remote && shared.dials.await_end(path, CROSSING) {
        tracing::debug!(%path, "a dial came too late");
        return reject(request, &[]);
    }
    let (id, reply) = match host.asked(path, request.private_data()) {
        Ok(accepted) => accepted,
        Err(reason) => return reject(request, &reason),
    };
    if path.local > path.remote {
        // Another may have been requested since, and is not wanted any more whatever its answer.
        shared.dials.await_end(path, CROSSING);
    }
    shared.end_before(id);
    let (connection, poller) = match request.accept(&shared.config.connection, &reply) {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::warn!(%path, %error, "a peer could not be accepted");
            return host.lost(id);
        }
    };
    let link = VerbsLink::new(id, connection, &shared.threads, Weak::clone(sink));
    if !shared.enter(id, &link) {
        link.end();
    }
    let theirs = Arc::clone(shared);
    let started = shared.threads.start("rds-verbs", move || {
        link.run(&theirs, poller, false);
        theirs.leave(id);
    });
    if let Err(error) = started {
        tracing::warn!(%path, %error, "a peer could not be accepted");
        shared.leave(id);
        host.lost(id);
    }
}

fn reject(request: Request, reason: &[u8]) {
    let rejected: Result<(), Error> = request.reject(reason);
    if let Err(error) = rejected {
        tracing::debug!(%error, "a rejection could not be said");
    }
}
