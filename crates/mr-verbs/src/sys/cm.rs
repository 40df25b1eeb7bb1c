//! librdmacm: identifiers, their event channels, and what happens on them.
//!
//! Queue pairs are not made through it: the identifier is told the number of one, and asked which
//! attributes take it from state to state. So a queue pair can be of any domain of the device,
//! whichever handle of it librdmacm has opened for itself.

use super::{Errno, Qp, Result, access, check, check_pointer, ffi};
use std::ffi::CStr;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

/// A queue of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel(NonNull<ffi::rdma_event_channel>);

/// One end of a connection to be, or of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(NonNull<ffi::rdma_cm_id>);

// SAFETY: librdmacm may be called with one object from several threads.
unsafe impl Send for Channel {}
// SAFETY: as above; the handle itself never changes.
unsafe impl Sync for Channel {}
// SAFETY: as above.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

/// What can happen on an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    AddrResolved,
    AddrError,
    RouteResolved,
    RouteError,
    ConnectRequest,
    ConnectResponse,
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    DeviceRemoval,
    /// Nothing that matters here.
    Other(u32),
}

/// An event, copied out of the library.
#[derive(Debug)]
pub(crate) struct RawEvent {
    pub(crate) kind: EventKind,
    /// An errno (negative), or the reason of a rejection.
    pub(crate) status: i32,
    /// Where it happened; with a request, an identifier made for it.
    pub(crate) id: Id,
    /// What came with it, padded by the other end.
    pub(crate) private_data: Vec<u8>,
    /// Reads and atomics that the peer wants to have under way at this end.
    pub(crate) responder_resources: u8,
    /// The same, that it takes from this end.
    pub(crate) initiator_depth: u8,
}

/// What the two ends of a connection agree upon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters<'a> {
    pub(crate) qp_number: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retries: u8,
    pub(crate) private_data: &'a [u8],
}

/// What is set on a queue pair beside what the connection manager says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub(crate) ack_timeout: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// Retries for ever when the peer has no receive posted: it is slow, and no failure.
const RNR_RETRIES: u8 = 7;

/// An IPv4 address, as the system lays it out.
#[repr(C)]
struct SockAddr {
    family: u16,
    port: [u8; 2],
    ip: [u8; 4],
    zero: [u8; 8],
}

const AF_INET: u16 = 2;

impl From<SocketAddrV4> for SockAddr {
    fn from(addr: SocketAddrV4) -> Self {
        Self {
            family: AF_INET,
            port: addr.port().to_be_bytes(),
            ip: addr.ip().octets(),
            zero: [0; 8],
        }
    }
}

impl SockAddr {
    const fn addr(&self) -> SocketAddrV4 {
        let [a, b, c, d] = self.ip;
        SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes(self.port))
    }
}

/// Makes a channel that never blocks: without an event, asking for one fails with `EAGAIN`.
pub(crate) fn create_channel() -> Result<Channel> {
    // SAFETY: has no arguments.
    let channel = check_pointer(unsafe { ffi::rdma_create_event_channel() }).map(Channel)?;
    // SAFETY: just made.
    let nonblocking = unsafe { rustix::io::ioctl_fionbio(channel_fd(channel), true) };
    nonblocking.map_err(|error| {
        // SAFETY: just made, and not used again.
        unsafe { destroy_channel(channel) };
        Errno(error.raw_os_error())
    })?;
    Ok(channel)
}

/// Its identifiers must be gone.
pub(crate) unsafe fn destroy_channel(channel: Channel) {
    // SAFETY: the contract of this module.
    unsafe { ffi::rdma_destroy_event_channel(channel.0.as_ptr()) };
}

/// Readable when there is an event.
pub(crate) unsafe fn channel_fd<'c>(channel: Channel) -> BorrowedFd<'c> {
    // SAFETY: the contract of this module.
    let fd = unsafe { channel.0.as_ref() }.fd;
    // SAFETY: the channel has it open while it exists.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

pub(crate) unsafe fn create_id(channel: Channel) -> Result<Id> {
    let mut id = ptr::null_mut();
    let tcp = ffi::rdma_port_space::RDMA_PS_TCP;
    // SAFETY: the contract of this module; `id` outlives the call.
    check(unsafe { ffi::rdma_create_id(channel.0.as_ptr(), &mut id, ptr::null_mut(), tcp) })?;
    check_pointer(id).map(Id)
}

/// Ends whatever the identifier is doing, and frees it.
pub(crate) unsafe fn destroy_id(id: Id) -> Result<()> {
    // SAFETY: the contract of this module.
    check(unsafe { ffi::rdma_destroy_id(id.0.as_ptr()) })
}

/// Has all further events of the identifier come through another channel.
pub(crate) unsafe fn migrate_id(id: Id, channel: Channel) -> Result<()> {
    // SAFETY: the contract of this module; all events of the identifier have been acknowledged, as
    // `next_event` does at once.
    check(unsafe { ffi::rdma_migrate_id(id.0.as_ptr(), channel.0.as_ptr()) })
}

pub(crate) unsafe fn bind(id: Id, addr: SocketAddrV4) -> Result<()> {
    let mut addr = SockAddr::from(addr);
    // SAFETY: the contract of this module; the address says that it is of IPv4, and is copied.
    check(unsafe { ffi::rdma_bind_addr(id.0.as_ptr(), (&raw mut addr).cast()) })
}

pub(crate) unsafe fn listen(id: Id, backlog: u32) -> Result<()> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    // SAFETY: the contract of this module.
    check(unsafe { ffi::rdma_listen(id.0.as_ptr(), backlog) })
}

