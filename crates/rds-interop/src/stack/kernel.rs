//! The kernel's RDS.

use super::kernel_load::KernelCarrier;
use super::kernel_rdma::Held;
use super::{Buffers, Endpoint, Refusal, Stack};
use crate::kernel::{self, Attachment, Datagram, KernelSocket, Transport};
use anyhow::{Context, Result, bail};
use rds_lite::stress::{Load, Side};
use rds_lite::wire::MAX_MESSAGE;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a congested destination is tried again: the kernel wakes nobody for sure.
const CONGESTED_PAUSE: Duration = Duration::from_millis(5);

/// Writing to it ends all connections of RDS/TCP; what they began with, none, cannot be written.
const TCP_SETTING: &str = "/proc/sys/net/rds/tcp/rds_tcp_sndbuf";
const TCP_SEND_BUFFER: &str = "1048576";

/// The buffers that sockets have, and may ask for. What systems come with is less than the longest message,
/// which such sockets cannot send.
const BUFFER_SETTINGS: &[&str] = &["wmem_default", "wmem_max", "rmem_default", "rmem_max"];
const SOCKET_BUFFER: usize = 4 * MAX_MESSAGE;

/// The kernel's RDS over one transport.
pub struct KernelStack {
    transport: Transport,
}

impl KernelStack {
    /// What it is called.
    pub const NAME: &str = "kernel";

    /// The kernel's RDS, whose modules are loaded first. Also raises the system's bounds on buffers.
    ///
    /// # Errors
    ///
    /// The kernel has no such modules, or this is not root.
    pub fn new(transport: Transport) -> Result<Self> {
        load(transport)?;
        Ok(Self { transport })
    }
}

/// Loads the modules of this transport, and raises the system's bounds on buffers.
pub(crate) fn load(transport: Transport) -> Result<()> {
    for name in BUFFER_SETTINGS {
        raise(&Path::new("/proc/sys/net/core").join(name))?;
    }
    call(&["modprobe", transport.module()])
}

/// Makes a bound on buffers at least [`SOCKET_BUFFER`]. One that is larger was set so by somebody.
fn raise(setting: &Path) -> Result<()> {
    let shown = setting.display();
    let text = fs::read_to_string(setting).with_context(|| format!("cannot read {shown}"))?;
    let bytes: usize = text
        .trim()
        .parse()
        .with_context(|| format!("{shown} is no number"))?;
    if bytes < SOCKET_BUFFER {
        fs::write(setting, SOCKET_BUFFER.to_string())
            .with_context(|| format!("cannot write {shown}"))?;
    }
    Ok(())
}

/// Removes the modules of this transport, whose sockets must be closed.
pub(crate) fn unload(transport: Transport) -> Result<()> {
    call(&["rmmod", transport.module()])?;
    call(&["rmmod", "rds"])
}

/// Runs a program to its end, which comes soon.
fn call(line: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = line else {
        bail!("no program");
    };
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`{}`: {}", line.join(" "), error.trim());
    }
    Ok(())
}

impl Stack for KernelStack {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn carry(
        &self,
        load: &Load,
        own: &[SocketAddr],
        peers: &[SocketAddr],
        asks: bool,
    ) -> Result<Side> {
        let bytes = Some(load.buffer_bytes());
        let mut carriers = Vec::new();
        for &addr in own {
            let socket = KernelSocket::bind(addr, self.transport, bytes, bytes);
            let socket = socket.with_context(|| format!("cannot bind to {addr}"))?;
            carriers.push(KernelCarrier::new(socket, load));
        }
        Ok(Side::start(carriers, peers, load, asks)?)
    }

    fn bind(&self, addr: SocketAddr, buffers: Buffers) -> Result<Arc<dyn Endpoint>> {
        let socket = KernelSocket::bind(addr, self.transport, buffers.send, buffers.receive);
        Ok(Arc::new(KernelEndpoint {
            socket: socket.with_context(|| format!("cannot bind to {addr}"))?,
            buffer: Mutex::new(vec![0; MAX_MESSAGE]),
            held: Held::default(),
        }))
    }

    fn restart(&self) -> Result<()> {
        unload(self.transport)?;
        load(self.transport)
    }

    fn cut(&self) -> Result<()> {
        if self.transport != Transport::Tcp {
            bail!(
                "the kernel ends no connection of {} on request",
                self.transport
            );
        }
        Ok(fs::write(TCP_SETTING, TCP_SEND_BUFFER)?)
    }

    fn counters(&self) -> Result<BTreeMap<String, u64>> {
        Ok(kernel::counters()?)
    }
}

pub(super) struct KernelEndpoint {
    pub(super) socket: KernelSocket,
    pub(super) buffer: Mutex<Vec<u8>>,
    pub(super) held: Held,
}

impl Endpoint for KernelEndpoint {
    fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn send(&self, message: &[u8], to: SocketAddr) -> Result<(), Refusal> {
        match self.socket.send(message, to, &Attachment::None) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Refusal::Full),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Err(Refusal::Congested),
            Err(error) => Err(Refusal::Failed(error.into())),
        }
    }

    fn wait_to_send(&self, _: SocketAddr, refusal: &Refusal, at_most: Duration) {
        match refusal {
            // To wait for congestion means to wait for input: there may be some that is not for this.
            Refusal::Congested => std::thread::sleep(at_most.min(CONGESTED_PAUSE)),
            // Whether the time is over or not, the next try tells.
            _ => drop(self.socket.wait(true, at_most)),
        }
    }

    fn receive(&self, into: &mut Vec<u8>, at_most: Duration) -> Result<Option<SocketAddr>> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        for last in [false, true] {
            match self.socket.receive(&mut buffer) {
                Ok(Datagram::Message { from, len, .. }) => {
                    let bytes = buffer.get(..len).context("a message is too long")?;
                    into.clear();
                    into.extend_from_slice(bytes);
                    return Ok(Some(from));
                }
                Ok(Datagram::Notices(_) | Datagram::Uncongested(_)) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if !last {
                self.socket.wait(false, at_most)?;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_on_buffers_is_raised_and_never_lowered() {
        let path = std::env::temp_dir().join(format!("rds-interop-raise-{}", std::process::id()));
        let larger = (SOCKET_BUFFER + 1).to_string();
        for (before, after) in [
            ("212992\n", SOCKET_BUFFER.to_string()),
            (larger.as_str(), larger.clone()),
        ] {
            fs::write(&path, before).unwrap();
            raise(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
        fs::write(&path, "none").unwrap();
        let error = raise(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(error.contains("no number"), "{error}");
    }
}
