//! RDMA of the kernel's sockets.

use super::kernel::KernelEndpoint;
use super::rdma::{Arrived, End, Loan, Operation, Rdma, Term};
use crate::kernel::{self, Attachment, Datagram, MapFlags, Memory, Notice, OpFlags, Status};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a call is repeated that the kernel cannot do yet: it registers memory through a connection, and
/// says `EAGAIN` while there is none, and `EINVAL` while it is being made, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(5);

/// Pieces of local memory are apart so far, and begin at odd places.
const PAGE: usize = 4096;

/// Memory that the kernel has an HCA read and write.
#[derive(Default)]
pub(super) struct Held {
    loans: Mutex<BTreeMap<u64, (Memory, Range<usize>)>>,
    local: Mutex<BTreeMap<u64, Local>>,
    notices: Mutex<VecDeque<Notice>>,
}

/// The local memory of an operation, and which parts of it.
type Local = (Memory, Vec<Range<usize>>);

impl Rdma for KernelEndpoint {
    fn lend(&self, loan: Loan, message: &[u8], to: SocketAddr) -> Result<u64> {
        let range = loan.skew..loan.skew + loan.content.len();
        let memory = Memory::new(range.end)?;
        memory.write(range.start, &loan.content)?;
        let mut flags = MapFlags::WRITE;
        flags.set(MapFlags::USE_ONCE, loan.term != Term::Recall);
        flags.set(MapFlags::INVALIDATE, loan.term == Term::UseKills);
        let lend = Attachment::Lend(&memory, range.clone(), flags);
        let cookie = patiently(|| match self.socket.may_lend(to.ip())? {
            true => self.socket.send(message, to, &lend),
            false => Err(ErrorKind::WouldBlock.into()),
        });
        let cookie = cookie
            .context("memory could not be lent")?
            .context("no cookie")?;
        lock(&self.held.loans).insert(cookie, (memory, range));
        Ok(cookie)
    }

    fn recall(&self, cookie: u64) -> Result<bool> {
        match self.socket.free(cookie, true) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn content(&self, cookie: u64) -> Result<Vec<u8>> {
        let loans = lock(&self.held.loans);
        let (memory, range) = loans.get(&cookie).context("nothing was lent so")?;
        let mut content = vec![0; range.len()];
        memory.read(range.start, &mut content)?;
        Ok(content)
    }

    fn operate(&self, operation: Operation, message: &[u8], to: SocketAddr) -> Result<()> {
        let mut ranges = Vec::new();
        let mut at = 1;
        for piece in &operation.pieces {
            ranges.push(at..at + piece.len());
            at = (at + piece.len()).next_multiple_of(PAGE) + 2 * ranges.len() + 1;
        }
        let memory = Memory::new(at)?;
        for (range, piece) in ranges.iter().zip(&operation.pieces) {
            memory.write(range.start, piece)?;
        }
        let flags = if operation.write {
            OpFlags::WRITE | OpFlags::NOTIFY
        } else {
            OpFlags::FENCE | OpFlags::NOTIFY
        };
        let operate = Attachment::Operate(kernel::Operation {
            cookie: operation.cookie,
            offset: operation.offset,
            local: (&memory, &ranges),
            flags,
            token: operation.token,
        });
        patiently(|| self.socket.send(message, to, &operate))
            .context("the operation was not taken")?;
        lock(&self.held.local).insert(operation.token, (memory, ranges));
        Ok(())
    }

    fn next(&self, at_most: Duration) -> Result<Option<Arrived>> {
        if let Some(notice) = lock(&self.held.notices).pop_front() {
            return self.ended(notice).map(Some);
        }
        let mut buffer = lock(&self.buffer);
        let datagram = match self.socket.receive(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.socket.wait(false, at_most)?;
                return Ok(None);
            }
            datagram => datagram?,
        };
        match datagram {
            Datagram::Message { from, len, cookie } => {
                let payload = buffer.get(..len).context("a message is too long")?.to_vec();
                Ok(Some(Arrived::Message {
                    from,
                    payload,
                    cookie,
                }))
            }
            Datagram::Notices(notices) => {
                lock(&self.held.notices).extend(notices);
                Ok(None)
            }
            Datagram::Uncongested(_) => Ok(None),
        }
    }
}

impl KernelEndpoint {
    fn ended(&self, notice: Notice) -> Result<Arrived> {
        let held = lock(&self.held.local).remove(&notice.token);
        let (memory, ranges) = held.context("an operation has ended that did not begin")?;
        let mut local = Vec::new();
        for range in ranges {
            let begin = local.len();
            local.resize(begin + range.len(), 0);
            memory.read(range.start, &mut local[begin..])?;
        }
        let end = match notice.status {
            Status::Success => End::Success,
            Status::RemoteError => End::RemoteError,
            Status::Dropped => End::Dropped,
            Status::Canceled | Status::Other(_) => End::Other,
        };
        Ok(Arrived::Ended {
            token: notice.token,
            end,
            local,
        })
    }
}

fn patiently<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call() {
            Err(error) if is_early(&error) && Instant::now() < deadline => {
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

fn is_early(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::EINVAL)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
