//! VMware vSCSI traces, version 1.
//!
//! A file is a sequence of little-endian records of 32 bytes and nothing else:
//!
//! | offset | type | field |
//! | --- | --- | --- |
//! | 0 | u32 | serial number |
//! | 4 | u32 | length in bytes |
//! | 8 | u32 | scatter-gather entries |
//! | 12 | u16 | SCSI operation code |
//! | 14 | u16 | version: the major number, 1, in the high byte |
//! | 16 | u64 | logical block |
//! | 24 | u64 | time in microseconds, from any origin |
//!
//! The layout is that of `trace_v1_record_t` in the readers of libCacheSim and PyMimircache, which come from CloudPhysics.
//! They also know a version 2 with records of 40 bytes; it is recognised and refused.

use std::time::Duration;

use super::fields::Reject;
use super::{Kind, Record, Skip};

/// Size of a record in bytes.
pub(super) const RECORD: usize = 32;

/// What a file must have where a record starts.
pub(super) const WHOLE: &str = "a vSCSI record of 32 bytes";

const EXPECTED: &str = "a vSCSI record of version 1 (bytes 12 and 13 a SCSI operation code below 256, byte 15 equal to 1)";

/// Whether a file begins like a record of version 1; it may end within that record.
pub(super) fn starts_with(head: &[u8]) -> bool {
    matches!(head, [_, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, 1, ..])
}

/// Whether a file begins like a record of version 2 (operation code and version come first there).
pub(super) fn starts_with_version_2(head: &[u8]) -> bool {
    matches!(head, [_, 0, _, 2, ..])
}

pub(super) fn parse(record: &[u8; RECORD]) -> Result<Record, Reject> {
    if !starts_with(record) {
        return Err(Reject::record(EXPECTED, record));
    }
    let [_, _, _, _, b0, b1, b2, b3, _, _, _, _, operation, ..] = *record;
    let [.., t0, t1, t2, t3, t4, t5, t6, t7] = *record;
    // READ and WRITE exist with 6, 10, 12 and 16 byte commands; a disk above 2 TiB is read with the last.
    let kind = match operation {
        0x08 | 0x28 | 0xa8 | 0x88 => Kind::Read,
        0x0a | 0x2a | 0xaa | 0x8a => Kind::Write,
        0x42 => return Ok(Record::Skip(Skip::Trim)),
        0x35 | 0x91 => return Ok(Record::Skip(Skip::Flush)),
        _ => return Ok(Record::Skip(Skip::NonIo)),
    };
    Ok(Record::Io {
        time: Duration::from_micros(u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7])),
        bytes: u64::from(u32::from_le_bytes([b0, b1, b2, b3])),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operation: u16, version: u16) -> [u8; RECORD] {
        let mut record = [0xee; RECORD];
        record[4..8].copy_from_slice(&6656_u32.to_le_bytes());
        record[12..14].copy_from_slice(&operation.to_le_bytes());
        record[14..16].copy_from_slice(&version.to_le_bytes());
        record[24..].copy_from_slice(&5_633_898_967_708_u64.to_le_bytes());
        record
    }

    #[test]
    fn operations_that_move_data_are_ios_and_the_others_are_skipped() {
        let time = Duration::from_micros(5_633_898_967_708);
        let io = |kind| {
            Ok(Record::Io {
                time,
                bytes: 6656,
                kind,
            })
        };
        for operation in 0..=0xff {
            let expected = match operation {
                0x08 | 0x28 | 0x88 | 0xa8 => io(Kind::Read),
                0x0a | 0x2a | 0x8a | 0xaa => io(Kind::Write),
                0x42 => Ok(Record::Skip(Skip::Trim)),
                0x35 | 0x91 => Ok(Record::Skip(Skip::Flush)),
                _ => Ok(Record::Skip(Skip::NonIo)),
            };
            assert_eq!(
                parse(&record(operation, 0x0100)),
                expected,
                "{operation:#x}"
            );
        }
    }

    #[test]
    fn another_version_or_a_wide_operation_code_is_refused() {
        assert!(
            parse(&record(0x28, 0x01ff)).is_ok(),
            "the low byte is a minor number"
        );
        assert!(parse(&record(0x28, 0x0200)).is_err());
        assert!(parse(&record(0x28, 0x0001)).is_err());
        assert!(parse(&record(0x128, 0x0100)).is_err());
    }
}