/// Begins to look for the way to `remote`.
pub(crate) unsafe fn resolve_addr(
    id: Id,
    local: SocketAddrV4,
    remote: SocketAddrV4,
    millis: u32,
) -> Result<()> {
    let (mut local, mut remote) = (SockAddr::from(local), SockAddr::from(remote));
    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
    let (local, remote) = ((&raw mut local).cast(), (&raw mut remote).cast());
    // SAFETY: the contract of this module; both addresses are copied.
    check(unsafe { ffi::rdma_resolve_addr(id.0.as_ptr(), local, remote, millis) })
}

pub(crate) unsafe fn resolve_route(id: Id, millis: u32) -> Result<()> {
    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
    // SAFETY: the contract of this module.
    check(unsafe { ffi::rdma_resolve_route(id.0.as_ptr(), millis) })
}

impl Parameters<'_> {
    /// The caller has checked that the private data fits.
    fn raw(&self) -> ffi::rdma_conn_param {
        ffi::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(self.private_data.len()).unwrap_or(u8::MAX),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 0,
            retry_count: self.retries,
            rnr_retry_count: RNR_RETRIES,
            srq: 0,
            qp_num: self.qp_number,
        }
    }
}

pub(crate) unsafe fn connect(id: Id, parameters: &Parameters<'_>) -> Result<()> {
    let mut raw = parameters.raw();
    // SAFETY: the contract of this module; parameters and private data are copied.
    check(unsafe { ffi::rdma_connect(id.0.as_ptr(), &mut raw) })
}

/// Answers a response: the other end then knows that this one is ready.
pub(crate) unsafe fn establish(id: Id) -> Result<()> {
    // SAFETY: the contract of this module.
    check(unsafe { ffi::rdma_establish(id.0.as_ptr()) })
}

pub(crate) unsafe fn accept(id: Id, parameters: &Parameters<'_>) -> Result<()> {
    let mut raw = parameters.raw();
    // SAFETY: the contract of this module; parameters and private data are copied.
    check(unsafe { ffi::rdma_accept(id.0.as_ptr(), &mut raw) })
}

pub(crate) unsafe fn reject(id: Id, private_data: &[u8]) -> Result<()> {
    let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
    // SAFETY: the contract of this module; the data is copied.
    check(unsafe { ffi::rdma_reject(id.0.as_ptr(), private_data.as_ptr().cast(), len) })
}

/// Tells the peer that the connection has ended, or that its having said so was heard.
pub(crate) unsafe fn disconnect(id: Id) -> Result<()> {
    // SAFETY: the contract of this module.
    check(unsafe { ffi::rdma_disconnect(id.0.as_ptr()) })
}

/// The name of the device that the identifier is bound to; `None` while it is bound to none.
pub(crate) unsafe fn device_name(id: Id) -> Option<String> {
    // SAFETY: the contract of this module.
    let context = NonNull::new(unsafe { id.0.as_ref() }.verbs)?;
    // SAFETY: librdmacm keeps the device open while an identifier is bound to it.
    let device = unsafe { context.as_ref() }.device;
    // SAFETY: as above.
    let name = unsafe { ffi::ibv_get_device_name(device) };
    // SAFETY: a string that lives as long as the device is open.
    let name = unsafe { CStr::from_ptr(name) };
    Some(name.to_string_lossy().into_owned())
}

/// The addresses of this end and of the peer.
pub(crate) unsafe fn addresses(id: Id) -> (SocketAddrV4, SocketAddrV4) {
    // SAFETY: the contract of this module; the addresses are set before anybody sees the
    // identifier, and stay.
    let route = unsafe { &(*id.0.as_ptr()).route.addr };
    let (local, remote) = (
        &raw const route.src_addr_union,
        &raw const route.dst_addr_union,
    );
    // SAFETY: at least as large as an IPv4 address, aligned as one, and bytes.
    let local = unsafe { &*local.cast::<SockAddr>() };
    // SAFETY: as above.
    let remote = unsafe { &*remote.cast::<SockAddr>() };
    (local.addr(), remote.addr())
}

