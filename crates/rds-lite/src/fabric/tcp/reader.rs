//! One connection: the receiving half.

use crate::fabric::{Arrival, ArrivedPayload, Sink};
use crate::proto::LinkId;
use crate::wire::{HEADER_LEN, MAX_MESSAGE};
use socket2::Socket;
use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::sync::{Arc, Weak};

/// What is read at once while messages are small.
const CAPACITY: usize = 64 << 10;

/// From here on a message is read into its own buffer, and nothing behind it but the next header:
/// the rest would have to be copied.
const BULK: usize = 8 << 10;

/// Cuts the stream into messages.
pub(super) struct Reader<'a> {
    socket: &'a Socket,
    bytes: Box<[u8]>,
    /// What has been read and not used.
    start: usize,
    end: usize,
    /// The last message was a long one.
    bulk: bool,
    arrivals: Vec<Arrival>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(socket: &'a Socket) -> Self {
        Self {
            socket,
            bytes: vec![0; CAPACITY].into_boxed_slice(),
            start: 0,
            end: 0,
            bulk: false,
            arrivals: Vec::new(),
        }
    }

    /// Reads until the connection or the host ends.
    pub(super) fn run(mut self, id: LinkId, sink: &Weak<dyn Sink>) -> io::Result<()> {
        loop {
            self.fill()?;
            let Some(host) = sink.upgrade() else {
                return Ok(());
            };
            while let Some(header) = self.next_header() {
                if !self.message(header, id, &host)? {
                    break;
                }
            }
            host.frames(id, &mut self.arrivals);
        }
    }

    /// Reads at least one byte more.
    fn fill(&mut self) -> io::Result<()> {
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
        let mut socket = self.socket;
        self.end += at_least_one(|| socket.read(into))?;
        Ok(())
    }

    fn next_header(&self) -> Option<[u8; HEADER_LEN]> {
        let bytes = &self.bytes[self.start..self.end];
        bytes.first_chunk().copied()
    }

    /// Takes one message. Says whether there may be another in what has been read: if not, what
    /// there is has to go to the host first.
    fn message(
        &mut self,
        header: [u8; HEADER_LEN],
        id: LinkId,
        host: &Arc<dyn Sink>,
    ) -> io::Result<bool> {
        let len = u32::from_be_bytes([16, 17, 18, 19].map(|at| header[at])) as usize;
        let there = self.end - self.start - HEADER_LEN;
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
        if there < len && !self.arrivals.is_empty() {
            // The rest may take its time.
            host.frames(id, &mut self.arrivals);
        }
        self.start += HEADER_LEN;
        let payload = match host.buffer(len) {
            Some(mut buf) => {
                self.read_message(buf.bytes_mut())?;
                ArrivedPayload::Whole(buf)
            }
            None => {
                self.skip(len)?;
                ArrivedPayload::Shed
            }
        };
        self.arrivals.push(Arrival { header, payload });
        Ok(true)
    }

    /// Fills `into` from what has been read and then from the connection, together with up to one
    /// header behind it.
    fn read_message(&mut self, into: &mut [u8]) -> io::Result<()> {
        let there = (self.end - self.start).min(into.len());
        into[..there].copy_from_slice(&self.bytes[self.start..self.start + there]);
        self.start += there;
        let mut got = there;
        while got < into.len() {
            // All that had been read is used up.
            let left = into.len() - got;
            let ahead = if left >= BULK { HEADER_LEN } else { CAPACITY };
            let mut slices = [
                IoSliceMut::new(&mut into[got..]),
                IoSliceMut::new(&mut self.bytes[..ahead]),
            ];
            let mut socket = self.socket;
            let read = at_least_one(|| socket.read_vectored(&mut slices))?;
            got += read.min(left);
            (self.start, self.end) = (0, read.saturating_sub(left));
        }
        Ok(())
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        let mut left = len;
        loop {
            let there = (self.end - self.start).min(left);
            self.start += there;
            left -= there;
            if left == 0 {
                return Ok(());
            }
            self.bulk = false;
            self.fill()?;
        }
    }
}

/// Reads, whatever signals come; no bytes mean that the peer has ended the connection.
fn at_least_one(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
