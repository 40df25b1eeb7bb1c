//! Recognising a format by the first bytes of a file.

use std::fmt;

use super::{blkparse, fio, msr, vscsi};

/// A trace format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// fio's `write_iolog`, version 2: no times.
    FioV2,
    /// fio's `write_iolog`, version 3.
    FioV3,
    /// VMware vSCSI, version 1: binary records of 32 bytes.
    Vscsi,
    /// What `blkparse` prints without `-f`.
    Blkparse,
    /// The comma-separated text of the MSR Cambridge traces.
    Msr,
}

impl Format {
    /// A name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FioV2 => "fio I/O log version 2",
            Self::FioV3 => "fio I/O log version 3",
            Self::Vscsi => "VMware vSCSI version 1",
            Self::Blkparse => "blkparse text",
            Self::Msr => "MSR Cambridge CSV",
        }
    }

    /// The format of a file that begins with `head`, or what the file seems to be instead and what to do.
    ///
    /// Only the first line or record decides, so that a fault further on is reported where it is.
    pub(super) fn detect(head: &[u8]) -> Result<Self, &'static str> {
        let line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line == fio::HEADER_V2 {
            Ok(Self::FioV2)
        } else if line == fio::HEADER_V3 {
            Ok(Self::FioV3)
        } else if msr::starts_with(line) {
            Ok(Self::Msr)
        } else if blkparse::starts_with(head) {
            Ok(Self::Blkparse)
        } else if vscsi::starts_with(head) {
            Ok(Self::Vscsi)
        } else {
            Err(hint(head))
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to say of a file that is none of the formats.
fn hint(head: &[u8]) -> &'static str {
    if head.is_empty() {
        "the file is empty; expected a trace"
    } else if head.starts_with(&[0x1f, 0x8b]) {
        "the file is compressed with gzip; unpack it first (gunzip)"
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        "the file is compressed with zstd; unpack it first (unzstd)"
    } else if head.starts_with(b"fio version ") {
        "of fio's I/O logs only versions 2 and 3 are read; record it again with a fio from 1.17 on"
    } else if head.get(1..4) == Some(b"tae") || head.get(..3) == Some(b"eat") {
        "this is blktrace's binary file; turn it into text first (blkparse -i FILE)"
    } else if vscsi::starts_with_version_2(head) {
        "this seems to be a vSCSI trace version 2; only version 1 (records of 32 bytes) is read"
    } else {
        "not a trace that is known here; expected a fio I/O log (version 2 or 3), a vSCSI trace (version 1), \
         blkparse text or an MSR Cambridge CSV"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_trace_gets_a_hint_that_fits() {
        let cases: [(&[u8], &str); 7] = [
            (b"", "empty"),
            (b"\x1f\x8b\x08\0", "gzip"),
            (b"\x28\xb5\x2f\xfd", "zstd"),
            (b"fio version 4 iolog\n", "versions 2 and 3"),
            (b"\x07\x74\x61\x65\x01\0\0\0", "blkparse -i"),
            (b"\x2a\0\0\x02\x01\0\0\0", "version 2"),
            (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "not a trace"),
        ];
        for (head, part) in cases {
            let hint = Format::detect(head).unwrap_err();
            assert!(hint.contains(part), "{head:?}: {hint}");
        }
    }
}
