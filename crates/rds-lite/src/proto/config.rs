//! The settings of a host.

use crate::wire::{MAX_MESSAGE, Version};
use std::time::Duration;

/// The settings of a host. All bounds are finite.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Bytes of a socket that may be queued or unacknowledged before a send is refused; a send is
    /// admitted while fewer are, so one message may go beyond. Also the longest message that the
    /// socket sends. Defaults to 4 MiB.
    pub send_buffer: usize,
    /// Bytes queued at a socket above which its port is announced as congested, until fewer than
    /// half are. What is on its way still arrives. Defaults to 4 MiB.
    pub receive_buffer: usize,
    /// Bytes that all sockets together may have queued or unacknowledged. At least 1 MiB, the longest
    /// message. Defaults to 128 MiB.
    pub send_budget: usize,
    /// Bytes of all received messages: being received, queued, or held by the application. Data
    /// beyond is shed: it is not acknowledged, and sent again later. A socket that is congested and takes up
    /// more than twice its receive buffer has half of this at most, so that peers who ignore congestion
    /// hold up nobody else. A kernel over TCP does not send
    /// again: its connection is not read from until there is room, and all its messages wait behind the
    /// first that finds none. Only what had arrived on such a connection that ends meanwhile may go
    /// beyond, as much again at most. Acknowledgements, congestion maps and pings need none of it. At
    /// least 2 MiB, so that every message fits. Defaults to 128 MiB.
    pub receive_budget: usize,
    /// Messages and notifications that one socket may have queued, whatever their bytes. Defaults
    /// to 4096.
    pub max_queued: usize,
    /// Bound sockets. Defaults to 65,536.
    pub max_sockets: usize,
    /// Connections, whoever begins them. Beyond, a peer without a link is forgotten for a new one: what it
    /// has not heard the acknowledgement of is reported there as if this host had begun anew. Where all are
    /// in use there is no new one. Defaults to 1024.
    pub max_connections: usize,
    /// Pings that wait for their answer on one connection; more are ignored. Defaults to 64.
    pub max_pongs: usize,
    /// Messages between two that ask for an acknowledgement. Defaults to `None`: what the fabric
    /// says, 8 as in the kernel, or 64 over TCP, where the kernel does not acknowledge at all.
    pub max_unacked_packets: Option<u32>,
    /// Bytes between two messages that ask for an acknowledgement. Defaults to 16 MiB, as the
    /// kernel's.
    pub max_unacked_bytes: u64,
    /// How long an acknowledgement that was not asked for waits for a message to ride on. Defaults
    /// to 20 ms.
    pub ack_delay: Duration,
    /// How long a message may be unacknowledged before it is sent again, and as long again before
    /// the link is given up; one that goes with an RDMA operation is never sent again, and the link is given
    /// up at once. A peer has twice this from one fragment of a message to the next. At least 1 us.
    /// Defaults to 5 s.
    pub ack_timeout: Duration,
    /// How long a peer has for its greeting, where links begin with a probe. Not used where a dial says who a
    /// peer is ([`Greeting::Connect`](crate::proto::Greeting::Connect)): a kernel that has to acknowledge the
    /// opening there has [`ack_timeout`](Self::ack_timeout) for that. Defaults to 1 s.
    pub greet_timeout: Duration,
    /// The first pause between attempts to connect; the pause is random below a bound that
    /// doubles. The first attempt after a loss is immediate. At least 1 us. Defaults to 1 ms, as the
    /// kernel's.
    pub reconnect_min: Duration,
    /// The longest pause between attempts to connect. At least `reconnect_min`. Defaults to 1 s, as the
    /// kernel's.
    pub reconnect_max: Duration,
    /// Attempts to connect while nothing waits for the connection; after these it rests until it is
    /// needed. Defaults to 5.
    pub idle_attempts: u32,
    /// When a congestion map is sent again after a change, in case it was lost; the time doubles up
    /// to 64 times. At least 1 ms. Defaults to 1 s.
    pub map_refresh: Duration,
    /// The version that a dial proposes first, where the fabric carries versions; after a rejection
    /// it is 3.1. What a peer asks for is answered in any case. Defaults to 3.1, as in the kernel.
    pub version: Version,
    /// Whether this side counts receive buffers on links that have them, if the peer does so, too: no
    /// frame is then sent that finds no buffer. Without it the HCAs try again. Defaults to false,
    /// as in the kernel.
    pub flow_control: bool,
    /// How long the end of the host takes at most: half of it is for the fabric to end its threads, the
    /// rest for the pool to kill the keys that were released. Also how long the end of a socket waits for the
    /// keys of what it had lent. Defaults to 10 s.
    pub shutdown_timeout: Duration,
    /// Whether pings are answered. Defaults to true.
    pub answer_pings: bool,
    /// Seeds the pauses between attempts, the automatic ports and the boot generation. Defaults to
    /// `None`: from the operating system.
    pub seed: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            send_buffer: 4 << 20,
            receive_buffer: 4 << 20,
            send_budget: 128 << 20,
            receive_budget: 128 << 20,
            max_queued: 4096,
            max_sockets: 65_536,
            max_connections: 1024,
            max_pongs: 64,
            max_unacked_packets: None,
            max_unacked_bytes: 16 << 20,
            ack_delay: Duration::from_millis(20),
            ack_timeout: Duration::from_secs(5),
            greet_timeout: Duration::from_secs(1),
            reconnect_min: Duration::from_millis(1),
            reconnect_max: Duration::from_secs(1),
            idle_attempts: 5,
            map_refresh: Duration::from_secs(1),
            version: Version::V3_1,
            flow_control: false,
            shutdown_timeout: Duration::from_secs(10),
            answer_pings: true,
            seed: None,
        }
    }
}

/// A setting outside of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} must be at least {least}")]
pub struct ConfigError {
    setting: &'static str,
    least: usize,
}

impl Config {
    /// Whether all settings can hold.
    ///
    /// # Errors
    ///
    /// Names the setting and what is allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        at_least("send_buffer", self.send_buffer, 1)?;
        at_least("receive_buffer", self.receive_buffer, 1)?;
        at_least("send_budget", self.send_budget, MAX_MESSAGE)?;
        at_least("receive_budget", self.receive_budget, 2 * MAX_MESSAGE)?;
        at_least("max_queued", self.max_queued, 1)?;
        at_least("max_sockets", self.max_sockets, 1)?;
        at_least("max_connections", self.max_connections, 1)?;
        let packets = self.max_unacked_packets.unwrap_or(1) as usize;
        at_least("max_unacked_packets", packets, 1)?;
        let nanos = |time: Duration| usize::try_from(time.as_nanos()).unwrap_or(usize::MAX);
        at_least("ack_timeout in ns", nanos(self.ack_timeout), 1000)?;
        at_least("reconnect_min in ns", nanos(self.reconnect_min), 1000)?;
        at_least(
            "reconnect_max in ns",
            nanos(self.reconnect_max),
            nanos(self.reconnect_min),
        )?;
        at_least("map_refresh in ns", nanos(self.map_refresh), 1_000_000)
    }
}

fn at_least(setting: &'static str, value: usize, least: usize) -> Result<(), ConfigError> {
    if value < least {
        return Err(ConfigError { setting, least });
    }
    Ok(())
}
