//! The queues of a connection: a queue pair with one completion queue that can be waited for.

use super::{Context, Cq, Errno, Pd, PostError, Qp, Result, check, check_pointer, ffi};
use super::{MaybeUninit, NonNull, SIGNALLED, place_of, ptr};
use std::os::fd::BorrowedFd;

/// Where a completion queue says that something has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bell(NonNull<ffi::ibv_comp_channel>);

// SAFETY: libibverbs may be called with one object from several threads.
unsafe impl Send for Bell {}
// SAFETY: as above; the handle itself never changes.
unsafe impl Sync for Bell {}

/// Makes a bell that never blocks.
pub(crate) unsafe fn create_bell(context: Context) -> Result<Bell> {
    // SAFETY: the contract of this module.
    let raw = unsafe { ffi::ibv_create_comp_channel(context.0.as_ptr()) };
    let bell = check_pointer(raw).map(Bell)?;
    // SAFETY: just made.
    let nonblocking = unsafe { rustix::io::ioctl_fionbio(bell_fd(bell), true) };
    nonblocking.map_err(|error| {
        // SAFETY: just made, and not used again.
        let _ = unsafe { destroy_bell(bell) };
        Errno(error.raw_os_error())
    })?;
    Ok(bell)
}

/// Its completion queue must be gone.
pub(crate) unsafe fn destroy_bell(bell: Bell) -> Result<()> {
    // SAFETY: the contract of this module.
    check(unsafe { ffi::ibv_destroy_comp_channel(bell.0.as_ptr()) })
}

/// Readable after the queue has been [armed](arm) and something has completed.
pub(crate) unsafe fn bell_fd<'b>(bell: Bell) -> BorrowedFd<'b> {
    // SAFETY: the contract of this module.
    let fd = unsafe { bell.0.as_ref() }.fd;
    // SAFETY: the bell has it open while it exists.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Takes one ring of the bell away; `false` if there was none.
pub(crate) unsafe fn silence(bell: Bell) -> bool {
    let (mut cq, mut user) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the contract of this module; both outlive the call.
    let code = unsafe { ffi::ibv_get_cq_event(bell.0.as_ptr(), &mut cq, &mut user) };
    if code != 0 || cq.is_null() {
        return false;
    }
    // SAFETY: the queue is that of the event, which is counted as seen.
    unsafe { ffi::ibv_ack_cq_events(cq, 1) };
    true
}

pub(crate) unsafe fn create_cq(context: Context, entries: u32, bell: Bell) -> Result<Cq> {
    let entries = i32::try_from(entries).unwrap_or(i32::MAX);
    let (context, none) = (context.0.as_ptr(), ptr::null_mut());
    // SAFETY: the contract of this module; no user pointer.
    let cq = unsafe { ffi::ibv_create_cq(context, entries, none, bell.0.as_ptr(), 0) };
    check_pointer(cq).map(Cq)
}

/// Has the bell ring at the next completion. What has completed before must be looked for after
/// this call: it may not ring for it.
pub(crate) unsafe fn arm(cq: Cq) -> Result<()> {
    // SAFETY: the contract of this module.
    let context = unsafe { cq.0.as_ref() }.context;
    // SAFETY: the queue's device is open.
    if unsafe { (*context).ops.req_notify_cq.is_none() } {
        return Err(Errno::EOPNOTSUPP);
    }
    // SAFETY: the contract of this module.
    check(unsafe { ffi::ibv_req_notify_cq(cq.0.as_ptr(), 0) })
}

/// How large a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    /// Pieces of local memory of one work request.
    pub(crate) elements: u32,
}

/// Makes an RC queue pair. Returns it with its number.
pub(crate) unsafe fn create_qp(pd: Pd, cq: Cq, size: Size) -> Result<(Qp, u32)> {
    let mut attr = ffi::ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: cq.0.as_ptr(),
        recv_cq: cq.0.as_ptr(),
        srq: ptr::null_mut(),
        cap: ffi::ibv_qp_cap {
            max_send_wr: size.sends,
            max_recv_wr: size.receives,
            max_send_sge: size.elements,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: the contract of this module; `attr` outlives the call.
    let qp = check_pointer(unsafe { ffi::ibv_create_qp(pd.0.as_ptr(), &mut attr) })?;
    // SAFETY: just made; its number does not change.
    let number = unsafe { qp.as_ref() }.qp_num;
    Ok((Qp(qp), number))
}

/// A piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) key: u32,
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Send,
    Write {
        addr: u64,
        key: u32,
    },
    Read {
        addr: u64,
        key: u32,
    },
    FetchAdd {
        addr: u64,
        key: u32,
        add: u64,
    },
    CompareSwap {
        addr: u64,
        key: u32,
        compare: u64,
        swap: u64,
    },
}

/// A work request whose pieces are in a list of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) action: Action,
    /// How many pieces it has: the next of the list.
    pub(crate) pieces: u32,
    pub(crate) signalled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
}

/// Room to write work requests into, kept so that posting allocates nothing.
#[derive(Default)]
pub(crate) struct Room {
    sends: Vec<ffi::ibv_send_wr>,
    receives: Vec<ffi::ibv_recv_wr>,
    elements: Vec<ffi::ibv_sge>,
}

