//! The one module that names the binding to libibverbs and librdmacm (`rdma-sys`).
//!
//! It turns their calling conventions into handles, plain structs and `Result`s, and nothing
//! more: who owns what, and in which order it goes, is the business of the files that call it.
//! Another binding takes the place of this one by a rewrite of this module. Here are the devices and
//! what is made in a domain; [`rc`] has the queues of a connection, [`cm`] the connection manager.
//!
//! All functions that take a handle are `unsafe` with the same contract: the object behind the
//! handle exists, and so does what it was made from. libibverbs is thread-safe, so handles may go
//! to any thread. What `rdma-sys` gets wrong is kept out here: `ibv_inc_rkey` is not called since
//! it overflows, and its wrappers that unwrap a missing operation are called only after a look.

pub(crate) mod cm;
pub(crate) mod rc;

use crate::error::Errno;
use crate::post::Work;
use rdma_sys as ffi;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

type Result<T> = std::result::Result<T, Errno>;

macro_rules! handle {
    ($($name:ident = $raw:ident),+ $(,)?) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name(NonNull<ffi::$raw>);

        // SAFETY: libibverbs may be called with one object from several threads.
        unsafe impl Send for $name {}
        // SAFETY: as above; the handle itself never changes.
        unsafe impl Sync for $name {}
    )+};
}

handle![
    Context = ibv_context,
    Pd = ibv_pd,
    Mr = ibv_mr,
    Mw = ibv_mw,
    Cq = ibv_cq,
    Qp = ibv_qp,
];

/// Access flags, with libibverbs' values.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const WINDOW_BIND: u32 = 1 << 4;
}

fn errno() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// For functions that return an errno.
fn check(code: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(errno()),
        code => Err(Errno(code.abs())),
    }
}

/// For functions that return a pointer, and null with errno set.
fn check_pointer<T>(pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(errno)
}

/// All devices there are.
pub(crate) struct DeviceList {
    list: NonNull<*mut ffi::ibv_device>,
    len: usize,
}

impl DeviceList {
    /// Asks the system. No list at all is an error; an empty one is not.
    pub(crate) fn get() -> Result<Self> {
        let mut len = 0;
        // SAFETY: `len` outlives the call.
        let list = unsafe { ffi::ibv_get_device_list(&mut len) };
        let list = check_pointer(list)?;
        let len = usize::try_from(len).unwrap_or(0);
        Ok(Self { list, len })
    }

    fn devices(&self) -> &[*mut ffi::ibv_device] {
        // SAFETY: the list has `len` entries and lives until it is freed in `drop`.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.len) }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let name = |&device: &*mut ffi::ibv_device| {
            // SAFETY: the device is an entry of a live list.
            let name = unsafe { ffi::ibv_get_device_name(device) };
            // SAFETY: libibverbs returns a string that lives as long as the list.
            let name = unsafe { CStr::from_ptr(name) };
            name.to_string_lossy().into_owned()
        };
        self.devices().iter().map(name).collect()
    }

    /// Opens the device at `place` of the list.
    pub(crate) fn open(&self, place: usize) -> Result<Context> {
        let Some(&device) = self.devices().get(place) else {
            return Err(Errno::ENODEV);
        };
        // SAFETY: the device is an entry of a live list.
        check_pointer(unsafe { ffi::ibv_open_device(device) }).map(Context)
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: got from `ibv_get_device_list` and freed once.
        unsafe { ffi::ibv_free_device_list(self.list.as_ptr()) };
    }
}

/// Closes a device.
pub(crate) unsafe fn close(context: Context) -> Result<()> {
    // SAFETY: the contract of this file.
    check(unsafe { ffi::ibv_close_device(context.0.as_ptr()) })
}

/// What a device says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceAttr {
    pub(crate) max_mr_bytes: u64,
    pub(crate) max_mr: u32,
    pub(crate) max_mw: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_elements: u32,
    pub(crate) windows_1: bool,
    pub(crate) windows_2: bool,
}

