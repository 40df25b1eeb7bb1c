//! What can go wrong, and what to do about it.

use crate::Status;
use mr_core::{BackendError, ErrorKind, RemoteKey};
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

/// An errno of the system.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    pub(crate) const EPERM: Self = Self(1);
    pub(crate) const ENOENT: Self = Self(2);
    pub(crate) const ENXIO: Self = Self(6);
    pub(crate) const EAGAIN: Self = Self(11);
    pub(crate) const ENOMEM: Self = Self(12);
    pub(crate) const EACCES: Self = Self(13);
    pub(crate) const EFAULT: Self = Self(14);
    pub(crate) const EBUSY: Self = Self(16);
    pub(crate) const ENODEV: Self = Self(19);
    pub(crate) const EINVAL: Self = Self(22);
    pub(crate) const ENOSYS: Self = Self(38);
    pub(crate) const EOPNOTSUPP: Self = Self(95);
    pub(crate) const EADDRNOTAVAIL: Self = Self(99);
    pub(crate) const ENETUNREACH: Self = Self(101);
    pub(crate) const ETIMEDOUT: Self = Self(110);
    pub(crate) const EHOSTUNREACH: Self = Self(113);

    const fn kind(self) -> ErrorKind {
        match self {
            Self::ENOMEM => ErrorKind::NoMemory,
            Self::EAGAIN | Self::EBUSY => ErrorKind::Busy,
            Self::EOPNOTSUPP | Self::ENOSYS => ErrorKind::Unsupported,
            Self::EINVAL | Self::EFAULT | Self::EPERM | Self::EACCES => ErrorKind::Denied,
            Self::ENODEV | Self::ENXIO => ErrorKind::NoDevice,
            Self::ETIMEDOUT => ErrorKind::TimedOut,
            _ => ErrorKind::Io,
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&io::Error::from_raw_os_error(self.0), f)
    }
}

/// What this crate cannot do, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no RDMA device, or none that was asked for.
    #[error("no RDMA device{}{}: load a driver (`rdma link` lists devices) or name another",
        .wanted.as_ref().map_or_else(String::new, |name| format!(" {name:?} among [{}]", .present.join(", "))),
        .errno.map_or_else(String::new, |errno| format!(" ({errno})")))]
    NoDevice {
        /// The device asked for.
        wanted: Option<String>,
        /// The devices there are.
        present: Vec<String>,
        /// What the system said, if it gave no list at all.
        errno: Option<Errno>,
    },
    /// The address belongs to no RDMA device, or to another one than it should.
    #[error("{addr} is no address of the RDMA device ({errno}): see `ip addr` and `rdma link`")]
    NoDeviceAt {
        /// The address.
        addr: Ipv4Addr,
        /// What the system said.
        errno: Errno,
    },
    /// The system has no connection manager.
    #[error("no RDMA connection manager ({errno}): load its module (`modprobe rdma_ucm`)")]
    NoManager {
        /// What the system said.
        errno: Errno,
    },
    /// The port cannot carry traffic.
    #[error("port {port} of {device} is {state}: bring its link up (`ip link set … up`)")]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// Its state.
        state: String,
    },
    /// The port has no address to connect with.
    #[error("port {port} of {device} has no GID: give its network interface an IP address")]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
    },
    /// A limit of the system was hit.
    #[error("{what} failed ({errno}): {advice}")]
    Limit {
        /// What failed.
        what: String,
        /// How.
        errno: Errno,
        /// Which limit it was, and what to do.
        advice: String,
    },
    /// The device cannot do this.
    #[error("{device} has no {what}: use another mechanism")]
    Unsupported {
        /// The device.
        device: String,
        /// What it lacks.
        what: &'static str,
    },
    /// A window was to be bound to memory outside of every arena that the backend knows.
    #[error("{len} bytes at {addr:#x} are in no arena of this backend: take the buffer from one")]
    NotInArena {
        /// Where the memory starts.
        addr: u64,
        /// Its length.
        len: u64,
    },
    /// An arena has no room.
    #[error("no {len} bytes free in an arena of {size}: release buffers, or make it larger")]
    ArenaFull {
        /// Bytes wanted.
        len: usize,
        /// Bytes of the arena.
        size: usize,
    },
    /// The send queue stayed full.
    #[error(
        "no room for {wanted} work requests among {depth} within {waited:?}: try again, or make the queue deeper"
    )]
    QueueFull {
        /// Work requests to be posted.
        wanted: usize,
        /// Slots of the queue.
        depth: usize,
        /// How long this waited.
        waited: Duration,
    },
    /// The device did not answer in time.
    #[error("{what} did not complete within {waited:?}; its connection was given up")]
    TimedOut {
        /// What did not complete.
        what: &'static str,
        /// How long this waited.
        waited: Duration,
    },
    /// A work request failed, and its connection with it. The next use builds a new one.
    #[error("{what}: {status}; the connection is rebuilt at its next use")]
    ConnectionLost {
        /// What failed.
        what: &'static str,
        /// How.
        status: Status,
    },
    /// There is no connection to the peer, and none could be made.
    #[error("no connection to the peer: {0}")]
    NotConnected(#[source] io::Error),
    /// A message or transfer is longer than what is allowed.
    #[error("{len} bytes, and at most {max} go at once: split them")]
    TooLong {
        /// Bytes to go.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// A region was handed to a backend that it is not from.
    #[error("the region belongs to another backend: use the one it is from")]
    ForeignRegion,
    /// The peer broke the protocol.
    #[error(transparent)]
    Peer(#[from] ProtocolError),
    /// Something cannot be freed while something else is there.
    #[error("{what} cannot be freed while {bound}: free those first")]
    Busy {
        /// What was to be freed.
        what: &'static str,
        /// What is still there.
        bound: String,
    },
    /// A key could not be killed: it may be honoured still.
    #[error(
        "{what} could not be freed ({errno}), so its key may be honoured still: keep its memory and try again"
    )]
    NotKilled {
        /// What was to be freed.
        what: &'static str,
        /// How it failed.
        errno: Errno,
    },
    /// A call of libibverbs failed.
    #[error("{what} failed: {errno}")]
    System {
        /// The call.
        what: &'static str,
        /// How.
        errno: Errno,
    },
}

