//! What an agent can be told to do, and what it answers: one line of JSON each.

use crate::load::{Heard, IfCongested, Messages, Order, Receipt, Sent, Stream, Streamed};
use crate::stack::{End, Term};
use crate::stress::Part;
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
    /// Lend memory to a peer, and send it the cookie.
    Lend {
        /// By which.
        socket: u32,
        /// To whom.
        to: SocketAddr,
        /// What the content is made from; also names the message.
        seed: u64,
        /// Bytes.
        len: usize,
        /// Where in a page it begins, if the stack lets one choose.
        skew: usize,
        /// What ends the loan.
        term: Term,
    },
    /// Wait for the cookie of memory whose content is made from `seed`.
    Borrow {
        /// At which.
        socket: u32,
        /// What the content is made from.
        seed: u64,
        /// Milliseconds until it gives up.
        within: u64,
    },
    /// Do an RDMA operation with a message behind it, and wait for its end.
    Transfer {
        /// By which.
        socket: u32,
        /// Whose memory.
        to: SocketAddr,
        /// What.
        transfer: Transfer,
        /// Milliseconds until it gives up.
        within: u64,
    },
    /// Wait for the message behind an operation.
    Hear {
        /// At which.
        socket: u32,
        /// The operation.
        token: u64,
        /// Milliseconds until it gives up.
        within: u64,
    },
    /// Do operations until one does not succeed, and wait for the end of all that were begun.
    Stream {
        /// By which.
        socket: u32,
        /// Whose memory.
        to: SocketAddr,
        /// Which.
        stream: Stream,
        /// Milliseconds until it gives up.
        within: u64,
    },
    /// Wait for the messages behind operations, up to the one that says that it was the last.
    Follow {
        /// At which.
        socket: u32,
        /// Which.
        stream: Stream,
        /// Milliseconds until it gives up.
        within: u64,
    },
    /// End a loan; its key is dead afterwards.
    Recall {
        /// Of which.
        socket: u32,
        /// Which.
        cookie: u64,
    },
    /// Look at memory that was recalled.
    Look {
        /// Of which.
        socket: u32,
        /// Which.
        cookie: u64,
    },
    /// Take part in a load of `rds stress`.
    Stress {
        /// As which side.
        part: Part,
        /// Milliseconds that the other side may take to be there.
        within: u64,
    },
    /// Close all sockets and begin anew.
    Restart,
    /// End all connections under the sockets.
    Cut,
    /// Let nothing out of the machine for so many milliseconds.
    Outage {
        /// How long.
        millis: u64,
    },
    /// Tell what the steps that have not ended are waiting for.
    Blocked,
    /// Tell what was counted.
    Counters,
    /// Have the network misbehave, or no longer.
    Network {
        /// How.
        fault: Option<NetworkFault>,
    },
}

/// An RDMA operation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// What the peer has lent.
    pub cookie: u64,
    /// Where in it.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
    /// Buffers on this side.
    pub pieces: usize,
    /// Write what is made from this; otherwise read.
    pub write: Option<u64>,
    /// Its name, also of the message.
    pub token: u64,
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
    /// What was waited for has not come.
    Nothing,
    /// Memory was lent by this cookie.
    Lent(u64),
    /// An operation has ended so, with local memory of this fingerprint.
    Ended(End, u64),
    /// So operations have ended.
    Streamed(Streamed),
    /// So many messages have come behind operations.
    Heard(Heard),
    /// A loan was ended; or a use had ended it before.
    Recalled(bool),
    /// Memory has this fingerprint.
    Content(u64),
    /// A load was carried; its summary, as `rds stress --format json` prints it.
    Stressed(String),
    /// What each step calls in the kernel, innermost first.
    Blocked(Vec<String>),
    /// What was counted.
    Counters(BTreeMap<String, u64>),
    /// It failed.
    Failed(String),
}