pub(crate) unsafe fn query_device(context: Context) -> Result<DeviceAttr> {
    let mut attr = MaybeUninit::<ffi::ibv_device_attr>::zeroed();
    // SAFETY: the contract of this file; `attr` outlives the call.
    check(unsafe { ffi::ibv_query_device(context.0.as_ptr(), attr.as_mut_ptr()) })?;
    // SAFETY: plain numbers, all of which may be zero.
    let attr = unsafe { attr.assume_init() };
    let flags = ffi::ibv_device_cap_flags(attr.device_cap_flags);
    let has = |flag: ffi::ibv_device_cap_flags| flags.0 & flag.0 != 0;
    type Caps = ffi::ibv_device_cap_flags;
    Ok(DeviceAttr {
        max_mr_bytes: attr.max_mr_size,
        max_mr: attr.max_mr.unsigned_abs(),
        max_mw: attr.max_mw.unsigned_abs(),
        max_qp_wr: attr.max_qp_wr.unsigned_abs(),
        max_cqe: attr.max_cqe.unsigned_abs(),
        max_rd_atomic: attr.max_qp_rd_atom.clamp(1, 16) as u8,
        max_elements: attr.max_sge.unsigned_abs(),
        windows_1: has(Caps::IBV_DEVICE_MEM_WINDOW),
        windows_2: has(Caps::IBV_DEVICE_MEM_WINDOW_TYPE_2B)
            && has(Caps::IBV_DEVICE_MEM_MGT_EXTENSIONS),
    })
}

/// What a port says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortAttr {
    pub(crate) state: u32,
    pub(crate) mtu: u32,
    pub(crate) gids: u32,
    pub(crate) lid: u16,
    pub(crate) ethernet: bool,
}

pub(crate) unsafe fn query_port(context: Context, port: u8) -> Result<PortAttr> {
    /// `IBV_LINK_LAYER_ETHERNET`.
    const ETHERNET: u8 = 2;
    let mut attr = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
    // The function of the library takes an older, shorter form of the struct; C code gets at the
    // longer one through a macro.
    let short = attr.as_mut_ptr().cast();
    // SAFETY: the contract of this file; `attr` is longer than what is written.
    check(unsafe { ffi::ibv_query_port(context.0.as_ptr(), port, short) })?;
    // SAFETY: plain numbers, all of which may be zero.
    let attr = unsafe { attr.assume_init() };
    Ok(PortAttr {
        state: attr.state,
        mtu: attr.active_mtu,
        gids: attr.gid_tbl_len.unsigned_abs(),
        lid: attr.lid,
        ethernet: attr.link_layer == ETHERNET,
    })
}

pub(crate) unsafe fn query_gid(context: Context, port: u8, index: u8) -> Result<[u8; 16]> {
    let mut gid = ffi::ibv_gid { raw: [0; 16] };
    // SAFETY: the contract of this file; `gid` outlives the call.
    check(unsafe { ffi::ibv_query_gid(context.0.as_ptr(), port, i32::from(index), &mut gid) })?;
    // SAFETY: all of the union is bytes.
    Ok(unsafe { gid.raw })
}

pub(crate) fn fork_init() -> Result<()> {
    // SAFETY: has no arguments; libibverbs answers EINVAL if it comes too late.
    check(unsafe { ffi::ibv_fork_init() })
}

pub(crate) unsafe fn alloc_pd(context: Context) -> Result<Pd> {
    // SAFETY: the contract of this file.
    check_pointer(unsafe { ffi::ibv_alloc_pd(context.0.as_ptr()) }).map(Pd)
}

pub(crate) unsafe fn dealloc_pd(pd: Pd) -> Result<()> {
    // SAFETY: the contract of this file.
    check(unsafe { ffi::ibv_dealloc_pd(pd.0.as_ptr()) })
}

/// Registers the `len` bytes at `start`, the first of which work requests and peers name by `iova`:
/// as far into a page as it is. The caller answers for what peers and the device then do to them.
pub(crate) unsafe fn reg_mr(
    pd: Pd,
    start: *mut u8,
    len: usize,
    iova: u64,
    flags: u32,
) -> Result<Mr> {
    let pd = pd.0.as_ptr();
    // SAFETY: the contract of this file; the memory is the caller's promise.
    let mr = unsafe { ffi::ibv_reg_mr_iova(pd, start.cast(), len, iova, flags as i32) };
    check_pointer(mr).map(Mr)
}

pub(crate) unsafe fn dereg_mr(mr: Mr) -> Result<()> {
    // SAFETY: the contract of this file.
    check(unsafe { ffi::ibv_dereg_mr(mr.0.as_ptr()) })
}