// SAFETY: what pointers it holds are followed only during the calls below, which write them anew.
unsafe impl Send for Room {}

/// Posts `requests` as one chain, with one doorbell. `pieces` has the pieces of all, in order.
///
/// Beyond the contract of this module, the memory must be there until the requests have completed,
/// or the queue pair is gone.
pub(crate) unsafe fn post_sends(
    qp: Qp,
    room: &mut Room,
    requests: &[Request],
    pieces: &[Piece],
) -> std::result::Result<(), PostError> {
    room.elements.clear();
    room.elements.extend(pieces.iter().map(element));
    room.sends.clear();
    room.sends.extend(requests.iter().map(send));
    let mut first_piece = 0;
    let elements = room.elements.as_mut_ptr();
    let first = room.sends.as_mut_ptr();
    let count = room.sends.len();
    for (place, (request, raw)) in requests.iter().zip(&mut room.sends).enumerate() {
        // The pieces that there are bound what the request may name.
        let pieces_left = pieces.len().saturating_sub(first_piece);
        let own = (request.pieces as usize).min(pieces_left);
        if own > 0 {
            raw.sg_list = elements.wrapping_add(first_piece);
            raw.num_sge = own as i32;
            first_piece += own;
        }
        if place + 1 < count {
            raw.next = first.wrapping_add(place + 1);
        }
    }
    if count == 0 {
        return Ok(());
    }
    let mut bad = ptr::null_mut();
    // SAFETY: the contract of this module; the chain ends inside of the vector and is copied before
    // the call returns.
    let code = unsafe { ffi::ibv_post_send(qp.0.as_ptr(), first, &mut bad) };
    check(code).map_err(|errno| PostError {
        posted: place_of(first, bad, count),
        errno,
    })
}

/// Posts receives of one piece each, as one chain. `slots` has an id with each piece.
///
/// Beyond the contract of this module, the memory must be there until they have completed, or the
/// queue pair is gone.
pub(crate) unsafe fn post_receives(
    qp: Qp,
    room: &mut Room,
    slots: impl Iterator<Item = (u64, Piece)>,
) -> std::result::Result<usize, PostError> {
    room.elements.clear();
    room.receives.clear();
    for (id, piece) in slots {
        room.elements.push(element(&piece));
        room.receives.push(ffi::ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 1,
        });
    }
    let elements = room.elements.as_mut_ptr();
    let first = room.receives.as_mut_ptr();
    let count = room.receives.len();
    for (place, raw) in room.receives.iter_mut().enumerate() {
        raw.sg_list = elements.wrapping_add(place);
        if place + 1 < count {
            raw.next = first.wrapping_add(place + 1);
        }
    }
    if count == 0 {
        return Ok(0);
    }
    let mut bad: *mut ffi::ibv_recv_wr = ptr::null_mut();
    // SAFETY: as in `post_sends`.
    let code = unsafe { ffi::ibv_post_recv(qp.0.as_ptr(), first, &mut bad) };
    check(code).map(|()| count).map_err(|errno| PostError {
        posted: place_of(first, bad, count),
        errno,
    })
}

fn element(piece: &Piece) -> ffi::ibv_sge {
    ffi::ibv_sge {
        addr: piece.addr,
        length: piece.len,
        lkey: piece.key,
    }
}

fn send(request: &Request) -> ffi::ibv_send_wr {
    const FENCE: u32 = ffi::ibv_send_flags::IBV_SEND_FENCE.0;
    const SOLICITED: u32 = ffi::ibv_send_flags::IBV_SEND_SOLICITED.0;
    // SAFETY: numbers and pointers, all of which may be zero.
    let mut raw = unsafe { MaybeUninit::<ffi::ibv_send_wr>::zeroed().assume_init() };
    raw.wr_id = request.id;
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    raw.send_flags = flag(request.signalled, SIGNALLED)
        | flag(request.solicited, SOLICITED)
        | flag(request.fence, FENCE);
    let rdma = |addr, key| ffi::wr_t {
        rdma: ffi::rdma_t {
            remote_addr: addr,
            rkey: key,
        },
    };
    let atomic = |addr, key, compare_add, swap| ffi::wr_t {
        atomic: ffi::atomic_t {
            remote_addr: addr,
            compare_add,
            swap,
            rkey: key,
        },
    };
    use ffi::ibv_wr_opcode as opcodes;
    (raw.opcode, raw.wr) = match request.action {
        Action::Send => (opcodes::IBV_WR_SEND, raw.wr),
        Action::Write { addr, key } => (opcodes::IBV_WR_RDMA_WRITE, rdma(addr, key)),
        Action::Read { addr, key } => (opcodes::IBV_WR_RDMA_READ, rdma(addr, key)),
        Action::FetchAdd { addr, key, add } => (
            opcodes::IBV_WR_ATOMIC_FETCH_AND_ADD,
            atomic(addr, key, add, 0),
        ),
        Action::CompareSwap {
            addr,
            key,
            compare,
            swap,
        } => (
            opcodes::IBV_WR_ATOMIC_CMP_AND_SWP,
            atomic(addr, key, compare, swap),
        ),
    };
    raw
}
