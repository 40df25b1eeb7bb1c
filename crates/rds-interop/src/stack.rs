//! The two implementations of RDS, with one face.

mod kernel;
mod kernel_load;
mod kernel_rdma;
mod lite;
mod lite_rdma;
mod rdma;

pub use kernel::KernelStack;
pub(crate) use kernel::{load, unload};
pub use lite::LiteStack;
pub use rdma::{Arrived, End, Loan, Operation, Rdma, Term};

use crate::kernel::Transport;
use rds_lite::stress::{Load, Side};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The buffers of a socket, in bytes of payload; `None` leaves the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffers {
    /// Queued or unacknowledged, before a send is refused.
    pub send: Option<usize>,
    /// Received, before the port is congested.
    pub receive: Option<usize>,
}

/// An implementation of RDS.
pub trait Stack: Send + Sync + 'static {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// What carries it.
    fn transport(&self) -> Transport;

    /// Carries a load of `rds stress`: a task on a socket at each address of `own`, each of which answers
    /// `peers`, and asks them if `asks`.
    ///
    /// # Errors
    ///
    /// What the implementation says.
    fn carry(
        &self,
        load: &Load,
        own: &[SocketAddr],
        peers: &[SocketAddr],
        asks: bool,
    ) -> anyhow::Result<Side>;

    /// Binds a socket.
    ///
    /// # Errors
    ///
    /// What the implementation says.
    fn bind(&self, addr: SocketAddr, buffers: Buffers) -> anyhow::Result<Arc<dyn Endpoint>>;

    /// Ends everything and begins anew, as after a crash of the machine. No endpoint may exist.
    ///
    /// # Errors
    ///
    /// It cannot be ended, or does not come up again.
    fn restart(&self) -> anyhow::Result<()>;

    /// Ends the connections to all peers, of which sockets know nothing.
    ///
    /// # Errors
    ///
    /// It has no means of doing so.
    fn cut(&self) -> anyhow::Result<()>;

    /// What it has counted.
    ///
    /// # Errors
    ///
    /// It does not tell.
    fn counters(&self) -> anyhow::Result<BTreeMap<String, u64>>;
}

/// Why a message was not sent.
#[derive(Debug)]
pub enum Refusal {
    /// The socket's buffer is full.
    Full,
    /// The destination takes no more for now; others may.
    Congested,
    /// It will never be sent.
    Failed(anyhow::Error),
}

/// A bound socket.
pub trait Endpoint: Rdma + Send + Sync {
    /// Where it is bound.
    fn local_addr(&self) -> SocketAddr;

    /// Sends a message if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    fn send(&self, message: &[u8], to: SocketAddr) -> Result<(), Refusal>;

    /// Waits until it may be worth to try a refused send again, at most so long.
    fn wait_to_send(&self, to: SocketAddr, refusal: &Refusal, at_most: Duration);

    /// Receives a message into `into`, which becomes as long as it; waits for one at most so long.
    ///
    /// # Errors
    ///
    /// What the implementation says.
    fn receive(&self, into: &mut Vec<u8>, at_most: Duration) -> anyhow::Result<Option<SocketAddr>>;
}