/// Local and remote key.
pub(crate) unsafe fn mr_keys(mr: Mr) -> (u32, u32) {
    // SAFETY: the contract of this file; the keys do not change after the registration.
    let mr = unsafe { mr.0.as_ref() };
    (mr.lkey, mr.rkey)
}

/// The two types of memory windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowType {
    One,
    Two,
}

pub(crate) unsafe fn alloc_mw(pd: Pd, kind: WindowType) -> Result<Mw> {
    let kind = match kind {
        WindowType::One => ffi::ibv_mw_type::IBV_MW_TYPE_1,
        WindowType::Two => ffi::ibv_mw_type::IBV_MW_TYPE_2,
    };
    // SAFETY: the contract of this file. Without the operation the answer is `None`, after a
    // failure it is null.
    match unsafe { ffi::ibv_alloc_mw(pd.0.as_ptr(), kind) } {
        Some(window) => check_pointer(window).map(Mw),
        None => Err(Errno::EOPNOTSUPP),
    }
}

pub(crate) unsafe fn dealloc_mw(window: Mw) -> Result<()> {
    // SAFETY: the contract of this file; who can allocate windows can free them.
    check(unsafe { ffi::ibv_dealloc_mw(window.0.as_ptr()) })
}

/// The window's key, as libibverbs remembers it.
pub(crate) unsafe fn window_key(window: Mw) -> u32 {
    // SAFETY: the contract of this file. The caller alone binds this window.
    unsafe { (*window.0.as_ptr()).rkey }
}

/// Corrects what libibverbs remembers: it does not follow a type 2 bind, nor a type 1 bind that
/// fails after it was posted.
pub(crate) unsafe fn set_window_key(window: Mw, key: u32) {
    // SAFETY: as above.
    unsafe { (*window.0.as_ptr()).rkey = key };
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) parent: Mr,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) flags: u32,
}

impl Target {
    const fn raw(self) -> ffi::ibv_mw_bind_info {
        ffi::ibv_mw_bind_info {
            mr: self.parent.0.as_ptr(),
            addr: self.addr,
            length: self.len,
            mw_access_flags: self.flags,
        }
    }
}

/// Posts a bind of a type 1 window (to no bytes: an unbind). libibverbs chooses the key.
pub(crate) unsafe fn bind_type_1(
    qp: Qp,
    window: Mw,
    id: u64,
    signalled: bool,
    target: Target,
) -> Result<()> {
    let mut bind = ffi::ibv_mw_bind {
        wr_id: id,
        send_flags: if signalled { SIGNALLED } else { 0 },
        bind_info: target.raw(),
    };
    // SAFETY: the contract of this file.
    let context = unsafe { (*window.0.as_ptr()).context };
    // SAFETY: a window's device is open.
    if unsafe { (*context).ops.bind_mw.is_none() } {
        return Err(Errno::EOPNOTSUPP);
    }
    // SAFETY: the contract of this file; `bind` is copied before the call returns.
    check(unsafe { ffi::ibv_bind_mw(qp.0.as_ptr(), window.0.as_ptr(), &mut bind) })
}

pub(crate) unsafe fn create_cq(context: Context, entries: u32) -> Result<Cq> {
    let entries = i32::try_from(entries).unwrap_or(i32::MAX);
    let none = ptr::null_mut();
    // SAFETY: the contract of this file; no channel, no user pointer.
    let cq = unsafe { ffi::ibv_create_cq(context.0.as_ptr(), entries, none, ptr::null_mut(), 0) };
    check_pointer(cq).map(Cq)
}

pub(crate) unsafe fn destroy_cq(cq: Cq) -> Result<()> {
    // SAFETY: the contract of this file.
    check(unsafe { ffi::ibv_destroy_cq(cq.0.as_ptr()) })
}

/// A completion as it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawCompletion {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) bytes: u32,
    pub(crate) flags: u32,
    /// Where the flags say that the peer has invalidated one.
    pub(crate) key: u32,
}

/// Completions taken at a time.
pub(crate) const POLL_BATCH: usize = 16;

