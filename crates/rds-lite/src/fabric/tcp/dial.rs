//! Dialling.

use super::{TcpConfig, link, set_options};
use crate::fabric::Sink;
use crate::proto::{LinkId, Path};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// Makes a link, or asks the peer to make one. Runs in a thread of its own, which then reads from
/// the link.
pub(super) fn run(config: &TcpConfig, id: LinkId, path: Path, sink: &Weak<dyn Sink>) {
    let outcome = if path.local < path.remote {
        dial(config, path, sink).map(Some)
    } else {
        ask(config, path).map(|()| None)
    };
    match outcome {
        Ok(Some(link)) => {
            let host = sink.upgrade();
            let wanted = host.is_some_and(|host| host.opened(id, &[], Arc::clone(&link) as _));
            if wanted {
                link.run(id);
            } else {
                link.reset();
            }
        }
        Ok(None) => {
            // If the peer has dialled back by then, this says nothing any more.
            std::thread::sleep(config.dial_back_timeout);
            lose(id, sink);
        }
        Err(error) => {
            tracing::debug!(%path, %error, "dial failed");
            lose(id, sink);
        }
    }
}

fn lose(id: LinkId, sink: &Weak<dyn Sink>) {
    if let Some(host) = sink.upgrade() {
        host.lost(id);
    }
}

fn dial(config: &TcpConfig, path: Path, sink: &Weak<dyn Sink>) -> io::Result<Arc<link::TcpLink>> {
    let socket = connect(config, path)?;
    set_options(&socket, config)?;
    link::TcpLink::new(socket, Weak::clone(sink))
}

/// Connects as the kernel does, and waits for the peer to reset the connection: then it knows.
fn ask(config: &TcpConfig, path: Path) -> io::Result<()> {
    let mut socket = connect(config, path)?;
    socket.set_read_timeout(Some(config.connect_timeout))?;
    // Whatever comes, the peer has seen the connection.
    let _ = socket.read(&mut [0; 1]);
    Ok(())
}

/// Connects from the right address: by it the peer knows who this is.
fn connect(config: &TcpConfig, path: Path) -> io::Result<Socket> {
    let local = SocketAddr::new(path.local, 0);
    let remote = SocketAddr::new(path.remote, config.port);
    let socket = Socket::new(
        Domain::for_address(local),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.bind(&local.into())?;
    socket.connect_timeout(&remote.into(), config.connect_timeout)?;
    Ok(socket)
}
