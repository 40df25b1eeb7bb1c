//! Writing cpio archives in the "newc" format, which the kernel unpacks as its first file system.
//!
//! Own code, since a device node in an archive needs no root rights, while one in a directory does. The format:
//! `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel.

use std::io::{self, Read, Write};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive being written. Parents must be added before their children.
pub(super) struct Archive<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    pub(super) fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, DIRECTORY | 0o755, (0, 0), 0, &mut io::empty())
    }

    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(
            path,
            LINK | 0o777,
            (0, 0),
            target.len() as u64,
            &mut target.as_bytes(),
        )
    }

    pub(super) fn character_device(
        &mut self,
        path: &str,
        major: u32,
        minor: u32,
    ) -> io::Result<()> {
        self.entry(
            path,
            CHARACTER_DEVICE | 0o600,
            (major, minor),
            0,
            &mut io::empty(),
        )
    }

    /// Adds a file of exactly `len` bytes.
    ///
    /// # Errors
    /// The content has another length, or is 4 GiB or more, which the format cannot express.
    pub(super) fn file(
        &mut self,
        path: &str,
        mode: u32,
        len: u64,
        content: &mut impl Read,
    ) -> io::Result<()> {
        self.entry(path, FILE | (mode & 0o7777), (0, 0), len, content)
    }

    /// Writes the end mark.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, (0, 0), 0, &mut io::empty())?;
        self.out.flush()
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        len: u64,
        content: &mut impl Read,
    ) -> io::Result<()> {
        let size = u32::try_from(len)
            .map_err(|_| io::Error::other(format!("{path}: {len} bytes are too many for cpio")))?;
        self.inode += 1;
        let name_size = path.len() as u32 + 1;
        let fields = [
            self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0,
        ];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(path.as_bytes())?;
        // The header has 110 bytes; name and content are padded to multiples of four.
        self.out
            .write_all(&[0; 4][..1 + padding(110 + u64::from(name_size))])?;

        let copied = io::copy(&mut content.take(len + 1), &mut self.out)?;
        if copied != len {
            return Err(io::Error::other(format!(
                "{path}: changed its size while it was packed"
            )));
        }
        self.out.write_all(&[0; 4][..padding(len)])
    }
}

/// Bytes that are missing to a multiple of four.
fn padding(len: u64) -> usize {
    (len.wrapping_neg() % 4) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode, device and content.
    type Entry = (String, u32, (u32, u32), Vec<u8>);

    /// Reads an archive back, the end mark included.
    fn read(mut archive: &[u8]) -> Vec<Entry> {
        let mut entries = Vec::new();
        let whole = archive.len();
        while !archive.is_empty() {
            assert_eq!(
                (whole - archive.len()) % 4,
                0,
                "an entry begins off a multiple of four"
            );
            let field = |i: usize| {
                u32::from_str_radix(
                    std::str::from_utf8(&archive[6 + 8 * i..14 + 8 * i]).unwrap(),
                    16,
                )
                .unwrap()
            };
            assert_eq!(&archive[..6], b"070701");
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let device = (field(9), field(10));
            let name = String::from_utf8(archive[110..110 + name_size - 1].to_vec()).unwrap();
            assert_eq!(archive[110 + name_size - 1], 0);
            let start = (110 + name_size).next_multiple_of(4);
            entries.push((name, mode, device, archive[start..start + size].to_vec()));
            archive = &archive[(start + size).next_multiple_of(4)..];
        }
        entries
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.directory("dev").unwrap();
        archive.character_device("dev/console", 5, 1).unwrap();
        archive.link("sbin", "bin").unwrap();
        for len in 0..9 {
            archive
                .file(
                    &format!("{len}"),
                    0o755,
                    len,
                    &mut &vec![b'x'; len as usize][..],
                )
                .unwrap();
        }
        archive.finish().unwrap();

        let entries = read(&bytes);
        assert_eq!(entries[0], ("dev".into(), 0o040_755, (0, 0), vec![]));
        assert_eq!(
            entries[1],
            ("dev/console".into(), 0o020_600, (5, 1), vec![])
        );
        assert_eq!(
            entries[2],
            ("sbin".into(), 0o120_777, (0, 0), b"bin".to_vec())
        );
        for len in 0..9 {
            assert_eq!(
                entries[3 + len],
                (len.to_string(), 0o100_755, (0, 0), vec![b'x'; len])
            );
        }
        assert_eq!(entries[12].0, "TRAILER!!!");
        assert_eq!(entries.len(), 13);
    }

    #[test]
    fn a_file_of_another_length_is_an_error() {
        for len in [2, 4] {
            assert!(
                Archive::new(Vec::new())
                    .file("a", 0o644, len, &mut &b"abc"[..])
                    .is_err()
            );
        }
        assert!(
            Archive::new(Vec::new())
                .file("a", 0o644, 1 << 32, &mut io::empty())
                .is_err()
        );
    }
}