/// Takes up to [`POLL_BATCH`] completions; says how many.
pub(crate) unsafe fn poll_cq(cq: Cq, mut take: impl FnMut(RawCompletion)) -> Result<usize> {
    let mut batch = [const { MaybeUninit::<ffi::ibv_wc>::zeroed() }; POLL_BATCH];
    let first = batch.as_mut_ptr().cast();
    // SAFETY: the contract of this file; there is room for as many as are asked for.
    let got = unsafe { ffi::ibv_poll_cq(cq.0.as_ptr(), POLL_BATCH as i32, first) };
    let got = usize::try_from(got).map_err(|_| errno())?;
    for completion in batch.iter().take(got) {
        // SAFETY: libibverbs has filled the first `got`.
        let completion = unsafe { completion.assume_init_ref() };
        take(RawCompletion {
            id: completion.wr_id,
            status: completion.status,
            bytes: completion.byte_len,
            flags: completion.wc_flags,
            // SAFETY: both halves of the union are 32-bit numbers, and where libibverbs wrote
            // neither there are zeros.
            key: unsafe { completion.imm_data_invalidated_rkey_union.invalidated_rkey },
        });
    }
    Ok(got)
}

/// How large a queue pair is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpSize {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) inline_bytes: u32,
}

/// Makes an RC queue pair. Returns it with its number and what it was given.
pub(crate) unsafe fn create_qp(
    pd: Pd,
    send: Cq,
    receive: Cq,
    size: QpSize,
) -> Result<(Qp, u32, QpSize)> {
    let mut attr = ffi::ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: send.0.as_ptr(),
        recv_cq: receive.0.as_ptr(),
        srq: ptr::null_mut(),
        cap: ffi::ibv_qp_cap {
            max_send_wr: size.sends,
            max_recv_wr: size.receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: size.inline_bytes,
        },
        qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: the contract of this file; `attr` outlives the call.
    let qp = check_pointer(unsafe { ffi::ibv_create_qp(pd.0.as_ptr(), &mut attr) })?;
    // SAFETY: just made; its number does not change.
    let number = unsafe { qp.as_ref() }.qp_num;
    let given = QpSize {
        sends: attr.cap.max_send_wr,
        receives: attr.cap.max_recv_wr,
        inline_bytes: attr.cap.max_inline_data,
    };
    Ok((Qp(qp), number, given))
}

pub(crate) unsafe fn destroy_qp(qp: Qp) -> Result<()> {
    // SAFETY: the contract of this file.
    check(unsafe { ffi::ibv_destroy_qp(qp.0.as_ptr()) })
}

/// The way to the other queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) peer_number: u32,
    pub(crate) peer_psn: u32,
    pub(crate) peer_gid: [u8; 16],
    pub(crate) peer_lid: u16,
    pub(crate) gid_index: u8,
    pub(crate) global: bool,
    pub(crate) port: u8,
    pub(crate) mtu: u32,
    pub(crate) rd_atomic: u8,
    pub(crate) psn: u32,
    pub(crate) ack_timeout: u8,
    pub(crate) retries: u8,
}

type Mask = ffi::ibv_qp_attr_mask;

unsafe fn modify(qp: Qp, mut attr: ffi::ibv_qp_attr, mask: Mask) -> Result<()> {
    // SAFETY: the contract of this file; `attr` outlives the call.
    check(unsafe { ffi::ibv_modify_qp(qp.0.as_ptr(), &mut attr, mask.0 as i32) })
}

fn blank(state: ffi::ibv_qp_state::Type) -> ffi::ibv_qp_attr {
    // SAFETY: numbers only, all of which may be zero.
    let mut attr = unsafe { MaybeUninit::<ffi::ibv_qp_attr>::zeroed().assume_init() };
    attr.qp_state = state;
    attr
}

/// Reset → init. Peers may do anything that a key allows them.
pub(crate) unsafe fn qp_to_init(qp: Qp, port: u8) -> Result<()> {
    let mut attr = blank(ffi::ibv_qp_state::IBV_QPS_INIT);
    attr.port_num = port;
    attr.qp_access_flags = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
    let mask = Mask::IBV_QP_STATE
        | Mask::IBV_QP_PKEY_INDEX
        | Mask::IBV_QP_PORT
        | Mask::IBV_QP_ACCESS_FLAGS;
    // SAFETY: the contract of this file.
    unsafe { modify(qp, attr, mask) }
}

