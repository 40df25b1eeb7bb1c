//! One socket of the kernel's RDS.

use super::control::{self, MapFlags, Notice, OpFlags};
use super::info::{self, State};
use super::{Memory, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use socket2::{Domain, MsgHdr, SockAddr, Socket, Type};
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// `AF_RDS`, and its options at the level of RDS.
const FAMILY: i32 = 21;
const FREE_MR: i32 = 3;
const RECVERR: i32 = 5;
const TRANSPORT: i32 = 8;

/// Flag of a call that does not wait. Sockets are not made non-blocking: the kernel looks at the flag only.
const DONTWAIT: i32 = 0x40;

/// Flag of a receive that tells the length of the whole message, whatever fits.
const TRUNC: i32 = 0x20;

/// Room for control messages of one receive: the ends of several operations.
const CONTROL_ROOM: usize = 512;

/// What carries the kernel's RDS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// RDS/TCP, of module `rds_tcp`.
    Tcp,
    /// RDS/IB, of module `rds_rdma`.
    Verbs,
}

impl Transport {
    /// Its number in the kernel's option.
    const fn number(self) -> i32 {
        match self {
            Self::Verbs => 0,
            Self::Tcp => 2,
        }
    }

    /// The kernel's module.
    #[must_use]
    pub const fn module(self) -> &'static str {
        match self {
            Self::Tcp => "rds_tcp",
            Self::Verbs => "rds_rdma",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        })
    }
}

/// What goes with a datagram.
#[derive(Debug)]
pub enum Attachment<'a> {
    /// Nothing.
    None,
    /// The cookie of a range that is lent to the peer with this message.
    Lend(&'a Memory, Range<usize>, MapFlags),
    /// A cookie that this socket lent before.
    Cookie(u64),
    /// An operation on the peer's memory; the message follows it.
    Operate(Operation<'a>),
}

/// An RDMA operation on memory of the peer.
#[derive(Debug)]
pub struct Operation<'a> {
    /// What the peer has lent.
    pub cookie: u64,
    /// Where in it.
    pub offset: u64,
    /// The memory here, and which parts of it; together they are what is moved.
    pub local: (&'a Memory, &'a [Range<usize>]),
    /// How.
    pub flags: OpFlags,
    /// What its end is called.
    pub token: u64,
}

/// What was received.
#[derive(Debug)]
pub enum Datagram {
    /// A message: who sent it, its length (of which the buffer may hold less), and a cookie.
    Message {
        /// Who sent it.
        from: SocketAddr,
        /// Its length.
        len: usize,
        /// Memory of the sender.
        cookie: Option<u64>,
    },
    /// Ends of operations.
    Notices(Vec<Notice>),
    /// Some destinations are no longer congested: bits of their ports modulo 64.
    Uncongested(u64),
}

/// A bound socket. No call waits but [`wait`](Self::wait).
pub struct KernelSocket {
    socket: Socket,
    addr: SocketAddr,
    /// Where the kernel writes the cookie of what is lent.
    cookie: Mutex<Memory>,
}

