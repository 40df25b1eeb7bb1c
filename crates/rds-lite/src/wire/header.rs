//! The header in front of every message and fragment.

use crate::wire::{ExtArea, HEADER_LEN, MAX_MESSAGE, checksum};

bitflags::bitflags! {
    /// The flags of a header. Unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// The payload is a congestion map.
        const CONG_BITMAP = 0x01;
        /// The receiver shall acknowledge at once.
        const ACK_REQUIRED = 0x02;
        /// This message was sent before.
        const RETRANSMITTED = 0x04;
        /// There is more than one extension header (mainline of 2026).
        const EXTHDR_EXTENSION = 0x20;
        const _ = !0;
    }
}

/// A header. Addresses are not in it: they are the connection's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Number of the message on its connection; 0 for what is not numbered.
    pub sequence: u64,
    /// Messages up to this number have arrived; 0 for none.
    pub ack: u64,
    /// Payload bytes of the whole message.
    pub len: u32,
    /// Port of the sender.
    pub sport: u16,
    /// Port of the receiver; 0 asks for a pong.
    pub dport: u16,
    /// Flags.
    pub flags: Flags,
    /// Receive credits granted.
    pub credit: u8,
    /// Extension headers.
    pub ext: ExtArea,
}

/// A header that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The checksum is there and wrong.
    #[error("the header's checksum is wrong")]
    Checksum,
    /// The message is longer than allowed.
    #[error("a message of {0} bytes, and {MAX_MESSAGE} are allowed")]
    TooLong(u32),
}

impl Header {
    /// The bytes, with a checksum.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = self.encode_unchecked();
        // Of the two zeros of one's complement, 0 in this field says that there is no checksum.
        let sum = match checksum(&bytes) {
            0 => u16::MAX,
            sum => sum,
        };
        bytes[30..32].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// The bytes, with a checksum of 0: "not present".
    pub fn encode_unchecked(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.ack.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.sport.to_be_bytes());
        bytes[22..24].copy_from_slice(&self.dport.to_be_bytes());
        bytes[24] = self.flags.bits();
        bytes[25] = self.credit;
        bytes[32..48].copy_from_slice(self.ext.bytes());
        bytes
    }

    /// What the header in `bytes` says of the length behind it, right or wrong.
    pub fn len_in(bytes: &[u8; HEADER_LEN]) -> usize {
        u32::from_be_bytes([16, 17, 18, 19].map(|at| bytes[at])) as usize
    }

    /// Whether the header in `bytes` has a checksum, right or wrong: the kernel's have none over TCP.
    pub fn is_summed(bytes: &[u8; HEADER_LEN]) -> bool {
        bytes[30..32] != [0, 0]
    }

    /// The header in `bytes`, and whether it had a checksum. What the padding holds is ignored, as
    /// the kernel does.
    ///
    /// # Errors
    ///
    /// The checksum is wrong, or the message is longer than 1 MiB.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<(Self, bool), HeaderError> {
        let summed = Self::is_summed(bytes);
        if summed && checksum(bytes) != 0 {
            return Err(HeaderError::Checksum);
        }
        let header = Self {
            sequence: u64::from_be_bytes(take(bytes, 0)),
            ack: u64::from_be_bytes(take(bytes, 8)),
            len: u32::from_be_bytes(take(bytes, 16)),
            sport: u16::from_be_bytes(take(bytes, 20)),
            dport: u16::from_be_bytes(take(bytes, 22)),
            flags: Flags::from_bits_retain(bytes[24]),
            credit: bytes[25],
            ext: ExtArea::from_bytes(take(bytes, 32)),
        };
        if header.len as usize > MAX_MESSAGE {
            return Err(HeaderError::TooLong(header.len));
        }
        Ok((header, summed))
    }
}

fn take<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}
