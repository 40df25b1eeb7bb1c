//! What an agent can be told to do, and what it answers: one line of JSON each.

use crate::load::{IfCongested, Messages, Order, Receipt, Sent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The longest line, in bytes.
pub const LINE_MAX: usize = 64 << 10;

/// The longest that a step may take, whatever it says.
pub const LONGEST: Duration = Duration::from_secs(300);

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Bind a socket and call it `socket`.
    Bind {
        /// Its name from now on.
        socket: u32,
        /// Where; port 0 stands for any.
        addr: SocketAddr,
        /// Bytes that may be queued.
        send_buffer: Option<usize>,
        /// Bytes above which it is congested.
        receive_buffer: Option<usize>,
    },
    /// Close a socket.
    Close {
        /// Which.
        socket: u32,
    },
    /// Send messages.
    Send {
        /// From which.
        socket: u32,
        /// Where to.
        to: SocketAddr,
        /// Which.
        messages: Messages,
        /// What then.
        if_congested: IfCongested,
        /// Milliseconds until it gives up.
        within: u64,
    },
    /// Receive messages and verify them, until the last of each sender is there.
    Receive {
        /// At which.
        socket: u32,
        /// From whom, and what.
        from: Vec<(SocketAddr, Messages)>,
        /// In which order.
        order: Order,
        /// Milliseconds until it gives up.
        within: u64,
    },
    /// Send pings.
    Ping {
        /// From which.
        socket: u32,
        /// Where to.
        to: IpAddr,
        /// How many.
        count: u64,
        /// Milliseconds until it gives up.
        within: u64,
    },
    /// Close all sockets and begin anew.
    Restart,
    /// End all connections under the sockets.
    Cut,
    /// Tell what was counted.
    Counters,
    /// Have the network misbehave, or no longer.
    Network {
        /// How.
        fault: Option<NetworkFault>,
    },
}

/// How packets fare that leave the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkFault {
    /// So many of a thousand are lost.
    Loss(u16),
    /// So many of a thousand come twice.
    Duplication(u16),
    /// So many of a thousand overtake others.
    Reordering(u16),
}

impl fmt::Display for NetworkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, thousandths) = match self {
            Self::Loss(part) => ("lost", part),
            Self::Duplication(part) => ("doubled", part),
            Self::Reordering(part) => ("reordered", part),
        };
        write!(f, "{} % {what}", f64::from(*thousandths) / 10.0)
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is done.
    Done,
    /// A socket is bound here.
    Bound(SocketAddr),
    /// So much was sent.
    Sent(Sent),
    /// So much has come, from each sender.
    Received(Vec<(SocketAddr, Receipt)>),
    /// All pings were answered; the slowest took so many microseconds.
    Pinged(u64),
    /// What was counted.
    Counters(BTreeMap<String, u64>),
    /// It failed.
    Failed(String),
}
