//! The local side of RDMA operations: buffers that the HCA reads or fills.

use crate::arena::{Arena, ArenaBuffer};
use crate::cm::batch::{NotTaken, Refused};
use crate::cm::config::ConnectionConfig;
use crate::device::report_leak;
use crate::mr::Registration;
use crate::sys::rc::Piece;
use crate::{Domain, Error, sys};
use mr_core::DmaBuffer;
use std::ptr::NonNull;
use std::sync::Arc;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the buffers to the peer.
    Out,
    /// From the peer into the buffers.
    In,
}

/// Memory that short operations are copied through.
#[derive(Debug)]
pub(crate) struct Staging {
    arena: Arena,
    at_most: usize,
}

/// The buffers of one operation, from when it is posted until it has ended.
#[derive(Debug)]
pub(crate) struct Local {
    // Registrations end before their buffers go.
    way: Way,
    buffers: Vec<Vec<u8>>,
    direction: Direction,
}

/// How the HCA gets at the bytes.
#[derive(Debug)]
enum Way {
    Staged(ArenaBuffer),
    Registered(Vec<Registration>),
    /// There are none.
    Empty,
}

impl Staging {
    pub(crate) fn new(domain: &Arc<Domain>, config: &ConnectionConfig) -> Result<Self, Error> {
        Ok(Self {
            arena: Arena::new(domain, config.staging_bytes)?,
            at_most: config.staged_at_most,
        })
    }
}

impl Local {
    /// Makes `buffers` ready for the HCA. The pieces are those that the operation is to name, in
    /// order.
    ///
    /// The HCA may touch the memory until [`finish`](Self::finish); the caller sees to it that this
    /// is not called before the HCA is done.
    pub(crate) fn prepare(
        domain: &Arc<Domain>,
        staging: &Staging,
        mut buffers: Vec<Vec<u8>>,
        direction: Direction,
    ) -> Result<(Self, Vec<Piece>), NotTaken> {
        let len = buffers.iter().map(Vec::len).sum::<usize>();
        let prepared = if len == 0 {
            Ok((Way::Empty, Vec::new()))
        } else if let Some(staged) = staging.copy(&buffers, len, direction) {
            Ok(staged)
        } else {
            register(domain, &mut buffers, direction)
        };
        match prepared {
            Ok((way, pieces)) => {
                let local = Self {
                    buffers,
                    way,
                    direction,
                };
                Ok((local, pieces))
            }
            Err(error) => Err(NotTaken {
                why: Refused::Buffers(error),
                local: buffers,
            }),
        }
    }

    /// Takes the buffers back. Those of a read that was `done` are filled.
    ///
    /// What the HCA cannot be kept from is leaked, and its buffers do not come back.
    pub(crate) fn finish(self, done: bool) -> Vec<Vec<u8>> {
        let mut buffers = self.buffers;
        match self.way {
            Way::Empty => {}
            Way::Staged(staged) => {
                if done && self.direction == Direction::In {
                    let mut from = &staged[..];
                    for buffer in &mut buffers {
                        let (head, tail) = from.split_at(buffer.len().min(from.len()));
                        buffer[..head.len()].copy_from_slice(head);
                        from = tail;
                    }
                }
            }
            Way::Registered(registrations) => {
                for registration in registrations {
                    if let Err((registration, errno)) = registration.free() {
                        report_leak("registration of a buffer, with the buffer,", errno);
                        std::mem::forget(registration);
                        std::mem::forget(std::mem::take(&mut buffers));
                    }
                }
            }
        }
        buffers
    }
}

impl Staging {
    /// Copies the bytes where that pays and there is room.
    fn copy(
        &self,
        buffers: &[Vec<u8>],
        len: usize,
        direction: Direction,
    ) -> Option<(Way, Vec<Piece>)> {
        if len > self.at_most {
            return None;
        }
        let mut staged = self.arena.take(len).ok()?;
        if direction == Direction::Out {
            let mut to = &mut staged[..];
            for buffer in buffers {
                let (head, tail) = to.split_at_mut(buffer.len());
                head.copy_from_slice(buffer);
                to = tail;
            }
        }
        let local = staged.local(u32::try_from(len).ok()?);
        let piece = Piece {
            addr: local.addr,
            len: local.len,
            key: local.key,
        };
        Some((Way::Staged(staged), vec![piece]))
    }
}

fn register(
    domain: &Arc<Domain>,
    buffers: &mut [Vec<u8>],
    direction: Direction,
) -> Result<(Way, Vec<Piece>), Error> {
    let flags = match direction {
        Direction::Out => 0,
        Direction::In => sys::access::LOCAL_WRITE,
    };
    let mut registrations = Vec::with_capacity(buffers.len());
    let mut pieces = Vec::with_capacity(buffers.len());
    for buffer in buffers.iter_mut().filter(|buffer| !buffer.is_empty()) {
        let (start, len) = (DmaBuffer::as_mut_ptr(buffer), buffer.len());
        let too_long = |_| Error::TooLong {
            len: len as u64,
            max: u64::from(u32::MAX),
        };
        let piece_len = u32::try_from(len).map_err(too_long)?;
        let start = NonNull::new(start).ok_or(Error::ArenaFull { len, size: 0 })?;
        // SAFETY: the buffer stays with the registration, in one `Local`, until this has ended.
        // Only the device touches it, and what the system has beside it in its pages no work request
        // names.
        let registration = unsafe { Registration::new(domain, start, len, flags) }?;
        pieces.push(Piece {
            addr: start.as_ptr().expose_provenance() as u64,
            len: piece_len,
            key: registration.keys().local.bits(),
        });
        registrations.push(registration);
    }
    Ok((Way::Registered(registrations), pieces))
}
