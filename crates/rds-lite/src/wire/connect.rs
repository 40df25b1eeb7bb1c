//! What two sides tell each other when they make a link over InfiniBand: private data of the
//! connection manager.
//!
//! Over IPv4 the kernel's block has 32 bytes: both addresses, then version, mask of minor versions,
//! type of service, acknowledgement, credit and padding. Behind it this crate puts 12 bytes of its own,
//! where the kernel looks at nothing: by them two hosts of this crate tell a peer that begins anew
//! from one that has lost its link. A connection manager fills what is behind with zeros, so the length
//! says nothing; the first bytes do.

use std::fmt;
use std::net::Ipv4Addr;

/// Bytes of the kernel's block.
pub const CONNECT_LEN: usize = 32;
/// The most that a connection request carries over the address of a service.
pub const CONNECT_MAX: usize = 56;

/// Marks the block of this crate.
const MARK: [u8; 4] = *b"rdsl";
const GENERATIONS: std::ops::Range<usize> = 36..44;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// 3 or 4.
    pub major: u8,
    /// 0 or 1.
    pub minor: u8,
}

impl Version {
    /// What two kernels of 6.1 speak.
    pub const V3_1: Self = Self { major: 3, minor: 1 };
    /// What a peer speaks that says nothing.
    pub const V4_0: Self = Self { major: 4, minor: 0 };
    /// The newest.
    pub const V4_1: Self = Self { major: 4, minor: 1 };

    /// Minor versions that this crate speaks under a major one: bit n for minor n.
    pub const MINORS: u16 = 0b11;
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Boot generations, as one side knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generations {
    /// Of the side that sends this; never 0.
    pub own: u32,
    /// Of the other side, by which the acknowledgement counts; 0 if it is not known.
    pub peers: u32,
}

/// What a side says of itself when it asks for a link, or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Its address; unspecified if it does not say.
    pub source: Ipv4Addr,
    /// The other side's.
    pub destination: Ipv4Addr,
    /// The version proposed, or chosen.
    pub version: Version,
    /// Minor versions that it speaks: bit n for minor n.
    pub minors: u16,
    /// Type of service.
    pub tos: u8,
    /// Messages up to this number have arrived; 0 for none.
    pub ack: u64,
    /// Receive buffers that the other side may fill; 0: do not count.
    pub credit: u32,
    /// Who it is, if it is a host of this crate.
    pub generations: Option<Generations>,
}

impl Connect {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; CONNECT_LEN];
        bytes[0..4].copy_from_slice(&self.source.octets());
        bytes[4..8].copy_from_slice(&self.destination.octets());
        bytes[8] = self.version.major;
        bytes[9] = self.version.minor;
        bytes[10..12].copy_from_slice(&self.minors.to_be_bytes());
        bytes[12] = self.tos;
        bytes[16..24].copy_from_slice(&self.ack.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.credit.to_be_bytes());
        if let Some(generations) = self.generations {
            bytes.extend(MARK);
            bytes.extend(generations.own.to_be_bytes());
            bytes.extend(generations.peers.to_be_bytes());
        }
        bytes
    }

    /// What `bytes` say, however long they are; `None` if there are none. A block that is too short or
    /// says no version is that of a peer of version 4.0 that says nothing, as in the kernel.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let block = bytes.first_chunk::<CONNECT_LEN>();
        let Some(block) = block.filter(|block| block[8] != 0) else {
            return Some(Self::silent());
        };
        Some(Self {
            source: Ipv4Addr::from(take::<4>(block, 0)),
            destination: Ipv4Addr::from(take::<4>(block, 4)),
            version: Version {
                major: block[8],
                minor: block[9],
            },
            minors: u16::from_be_bytes(take(block, 10)),
            tos: block[12],
            ack: u64::from_be_bytes(take(block, 16)),
            credit: u32::from_be_bytes(take(block, 24)),
            generations: generations(bytes),
        })
    }

    const fn silent() -> Self {
        Self {
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
            version: Version::V4_0,
            minors: 1,
            tos: 0,
            ack: 0,
            credit: 0,
            generations: None,
        }
    }

    /// The version to speak with a side that asks like this; `None`: there is none. Under major
    /// version 4 the highest minor that both speak; else nothing but 3.1.
    pub fn choose(&self) -> Option<Version> {
        let common = self.minors & Version::MINORS;
        match self.version {
            Version { major: 4, .. } if common != 0 => Some(Version {
                major: 4,
                minor: common.ilog2() as u8,
            }),
            Version::V3_1 => Some(Version::V3_1),
            _ => None,
        }
    }
}

fn generations(bytes: &[u8]) -> Option<Generations> {
    if bytes.get(CONNECT_LEN..CONNECT_LEN + MARK.len())? != MARK {
        return None;
    }
    let words: [u8; 8] = bytes.get(GENERATIONS)?.try_into().ok()?;
    let words = u64::from_be_bytes(words);
    let (own, peers) = ((words >> 32) as u32, words as u32);
    (own != 0).then_some(Generations { own, peers })
}

fn take<const N: usize>(block: &[u8; CONNECT_LEN], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&block[at..at + N]);
    field
}

/// Why a side does not want a link, as far as it says: a number in its own byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It says nothing, or that it does not speak the version. A kernel says the latter of whatever it
    /// refuses, also where both sides dial at once.
    Incompatible,
    /// Something else.
    Other(i32),
}

impl Rejection {
    /// The bytes of a refusal for want of a common version, or for any other reason.
    pub fn encode() -> Vec<u8> {
        1i32.to_ne_bytes().to_vec()
    }

    /// What a refusal says, whose bytes may be missing, or padded with zeros.
    pub fn decode(bytes: &[u8]) -> Self {
        match bytes.first_chunk().map(|word| i32::from_ne_bytes(*word)) {
            Some(reason) if reason > 1 => Self::Other(reason),
            _ => Self::Incompatible,
        }
    }
}