/// Init → ready to receive.
pub(crate) unsafe fn qp_to_rtr(qp: Qp, path: &Path) -> Result<()> {
    /// 0.64 ms between two tries when the receiver has no buffer.
    const RNR_TIMER: u8 = 12;
    /// Hops that a packet may take.
    const HOPS: u8 = 64;
    let mut attr = blank(ffi::ibv_qp_state::IBV_QPS_RTR);
    attr.path_mtu = path.mtu;
    attr.dest_qp_num = path.peer_number;
    attr.rq_psn = path.peer_psn;
    attr.max_dest_rd_atomic = path.rd_atomic;
    attr.min_rnr_timer = RNR_TIMER;
    attr.ah_attr.port_num = path.port;
    attr.ah_attr.dlid = path.peer_lid;
    if path.global {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid = ffi::ibv_gid { raw: path.peer_gid };
        attr.ah_attr.grh.sgid_index = path.gid_index;
        attr.ah_attr.grh.hop_limit = HOPS;
    }
    let mask = Mask::IBV_QP_STATE
        | Mask::IBV_QP_AV
        | Mask::IBV_QP_PATH_MTU
        | Mask::IBV_QP_DEST_QPN
        | Mask::IBV_QP_RQ_PSN
        | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
        | Mask::IBV_QP_MIN_RNR_TIMER;
    // SAFETY: the contract of this file.
    unsafe { modify(qp, attr, mask) }
}

/// Ready to receive → ready to send.
pub(crate) unsafe fn qp_to_rts(qp: Qp, path: &Path) -> Result<()> {
    let mut attr = blank(ffi::ibv_qp_state::IBV_QPS_RTS);
    attr.sq_psn = path.psn;
    attr.timeout = path.ack_timeout;
    attr.retry_cnt = path.retries;
    // For ever: a peer that is slow to receive is no failure, and how long to wait is up to who
    // waits.
    attr.rnr_retry = 7;
    attr.max_rd_atomic = path.rd_atomic;
    let mask = Mask::IBV_QP_STATE
        | Mask::IBV_QP_TIMEOUT
        | Mask::IBV_QP_RETRY_CNT
        | Mask::IBV_QP_RNR_RETRY
        | Mask::IBV_QP_SQ_PSN
        | Mask::IBV_QP_MAX_QP_RD_ATOMIC;
    // SAFETY: the contract of this file.
    unsafe { modify(qp, attr, mask) }
}

/// Whatever state → error: nothing is sent or received any more.
pub(crate) unsafe fn qp_to_error(qp: Qp) -> Result<()> {
    let attr = blank(ffi::ibv_qp_state::IBV_QPS_ERR);
    // SAFETY: the contract of this file.
    unsafe { modify(qp, attr, Mask::IBV_QP_STATE) }
}

/// Posts one receive into the `len` bytes at `addr`, which stay until the queue pair is gone.
pub(crate) unsafe fn post_receive(qp: Qp, id: u64, addr: u64, len: u32, lkey: u32) -> Result<()> {
    let mut element = ffi::ibv_sge {
        addr,
        length: len,
        lkey,
    };
    let mut request = ffi::ibv_recv_wr {
        wr_id: id,
        next: ptr::null_mut(),
        sg_list: &mut element,
        num_sge: 1,
    };
    let mut bad = ptr::null_mut();
    // SAFETY: the contract of this file; the request is copied before the call returns.
    check(unsafe { ffi::ibv_post_recv(qp.0.as_ptr(), &mut request, &mut bad) })
}

const SIGNALLED: u32 = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
const INLINE: u32 = ffi::ibv_send_flags::IBV_SEND_INLINE.0;

/// A chain of which at most the first requests were posted: those may be under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostError {
    pub(crate) posted: usize,
    pub(crate) errno: Errno,
}

/// Room to write work requests into, kept so that posting allocates nothing. Both are empty but for
/// their capacity.
#[derive(Default)]
pub(crate) struct Scratch {
    requests: Vec<ffi::ibv_send_wr>,
    elements: Vec<ffi::ibv_sge>,
}

// SAFETY: nothing in it outlives a call of `post_send`.
unsafe impl Send for Scratch {}