impl KernelSocket {
    /// Binds a socket to `addr` on this transport. The buffers are in bytes of payload, and bounded by
    /// the system's settings; `None` leaves the default.
    ///
    /// # Errors
    ///
    /// There is no such transport, or it does not own the address, or the port is taken.
    pub fn bind(
        addr: SocketAddr,
        transport: Transport,
        send_buffer: Option<usize>,
        receive_buffer: Option<usize>,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::from(FAMILY), Type::SEQPACKET, None)?;
        sys::set_option(socket.as_fd(), TRANSPORT, &transport.number().to_ne_bytes())?;
        // Failed operations are told even if nobody asked.
        sys::set_option(socket.as_fd(), RECVERR, &1_i32.to_ne_bytes())?;
        if let Some(bytes) = send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(&addr.into())?;
        let bound = socket.local_addr()?.as_socket();
        let addr = bound.ok_or_else(|| io::Error::other("bound to no address"))?;
        let cookie = Mutex::new(Memory::new(size_of::<u64>())?);
        Ok(Self {
            socket,
            addr,
            cookie,
        })
    }

    /// Where it is bound.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether memory may be lent to this address: there is a connection, or nobody has wanted one so far, and
    /// the call asks for it. The kernel (6.1) also has the HCA register what is lent over one that is being made
    /// or was rejected; then it never looks at the completion, and neither the call returns nor is there ever a
    /// connection again.
    ///
    /// # Errors
    ///
    /// What the kernel says; its answer is not understood.
    pub fn may_lend(&self, to: IpAddr) -> io::Result<bool> {
        let (IpAddr::V4(local), IpAddr::V4(remote)) = (self.addr.ip(), to) else {
            return Err(io::Error::other("only IPv4 connections are looked for"));
        };
        let state = info::connection(self.socket.as_fd(), local, remote)?;
        Ok(state.is_none_or(|state| state.contains(State::CONNECTED)))
    }

    /// Sends a datagram. Returns the cookie of what was lent with it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket's buffer is full, `ENOBUFS` if the destination is congested, or what
    /// else the kernel says.
    pub fn send(
        &self,
        payload: &[u8],
        to: SocketAddr,
        attachment: &Attachment<'_>,
    ) -> io::Result<Option<u64>> {
        let to = SockAddr::from(to);
        let payload = [IoSlice::new(payload)];
        let message = MsgHdr::new().with_addr(&to).with_buffers(&payload);
        // What control messages point to must live until the call is over.
        let cookie = self.cookie.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vectors: Vec<u64> = Vec::new();
        let control = match attachment {
            Attachment::None => {
                return self.socket.sendmsg(&message, DONTWAIT).map(|_| None);
            }
            Attachment::Lend(memory, range, flags) => {
                let address = memory.address(range.start, range.len())?;
                let cookie_at = cookie.address(0, size_of::<u64>())?;
                control::map(address, range.len() as u64, cookie_at, *flags)
            }
            Attachment::Cookie(cookie) => control::dest(*cookie),
            Attachment::Operate(operation) => {
                let (memory, ranges) = operation.local;
                let mut total = 0;
                for range in ranges {
                    let len = range.len() as u64;
                    vectors.extend([memory.address(range.start, range.len())?, len]);
                    total += len;
                }
                let vectors_at = vectors.as_ptr().addr() as u64;
                let remote = (operation.offset, total);
                let listed = (vectors_at, ranges.len() as u64);
                control::args(
                    operation.cookie,
                    remote,
                    listed,
                    operation.flags,
                    operation.token,
                )
            }
        };
        self.socket
            .sendmsg(&message.with_control(&control), DONTWAIT)?;
        drop(vectors);
        if !matches!(attachment, Attachment::Lend(..)) {
            return Ok(None);
        }
        let mut bytes = [0; size_of::<u64>()];
        cookie.read(0, &mut bytes)?;
        Ok(Some(u64::from_ne_bytes(bytes)))
    }

    /// Receives what comes first: ends of operations, news of congestion, a message.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing, or what the kernel says.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Datagram> {
        let mut control = [0; CONTROL_ROOM];
        let got = sys::receive(self.socket.as_fd(), buffer, &mut control, DONTWAIT | TRUNC)?;
        let told = control::decode(control.get(..got.control).unwrap_or_default());
        if !told.notices.is_empty() {
            return Ok(Datagram::Notices(told.notices));
        }
        if let Some(ports) = told.uncongested {
            return Ok(Datagram::Uncongested(ports));
        }
        let from = got
            .from
            .ok_or_else(|| io::Error::other("a message from no address"))?;
        Ok(Datagram::Message {
            from,
            len: got.len,
            cookie: told.cookie,
        })
    }

    /// Takes back what was lent. With `invalidate` its key is dead afterwards, unless a message in flight
    /// still names it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such cookie (any more).
    pub fn free(&self, cookie: u64, invalidate: bool) -> io::Result<()> {
        let flags = if invalidate {
            MapFlags::INVALIDATE
        } else {
            MapFlags::empty()
        };
        let words = [cookie, flags.bits()].map(u64::to_ne_bytes);
        sys::set_option(self.socket.as_fd(), FREE_MR, words.as_flattened())
    }

    /// Waits until there may be something to receive, or (`to_send`) until there may be room to send, at
    /// most this long. News of congestion count as something to receive.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn wait(&self, to_send: bool, at_most: Duration) -> io::Result<()> {
        let what = if to_send {
            PollFlags::OUT
        } else {
            PollFlags::IN
        };
        let limit = Timespec::try_from(at_most).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.socket, what)], Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Debug for KernelSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelSocket")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}
