//! Accepting connections.

use super::{TcpConfig, link, reset, set_options};
use crate::fabric::Sink;
use crate::proto::Path;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The kernel's.
const BACKLOG: i32 = 64;

/// A thread that accepts connections to one address.
pub(super) struct Listener {
    /// The thread's, to end it.
    socket: Socket,
    thread: JoinHandle<()>,
}

impl Listener {
    pub(super) fn start(
        config: &TcpConfig,
        ip: IpAddr,
        sink: Weak<dyn Sink>,
        stopped: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let addr = SocketAddr::new(ip, config.port);
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        let own = socket.try_clone()?;
        let config = config.clone();
        let thread = std::thread::Builder::new()
            .name("rds-accept".into())
            .spawn(move || {
                let mut latest = Latest::new();
                while !stopped.load(Ordering::SeqCst) {
                    match socket.accept() {
                        Ok((socket, _)) if stopped.load(Ordering::SeqCst) => reset(socket),
                        Ok((socket, peer)) => {
                            let remote = peer.as_socket().map(|peer| peer.ip());
                            if let Some(remote) = remote {
                                let path = Path { local: ip, remote };
                                accept(&config, socket, path, &sink, &mut latest);
                            }
                        }
                        Err(_) if stopped.load(Ordering::SeqCst) => {}
                        Err(error) => {
                            tracing::warn!(%error, "accept failed");
                            // Out of descriptors, most likely: others have to end first.
                            std::thread::sleep(Duration::from_millis(10));
                        }
                    }
                }
            })?;
        Ok(Self {
            socket: own,
            thread,
        })
    }

    /// Has the thread end. It sits in accept, which fails from now on.
    pub(super) fn stop(self) -> JoinHandle<()> {
        // It fails where nobody listens any more: then the thread does not sit there, either.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.thread
    }
}

/// The latest connection of each peer.
type Latest = HashMap<IpAddr, Weak<link::TcpLink>>;

/// Who may have dialled is known by the address, so nothing is ever half open.
fn accept(
    config: &TcpConfig,
    socket: Socket,
    path: Path,
    sink: &Weak<dyn Sink>,
    latest: &mut Latest,
) {
    let Some(host) = sink.upgrade() else {
        return reset(socket);
    };
    if path.remote >= path.local {
        reset(socket);
        return host.dial_wanted(path);
    }
    if let Err(error) = set_options(&socket, config) {
        tracing::debug!(%path, %error, "a connection ended at once");
        return;
    }
    let link = match link::TcpLink::new(socket, Weak::clone(sink)) {
        Ok(link) => link,
        Err(error) => return tracing::warn!(%path, %error, "a connection could not be used"),
    };
    latest.retain(|_, link| link.strong_count() > 0);
    if let Some(old) = latest.insert(path.remote, Arc::downgrade(&link)) {
        link::finish(&old);
    }
    match host.asked(path, &[]) {
        Ok((id, _)) if host.opened(id, &[], Arc::clone(&link) as _) => link.run_in_thread(id),
        Ok(_) | Err(_) => link.reset(),
    }
}
