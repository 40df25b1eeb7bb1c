//! A hostile file of any length cannot make a reader allocate more than a fixed bound.
//!
//! One test, since it measures the whole process.

use std::io::{self, BufRead, Read};

use mr_lab::trace::{self, Options, TraceError};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What the module's documentation promises, plus the growth of buffers and the generator's own chunk.
const BOUND: usize = 256 * 1024;
/// Far above the bound.
const LENGTH: u64 = 8 * 1024 * 1024;

/// A file of `LENGTH` bytes that is made while it is read: `beginning`, then `chunk(0)`, `chunk(1)`, ...
struct Endless {
    chunk: fn(u64) -> Vec<u8>,
    current: Vec<u8>,
    used: usize,
    next: u64,
    left: u64,
}

impl Endless {
    fn new(beginning: &[u8], chunk: fn(u64) -> Vec<u8>) -> Self {
        Self {
            chunk,
            current: beginning.to_vec(),
            used: 0,
            next: 0,
            left: LENGTH,
        }
    }
}

impl BufRead for Endless {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.current.len() && self.left > 0 {
            self.current = (self.chunk)(self.next);
            self.used = 0;
            self.next += 1;
        }
        Ok(&self.current[self.used..])
    }

    fn consume(&mut self, amount: usize) {
        self.used += amount;
        self.left = self.left.saturating_sub(amount as u64);
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let used = self.fill_buf()?.read(buffer)?;
        self.consume(used);
        Ok(used)
    }
}

fn zeros(_: u64) -> Vec<u8> {
    vec![0; 4096]
}

fn letters(_: u64) -> Vec<u8> {
    vec![b'x'; 4096]
}

fn line_feeds(_: u64) -> Vec<u8> {
    vec![b'\n'; 4096]
}

/// Records that claim 4 GiB each.
fn huge_vscsi(k: u64) -> Vec<u8> {
    let mut record = [0xff; 32];
    record[12..16].copy_from_slice(&[0x28, 0, 0, 1]);
    record[24..].copy_from_slice(&k.to_le_bytes());
    record.to_vec()
}

/// A file name per line, each never seen before.
fn new_files(k: u64) -> Vec<u8> {
    format!("{k} file-{k} add\n").into_bytes()
}

/// Devices and remaps without end.
fn remaps(k: u64) -> Vec<u8> {
    format!(
        "{k},0 0 1 0.000000000 1 Q R 0 + 8 [a]\n8,0 0 1 0.000000000 1 A R {k} + 8 <- ({k},0) {k}\n"
    )
    .into_bytes()
}

#[test]
fn memory_is_bounded_whatever_the_file_says() {
    let v3 = b"fio version 3 iolog\n";
    let event = b"8,0 0 1 0.000000000 1 Q R 0 + 8 [a]\n";
    let csv = b"1,h,0,Read,0,512,1\n";
    check("zeros", Endless::new(b"", zeros), is_unrecognised);
    check("letters", Endless::new(b"", letters), is_unrecognised);
    check("fio, one line", Endless::new(v3, letters), is_too_long);
    check(
        "blkparse, one line",
        Endless::new(event, letters),
        is_too_long,
    );
    check("csv, one line", Endless::new(csv, letters), is_too_long);
    check("blkparse, blank", Endless::new(event, line_feeds), is_none);
    check("fio, files", Endless::new(v3, new_files), is_none);
    check("blkparse, remaps", Endless::new(b"", remaps), is_none);
    check("vscsi, sizes", Endless::new(b"", huge_vscsi), is_none);
}

fn check(name: &str, file: Endless, is_expected: fn(&Option<TraceError>) -> bool) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let error = read_to_the_end(file);
    let grown = ALLOCATOR.peak_usage() - before;
    assert!(is_expected(&error), "{name}: {error:?}");
    assert!(grown <= BOUND, "{name}: {grown} bytes");
}

fn read_to_the_end(file: Endless) -> Option<TraceError> {
    match trace::from_reader("hostile", file, Options::default()) {
        Ok(trace) => trace.filter_map(Result::err).next(),
        Err(error) => Some(error),
    }
}

fn is_unrecognised(error: &Option<TraceError>) -> bool {
    matches!(error, Some(TraceError::Unrecognised { .. }))
}

fn is_too_long(error: &Option<TraceError>) -> bool {
    matches!(error, Some(TraceError::LineTooLong { .. }))
}

fn is_none(error: &Option<TraceError>) -> bool {
    error.is_none()
}
