//! Memory that the kernel lends to peers.

use super::sys;
use memmap2::{MmapOptions, MmapRaw};
use std::fmt;
use std::io;

/// Pages of this process that the kernel may have an HCA read and write.
///
/// They are pages of their own, and there are no references into them. When it is dropped the pages
/// leave this process; the kernel keeps them as long as a key reaches them. So a peer can never
/// touch other memory of this process through a key.
pub struct Memory {
    map: MmapRaw,
}

impl Memory {
    /// So many bytes, zero.
    ///
    /// # Errors
    ///
    /// There are not so many.
    pub fn new(len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_anon()?;
        Ok(Self { map: map.into() })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// Copies bytes out.
    ///
    /// # Errors
    ///
    /// The range is not inside.
    pub fn read(&self, at: usize, into: &mut [u8]) -> io::Result<()> {
        inside(sys::copy_out(&self.map, at, into))
    }

    /// Copies bytes in.
    ///
    /// # Errors
    ///
    /// The range is not inside.
    pub fn write(&self, at: usize, from: &[u8]) -> io::Result<()> {
        inside(sys::copy_in(&self.map, at, from))
    }

    /// The address of a range, as control messages have it.
    pub(super) fn address(&self, at: usize, len: usize) -> io::Result<u64> {
        inside(at.checked_add(len).is_some_and(|end| end <= self.map.len()))?;
        Ok(self.map.as_ptr().addr() as u64 + at as u64)
    }
}

fn inside(is: bool) -> io::Result<()> {
    if is {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the range is not inside of the memory",
    ))
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("len", &self.map.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_ranges_hold() {
        let memory = Memory::new(10_000).unwrap();
        memory.write(9_000, &[7; 1000]).unwrap();
        let mut read = [0; 1001];
        memory.read(8_999, &mut read).unwrap();
        assert_eq!((read[0], read[1], read[1000]), (0, 7, 7));
        for (at, len) in [(9_000, 1001), (10_001, 0), (usize::MAX, 2)] {
            assert!(memory.write(at, &vec![0; len]).is_err(), "{at} {len}");
            assert!(memory.read(at, &mut vec![0; len]).is_err(), "{at} {len}");
            assert!(memory.address(at, len).is_err(), "{at} {len}");
        }
    }
}
