//! Bounded reading of lines and records, with positions.

use std::io::{self, BufRead, Chain, Cursor, Read};

use super::{Position, TraceError, Unit};

/// Bytes at the front of a file that are looked at to recognise it.
const HEAD: u64 = 64 * 1024;

/// Longest line that is read, without its end. fio's own reader stops at 4095 bytes; blkparse's longest lines, those of
/// packet commands with their bytes in hexadecimal, stay well below.
const MAX_LINE: usize = 8 * 1024;

/// A trace file: knows its name, and where in it the reader is.
#[derive(Debug)]
pub(super) struct Source<R> {
    bytes: Chain<Cursor<Vec<u8>>, R>,
    line: Vec<u8>,
    /// Start of the current line or record.
    position: Position,
    /// Offset of the next unread byte.
    offset: u64,
}

impl<R: BufRead> Source<R> {
    /// Reads the head of the file, 64 KiB at most.
    pub(super) fn new(name: &str, mut reader: R) -> Result<Self, TraceError> {
        let position = Position {
            name: name.to_owned(),
            unit: Unit::Line,
            number: 0,
            offset: 0,
        };
        let mut head = Vec::new();
        if let Err(source) = reader.by_ref().take(HEAD).read_to_end(&mut head) {
            return Err(TraceError::Read {
                at: Position {
                    number: 1,
                    ..position
                },
                source,
            });
        }
        Ok(Self {
            bytes: Cursor::new(head).chain(reader),
            line: Vec::new(),
            position,
            offset: 0,
        })
    }

    /// The first bytes of the file.
    pub(super) fn head(&self) -> &[u8] {
        self.bytes.get_ref().0.get_ref()
    }

    /// Says what the positions of this file count.
    pub(super) fn counting(mut self, unit: Unit) -> Self {
        self.position.unit = unit;
        self
    }

    /// Where the line or record starts that was read last.
    pub(super) fn position(&self) -> Position {
        self.position.clone()
    }

    /// The next line without its end (LF or CR LF); `None` if the file ends where a line would start.
    pub(super) fn next_line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.start();
        self.line.clear();
        loop {
            let available = match fill(&mut self.bytes) {
                Ok(available) => available,
                Err(source) => return Err(self.unreadable(source)),
            };
            if available.is_empty() {
                return self.end_of_file("a line feed at the end of the line");
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if self.line.len() + part.len() > MAX_LINE {
                return Err(TraceError::LineTooLong {
                    at: self.position(),
                    limit: MAX_LINE,
                });
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.consume(used);
            if end.is_some() {
                let line = self.line.as_slice();
                return Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)));
            }
        }
    }

    /// The next record of `N` bytes; `None` if the file ends where a record would start. `expected` describes a record.
    pub(super) fn next_record<const N: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<Option<[u8; N]>, TraceError> {
        self.start();
        let mut record = [0; N];
        let mut got = 0;
        while got < N {
            let available = match fill(&mut self.bytes) {
                Ok(available) => available,
                Err(source) => return Err(self.unreadable(source)),
            };
            if available.is_empty() && got == 0 {
                return Ok(None);
            }
            if available.is_empty() {
                return Err(TraceError::Truncated {
                    at: self.position(),
                    expected,
                    got,
                });
            }
            let used = available.len().min(N - got);
            record[got..got + used].copy_from_slice(&available[..used]);
            got += used;
            self.consume(used);
        }
        Ok(Some(record))
    }

    /// A line or record starts at the next unread byte.
    fn start(&mut self) {
        self.position.number += 1;
        self.position.offset = self.offset;
    }

    fn consume(&mut self, used: usize) {
        self.bytes.consume(used);
        self.offset += used as u64;
    }

    fn end_of_file(&self, expected: &'static str) -> Result<Option<&[u8]>, TraceError> {
        if self.offset == self.position.offset {
            return Ok(None);
        }
        Err(TraceError::Truncated {
            at: self.position(),
            expected,
            got: self.line.len(),
        })
    }

    fn unreadable(&self, source: io::Error) -> TraceError {
        TraceError::Read {
            at: self.position(),
            source,
        }
    }
}

/// `fill_buf` that goes on after a signal; empty at the end of the file.
fn fill<R: BufRead>(reader: &mut R) -> io::Result<&[u8]> {
    // Asked twice, since the borrow of a successful answer would outlive the loop that retries.
    loop {
        match reader.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    reader.fill_buf()
}