/// What a peer did that no peer may do. No lease is ended by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// It invalidated a key that this backend has not given out, or not lately.
    #[error("the peer invalidated {0}, which is no live key of this connection")]
    ForeignKey(RemoteKey),
    /// It invalidated a key a second time.
    #[error("the peer invalidated {0} again")]
    RepeatedKey(RemoteKey),
    /// A message did not arrive since the peer named a key that the HCA does not know, or sent
    /// more than fits.
    #[error("a message of the peer was refused: {0}")]
    Refused(Status),
}

impl Error {
    /// A failed call, with the limit that it may have hit.
    pub(crate) fn system(what: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::ENOMEM => Self::Limit {
                what: what.to_owned(),
                errno,
                advice: "the device or the kernel is out of such objects or of memory".to_owned(),
            },
            errno => Self::System { what, errno },
        }
    }
}

impl BackendError for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoDevice { .. } | Self::NoDeviceAt { .. } | Self::NoManager { .. } => {
                ErrorKind::NoDevice
            }
            Self::Limit { .. } | Self::ArenaFull { .. } => ErrorKind::NoMemory,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::NotInArena { .. } | Self::TooLong { .. } | Self::ForeignRegion => {
                ErrorKind::Denied
            }
            Self::QueueFull { .. }
            | Self::PortDown { .. }
            | Self::NoGid { .. }
            | Self::ConnectionLost { .. }
            | Self::NotConnected(_)
            // Not `TimedOut`, which would leave it open what has become of a region: a map that
            // was not seen to complete has freed its window before it says so.
            | Self::TimedOut { .. }
            | Self::Busy { .. } => ErrorKind::Busy,
            Self::Peer(_) | Self::NotKilled { .. } => ErrorKind::Io,
            Self::System { errno, .. } => errno.kind(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_says_what_was_wanted_and_what_is_there() {
        let none = Error::NoDevice {
            wanted: None,
            present: Vec::new(),
            errno: Some(Errno::ENOSYS),
        };
        assert!(
            none.to_string().contains("Function not implemented"),
            "{none}"
        );
        let other = Error::NoDevice {
            wanted: Some("mlx5_9".to_owned()),
            present: vec!["rxe0".to_owned()],
            errno: None,
        };
        assert!(
            other.to_string().contains("\"mlx5_9\" among [rxe0]"),
            "{other}"
        );
    }
}
