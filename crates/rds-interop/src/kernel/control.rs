//! Control messages of RDS, as bytes.

use super::sys;

/// Control messages by their number (`linux/rds.h`).
const RDMA_ARGS: i32 = 1;
const RDMA_DEST: i32 = 2;
const RDMA_MAP: i32 = 3;
const RDMA_STATUS: i32 = 4;
const CONG_UPDATE: i32 = 5;

/// Length, level and type.
const HEADER: usize = 16;

/// What control messages are aligned to.
const ALIGN: usize = 8;

bitflags::bitflags! {
    /// How memory is lent.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MapFlags: u64 {
        /// The peer may write. The kernel stores it and refuses no write without it.
        const WRITE = 0x01;
        /// When it is released the key dies at once, not when the kernel gets to it.
        const INVALIDATE = 0x04;
        /// It is released when the peer says that it has used it.
        const USE_ONCE = 0x08;
    }
}

bitflags::bitflags! {
    /// How an RDMA operation is done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpFlags: u64 {
        /// Write to the peer; without it, read.
        const WRITE = 0x01;
        /// The message waits for the end of a read.
        const FENCE = 0x02;
        /// Its end is told.
        const NOTIFY = 0x20;
    }
}

/// How an RDMA operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was done.
    Success,
    /// The peer's HCA refused it.
    RemoteError,
    /// It was taken back.
    Canceled,
    /// The connection was lost.
    Dropped,
    /// Something else.
    Other(i32),
}

/// The end of an RDMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What the operation was named.
    pub token: u64,
    /// How it ended.
    pub status: Status,
}

/// What came beside a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) cookie: Option<u64>,
    pub(super) notices: Vec<Notice>,
    /// Ports modulo 64 that are no longer congested.
    pub(super) uncongested: Option<u64>,
}

/// One control message with a body of 64-bit words.
fn encode(kind: i32, words: &[u64]) -> Vec<u8> {
    let len = HEADER + 8 * words.len();
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&(len as u64).to_ne_bytes());
    bytes.extend_from_slice(&sys::LEVEL.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    words
        .iter()
        .for_each(|word| bytes.extend_from_slice(&word.to_ne_bytes()));
    bytes
}

/// Lends a range; the kernel also writes the cookie to `cookie_at`.
pub(super) fn map(address: u64, len: u64, cookie_at: u64, flags: MapFlags) -> Vec<u8> {
    encode(RDMA_MAP, &[address, len, cookie_at, flags.bits()])
}

/// Sends a cookie that this socket has got by lending.
pub(super) fn dest(cookie: u64) -> Vec<u8> {
    encode(RDMA_DEST, &[cookie])
}

/// An operation on memory of the peer; `vectors_at` is where its local ranges are listed.
pub(super) fn args(
    cookie: u64,
    remote: (u64, u64),
    (vectors_at, vectors): (u64, u64),
    flags: OpFlags,
    token: u64,
) -> Vec<u8> {
    let words = [
        cookie,
        remote.0,
        remote.1,
        vectors_at,
        vectors,
        flags.bits(),
        token,
    ];
    encode(RDMA_ARGS, &words)
}

/// Reads what the kernel has put beside a message. What it does not know it skips; what does not fit is the end.
pub(super) fn decode(mut bytes: &[u8]) -> Told {
    let mut told = Told::default();
    while let Some((header, rest)) = bytes.split_at_checked(HEADER) {
        let number = |at: usize| header[at..at + 4].try_into().map_or(0, i32::from_ne_bytes);
        let len = header[..8].try_into().map_or(0, u64::from_ne_bytes);
        let Some(body) = usize::try_from(len)
            .ok()
            .and_then(|len| len.checked_sub(HEADER))
            .and_then(|len| rest.get(..len))
        else {
            break;
        };
        if number(8) == sys::LEVEL {
            told.take(number(12), body);
        }
        bytes = rest
            .get(body.len().next_multiple_of(ALIGN)..)
            .unwrap_or_default();
    }
    told
}

impl Told {
    fn take(&mut self, kind: i32, body: &[u8]) {
        let word = |at: usize| {
            let bytes = body.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        match kind {
            RDMA_DEST => self.cookie = word(0),
            CONG_UPDATE => self.uncongested = word(0),
            RDMA_STATUS => {
                if let (Some(token), Some(status)) = (word(0), word(8)) {
                    // The status is the first half of the second word; what is behind it is padding.
                    let [a, b, c, d, ..] = status.to_ne_bytes();
                    self.notices.push(Notice {
                        token,
                        status: status_of(i32::from_ne_bytes([a, b, c, d])),
                    });
                }
            }
            _ => {}
        }
    }
}

fn status_of(number: i32) -> Status {
    match number {
        0 => Status::Success,
        1 => Status::RemoteError,
        2 => Status::Canceled,
        3 => Status::Dropped,
        other => Status::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_kernels_structures() {
        assert_eq!(map(1, 2, 3, MapFlags::empty()).len(), 16 + 32);
        assert_eq!(dest(1).len(), 16 + 8);
        let args = args(1, (2, 3), (4, 5), OpFlags::WRITE, 6);
        assert_eq!(args.len(), 16 + 56);
        assert_eq!(args[16 + 40..16 + 48], 1_u64.to_ne_bytes());
        assert_eq!(args[..8], 72_u64.to_ne_bytes());
        assert_eq!(args[8..12], 276_i32.to_ne_bytes());
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        let mut bytes = dest(0x1234_0000_0001);
        // A notice is 16 bytes, of which four are padding.
        bytes.extend(encode(
            RDMA_STATUS,
            &[7, u64::from_ne_bytes([3, 0, 0, 0, 9, 9, 9, 9])],
        ));
        bytes.extend(encode(99, &[1]));
        bytes.extend(encode(CONG_UPDATE, &[1 << 5]));
        let told = decode(&bytes);
        assert_eq!(told.cookie, Some(0x1234_0000_0001));
        assert_eq!(told.uncongested, Some(32));
        let status = Status::Dropped;
        assert_eq!(told.notices, [Notice { token: 7, status }]);
    }

    #[test]
    fn damage_is_the_end_and_nothing_worse() {
        let whole = dest(5);
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), Told::default(), "{end}");
        }
        for len in [0_u64, 15, 16, 17, 1 << 40, u64::MAX] {
            let mut bytes = whole.clone();
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(decode(&bytes).cookie, None, "{len}");
        }
    }
}