/// The next event of a channel, acknowledged; `None` if there is none.
pub(crate) unsafe fn next_event(channel: Channel) -> Result<Option<RawEvent>> {
    let mut raw = ptr::null_mut();
    // SAFETY: the contract of this module; `raw` outlives the call.
    match check(unsafe { ffi::rdma_get_cm_event(channel.0.as_ptr(), &mut raw) }) {
        Err(Errno::EAGAIN) => return Ok(None),
        got => got?,
    }
    // SAFETY: an event of the library, which is there until it is acknowledged.
    let event = unsafe { &*check_pointer(raw)?.as_ptr() };
    // SAFETY: only queue pairs of type RC are connected here.
    let connection = unsafe { &event.param.conn };
    let data = NonNull::new(connection.private_data.cast_mut().cast::<u8>());
    let private_data = data.map_or_else(Vec::new, |data| {
        let len = usize::from(connection.private_data_len);
        // SAFETY: the library says so.
        unsafe { std::slice::from_raw_parts(data.as_ptr(), len) }.to_vec()
    });
    let copied = RawEvent {
        kind: EventKind::from_raw(event.event),
        status: event.status,
        id: Id(check_pointer(event.id)?),
        private_data,
        responder_resources: connection.responder_resources,
        initiator_depth: connection.initiator_depth,
    };
    // SAFETY: got above, and not used again.
    check(unsafe { ffi::rdma_ack_cm_event(raw) })?;
    Ok(Some(copied))
}

impl EventKind {
    const fn from_raw(raw: u32) -> Self {
        use ffi::rdma_cm_event_type as raws;
        match raw {
            raws::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddrResolved,
            raws::RDMA_CM_EVENT_ADDR_ERROR => Self::AddrError,
            raws::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            raws::RDMA_CM_EVENT_ROUTE_ERROR => Self::RouteError,
            raws::RDMA_CM_EVENT_CONNECT_REQUEST => Self::ConnectRequest,
            raws::RDMA_CM_EVENT_CONNECT_RESPONSE => Self::ConnectResponse,
            raws::RDMA_CM_EVENT_CONNECT_ERROR => Self::ConnectError,
            raws::RDMA_CM_EVENT_UNREACHABLE => Self::Unreachable,
            raws::RDMA_CM_EVENT_REJECTED => Self::Rejected,
            raws::RDMA_CM_EVENT_ESTABLISHED => Self::Established,
            raws::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            raws::RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            other => Self::Other(other),
        }
    }
}

/// The attributes that take a queue pair of this identifier to `state`.
unsafe fn attributes(id: Id, state: ffi::ibv_qp_state::Type) -> Result<(ffi::ibv_qp_attr, i32)> {
    let mut attr = super::blank(state);
    let mut mask = 0;
    // SAFETY: the contract of this module; both outlive the call.
    check(unsafe { ffi::rdma_init_qp_attr(id.0.as_ptr(), &mut attr, &mut mask) })?;
    Ok((attr, mask))
}

unsafe fn modify(qp: Qp, mut attr: ffi::ibv_qp_attr, mask: i32) -> Result<()> {
    // SAFETY: the contract of this module; `attr` outlives the call.
    check(unsafe { ffi::ibv_modify_qp(qp.0.as_ptr(), &mut attr, mask) })
}

/// Reset → init: receives can be posted. The peer may do anything that a key allows it.
pub(crate) unsafe fn qp_to_init(id: Id, qp: Qp) -> Result<()> {
    // SAFETY: the contract of this module.
    let (mut attr, mask) = unsafe { attributes(id, ffi::ibv_qp_state::IBV_QPS_INIT) }?;
    attr.qp_access_flags = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
    let mask = mask | super::Mask::IBV_QP_ACCESS_FLAGS.0 as i32;
    // SAFETY: as above.
    unsafe { modify(qp, attr, mask) }
}

/// Init → ready to receive → ready to send, once the identifier knows the peer's queue pair.
pub(crate) unsafe fn qp_to_rts(id: Id, qp: Qp, tuning: &Tuning) -> Result<()> {
    /// What some kernels set besides, and no provider takes: the MAC addresses of RoCE.
    const NOT_FOR_VERBS: i32 = 0xe0_0000;
    // SAFETY: the contract of this module.
    let (mut attr, mask) = unsafe { attributes(id, ffi::ibv_qp_state::IBV_QPS_RTR) }?;
    attr.max_dest_rd_atomic = tuning.responder_resources;
    attr.min_rnr_timer = tuning.rnr_timer;
    // SAFETY: as above.
    unsafe { modify(qp, attr, mask & !NOT_FOR_VERBS) }?;
    // SAFETY: as above.
    let (mut attr, mask) = unsafe { attributes(id, ffi::ibv_qp_state::IBV_QPS_RTS) }?;
    attr.timeout = tuning.ack_timeout;
    attr.retry_cnt = tuning.retries;
    attr.rnr_retry = RNR_RETRIES;
    attr.max_rd_atomic = tuning.initiator_depth;
    // SAFETY: as above.
    unsafe { modify(qp, attr, mask & !NOT_FOR_VERBS) }
}

/// For the errors of events.
pub(crate) const fn errno_of(status: i32) -> Errno {
    Errno(status.saturating_abs())
}