/// Posts `works` as one chain, with one doorbell. The ids count up from `first_id`; `signalled`
/// says by id which of them complete with a completion.
///
/// Beyond the contract of this file, windows, registrations and local memory that the works name
/// must exist until the works are done.
pub(crate) unsafe fn post_send<'w>(
    qp: Qp,
    scratch: &mut Scratch,
    first_id: u64,
    works: impl ExactSizeIterator<Item = Work<'w>>,
    signalled: impl Fn(u64) -> bool,
) -> std::result::Result<(), PostError> {
    let count = works.len();
    scratch.requests.reserve(count);
    scratch.elements.reserve(count);
    let requests = scratch.requests.as_mut_ptr();
    let elements = scratch.elements.as_mut_ptr();
    let mut last: *mut ffi::ibv_send_wr = ptr::null_mut();
    for ((place, id), work) in (first_id..).enumerate().take(count).zip(works) {
        let request = requests.wrapping_add(place);
        // SAFETY: there is room for `count`. Numbers and pointers, all of which may be zero.
        unsafe { request.write_bytes(0, 1) };
        let flags = if signalled(id) { SIGNALLED } else { 0 };
        // SAFETY: just written, and nobody else looks at it.
        fill(unsafe { &mut *request }, id, &work, flags);
        if let Some(content) = element(&work) {
            let element = elements.wrapping_add(place);
            // SAFETY: there is room for `count`.
            unsafe { element.write(content) };
            // SAFETY: written above.
            let request = unsafe { &mut *request };
            request.sg_list = element;
            request.num_sge = 1;
        }
        if !last.is_null() {
            // SAFETY: the one before, written in the round before.
            unsafe { (*last).next = request };
        }
        last = request;
    }
    if last.is_null() {
        return Ok(());
    }
    let mut bad = ptr::null_mut();
    // SAFETY: the contract of this file; the chain ends inside of the vector and is copied before
    // the call returns.
    let code = unsafe { ffi::ibv_post_send(qp.0.as_ptr(), requests, &mut bad) };
    check(code).map_err(|errno| PostError {
        posted: place_of(requests, bad, count),
        errno,
    })
}

/// Where in the chain `bad` is, and behind its end if the provider did not say: one whose doorbell fails has put
/// all of it into the queue.
fn place_of<R>(first: *const R, bad: *const R, len: usize) -> usize {
    let bytes = bad.addr().checked_sub(first.addr());
    bytes.map_or(len, |bytes| len.min(bytes / size_of::<R>()))
}

/// The local memory of a request, if it has any.
fn element(work: &Work<'_>) -> Option<ffi::ibv_sge> {
    let (addr, length, lkey) = match work {
        Work::Send { message } | Work::SendInvalidating { message, .. } => (
            message.as_ptr().expose_provenance() as u64,
            message.len() as u32,
            0,
        ),
        Work::Write { local, .. } | Work::Read { local, .. } => (local.addr, local.len, local.key),
        Work::Bind { .. } | Work::Invalidate { .. } => return None,
    };
    (length > 0).then_some(ffi::ibv_sge { addr, length, lkey })
}

/// Writes what differs from zero, apart from pointers to other requests and elements.
#[inline]
fn fill(request: &mut ffi::ibv_send_wr, id: u64, work: &Work<'_>, flags: u32) {
    request.wr_id = id;
    request.send_flags = flags;
    let invalidated = |key| ffi::imm_data_invalidated_rkey_union_t {
        invalidated_rkey: key,
    };
    match *work {
        Work::Bind {
            window,
            key,
            target,
        } => {
            request.opcode = ffi::ibv_wr_opcode::IBV_WR_BIND_MW;
            request.bind_mw_tso_union.bind_mw = ffi::bind_mw_t {
                mw: window.0.as_ptr(),
                rkey: key,
                bind_info: target.raw(),
            };
        }
        Work::Invalidate { key } => {
            request.opcode = ffi::ibv_wr_opcode::IBV_WR_LOCAL_INV;
            request.imm_data_invalidated_rkey_union = invalidated(key);
        }
        Work::Send { .. } => {
            request.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND;
            request.send_flags |= INLINE;
        }
        Work::SendInvalidating { key, .. } => {
            request.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
            request.send_flags |= INLINE;
            request.imm_data_invalidated_rkey_union = invalidated(key);
        }
        Work::Write { remote, .. } => {
            request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            request.wr.rdma = ffi::rdma_t {
                remote_addr: remote.addr,
                rkey: remote.key,
            };
        }
        Work::Read { remote, .. } => {
            request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_READ;
            request.wr.rdma = ffi::rdma_t {
                remote_addr: remote.addr,
                rkey: remote.key,
            };
        }
    }
}
