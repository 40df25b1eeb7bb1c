//! One connection: the receiving half.

use super::spin::Spin;
use super::stall;
use crate::fabric::{Arrival, ArrivedPayload, Sink};
use crate::proto::{Buf, LinkId};
use crate::wire::{HEADER_LEN, Header, MAX_MESSAGE};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recv, recvmsg};
use socket2::Socket;
use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::{Arc, Weak};

/// What is read at once while messages are small.
const CAPACITY: usize = 64 << 10;

/// From here on a message is read into its own buffer, and nothing behind it but the next header:
/// the rest would have to be copied.
const BULK: usize = 8 << 10;

/// Whether a read waits for something to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Wait,
    Look,
}

/// What a read has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Bytes.
    Something,
    /// There was nothing to be read.
    Nothing,
    /// There is no room for the message that comes next, and the peer will not send it again. Read
    /// again [after a pause](stall::PAUSE).
    Stalled,
}

/// Cuts the stream into messages. It may stop anywhere and go on in another thread.
pub(super) struct Reader {
    bytes: Box<[u8]>,
    /// What has been read and not used.
    start: usize,
    end: usize,
    /// The last message was a long one.
    bulk: bool,
    /// The header that comes next waits for a buffer.
    stalled: bool,
    under_way: Option<UnderWay>,
    arrivals: Vec<Arrival>,
    pub(super) spin: Spin,
}

/// A message of which not all has been read.
struct UnderWay {
    header: [u8; HEADER_LEN],
    len: usize,
    got: usize,
    /// Without one, what is read is thrown away.
    buf: Option<Buf>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; CAPACITY].into_boxed_slice(),
            start: 0,
            end: 0,
            bulk: false,
            stalled: false,
            under_way: None,
            arrivals: Vec::new(),
            spin: Spin::default(),
        }
    }

    /// Reads once, and gives the host what has become whole. While it is stalled it only looks whether
    /// there is room by now.
    pub(super) fn read(
        &mut self,
        socket: &Socket,
        mode: Mode,
        id: LinkId,
        sink: &Weak<dyn Sink>,
    ) -> io::Result<Found> {
        if !self.stalled && !self.fill(socket, mode)? {
            return Ok(Found::Nothing);
        }
        // Only now: who waits here keeps no host alive.
        let host = sink.upgrade().ok_or(ErrorKind::NotConnected)?;
        loop {
            if !self.under_way.as_ref().is_none_or(UnderWay::is_whole) {
                break;
            }
            if let Some(whole) = self.under_way.take() {
                self.arrivals.push(whole.into());
            }
            let Some(header) = self.next_header() else {
                break;
            };
            if !self.begin(header, socket, id, &host)? {
                break;
            }
        }
        host.frames(id, &mut self.arrivals);
        Ok(if self.stalled {
            Found::Stalled
        } else {
            Found::Something
        })
    }

    /// Reads at least one byte, unless nothing is there and `mode` is to look.
    fn fill(&mut self, socket: &Socket, mode: Mode) -> io::Result<bool> {
        let flags = match mode {
            Mode::Wait => RecvFlags::empty(),
            Mode::Look => RecvFlags::DONTWAIT,
        };
        let Some(UnderWay { len, got, buf, .. }) = &mut self.under_way else {
            return self.fill_bytes(socket, flags);
        };
        let left = *len - *got;
        let Some(buf) = buf else {
            let most = left.min(self.bytes.len());
            let read = some(|| Ok(recv(socket, &mut self.bytes[..most], flags)?.0))?;
            *got += read.unwrap_or(0);
            return Ok(read.is_some());
        };
        // All that had been read is in the message.
        let ahead = if left >= BULK { HEADER_LEN } else { CAPACITY };
        let mut slices = [
            IoSliceMut::new(&mut buf.bytes_mut()[*got..]),
            IoSliceMut::new(&mut self.bytes[..ahead]),
        ];
        let nothing_else = &mut RecvAncillaryBuffer::default();
        let read = some(|| Ok(recvmsg(socket, &mut slices, nothing_else, flags)?.bytes))?;
        if let Some(read) = read {
            *got += read.min(left);
            (self.start, self.end) = (0, read.saturating_sub(left));
        }
        Ok(read.is_some())
    }

    fn fill_bytes(&mut self, socket: &Socket, flags: RecvFlags) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.end < HEADER_LEN {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let most = if self.bulk {
            HEADER_LEN.saturating_sub(self.end - self.start)
        } else {
            self.bytes.len() - self.end
        };
        let into = &mut self.bytes[self.end..self.end + most];
        let read = some(|| Ok(recv(socket, &mut *into, flags)?.0))?;
        self.end += read.unwrap_or(0);
        Ok(read.is_some())
    }

    fn next_header(&self) -> Option<[u8; HEADER_LEN]> {
        let bytes = &self.bytes[self.start..self.end];
        bytes.first_chunk().copied()
    }

    /// Begins a message with what of it is there. `false`: it has to wait.
    fn begin(
        &mut self,
        header: [u8; HEADER_LEN],
        socket: &Socket,
        id: LinkId,
        host: &Arc<dyn Sink>,
    ) -> io::Result<bool> {
        let len = Header::len_in(&header);
        self.bulk = len >= BULK;
        if len > MAX_MESSAGE {
            // The host finds out the same, and closes the link: there is no telling where the next
            // header is.
            self.arrivals.push(Arrival {
                header,
                payload: ArrivedPayload::Shed,
            });
            host.frames(id, &mut self.arrivals);
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "a message is too long",
            ));
        }
        let mut buf = host.buffer(id, &header);
        let mut waits = false;
        // A peer that sums its headers sends again what it is not told has arrived.
        if buf.is_none() && !Header::is_summed(&header) {
            if stall::has_ended(socket)? {
                buf = host.buffer_beyond(&header);
            } else {
                waits = true;
            }
        }
        if waits && !self.stalled {
            host.stalled(id);
        }
        self.stalled = waits;
        if waits {
            return Ok(false);
        }
        self.start += HEADER_LEN;
        let there = &self.bytes[self.start..self.end];
        let there = &there[..there.len().min(len)];
        if let Some(buf) = &mut buf {
            buf.bytes_mut()[..there.len()].copy_from_slice(there);
        }
        self.start += there.len();
        self.under_way = Some(UnderWay {
            header,
            len,
            got: there.len(),
            buf,
        });
        Ok(true)
    }
}

impl UnderWay {
    fn is_whole(&self) -> bool {
        self.got == self.len
    }
}

impl From<UnderWay> for Arrival {
    fn from(whole: UnderWay) -> Self {
        let UnderWay { header, buf, .. } = whole;
        let payload = buf.map_or(ArrivedPayload::Shed, ArrivedPayload::Whole);
        Self { header, payload }
    }
}

/// Reads, whatever signals come. `None` if there is nothing to be read now; no bytes mean that the
/// peer has ended the connection.
fn some(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match read() {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => return Ok(Some(read)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
