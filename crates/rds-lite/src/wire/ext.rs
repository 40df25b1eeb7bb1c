//! Extension headers: up to 16 bytes of typed records at the end of a header.

/// Bytes of the extension area.
const AREA: usize = 16;

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ext {
    /// Protocol version (legacy).
    Version(u32),
    /// "I have done an RDMA on this key of yours."
    Rdma {
        /// The key.
        rkey: u32,
    },
    /// "Here is a buffer of mine."
    RdmaDest {
        /// Its key.
        rkey: u32,
        /// Where the buffer begins behind the key.
        offset: u32,
    },
    /// How much an RDMA has moved (mainline of 2026).
    RdmaBytes {
        /// Bytes.
        bytes: u32,
        /// 1: written, 2: read.
        flags: u8,
    },
    /// How many paths the sender can use (probe and its answer).
    NPaths(u16),
    /// The boot generation of the sender (probe and its answer).
    GenNum(u32),
    /// Capabilities (UEK).
    CapBits(u32),
    /// The low bits of the client's TCP port carry the path (mainline of 2026).
    SportIdx,
}

impl Ext {
    const fn kind(&self) -> u8 {
        match self {
            Self::Version(_) => 1,
            Self::Rdma { .. } => 2,
            Self::RdmaDest { .. } => 3,
            Self::RdmaBytes { .. } => 4,
            Self::NPaths(_) => 5,
            Self::GenNum(_) => 6,
            Self::CapBits(_) => 7,
            Self::SportIdx => 8,
        }
    }

    /// Body bytes of a type, where the type is known.
    const fn body_len(kind: u8) -> Option<usize> {
        match kind {
            1 | 2 | 6 | 7 => Some(4),
            3 | 4 => Some(8),
            5 => Some(2),
            8 => Some(1),
            _ => None,
        }
    }

    /// The body, field by field: what is padding is zero.
    fn body(&self) -> [u8; 8] {
        let mut body = [0; 8];
        match *self {
            Self::Version(word) | Self::GenNum(word) | Self::CapBits(word) => put(&mut body, word),
            Self::Rdma { rkey } => put(&mut body, rkey),
            Self::RdmaDest { rkey, offset } => {
                put(&mut body, rkey);
                put(&mut body[4..], offset);
            }
            Self::RdmaBytes { bytes, flags } => {
                put(&mut body, bytes);
                body[4] = flags;
            }
            Self::NPaths(paths) => body[..2].copy_from_slice(&paths.to_be_bytes()),
            Self::SportIdx => {}
        }
        body
    }

    fn parse(kind: u8, body: &[u8]) -> Option<Self> {
        Some(match kind {
            1 => Self::Version(word(body)?),
            2 => Self::Rdma { rkey: word(body)? },
            3 => Self::RdmaDest {
                rkey: word(body)?,
                offset: word(body.get(4..)?)?,
            },
            4 => Self::RdmaBytes {
                bytes: word(body)?,
                flags: *body.get(4)?,
            },
            5 => Self::NPaths(u16::from_be_bytes(body.try_into().ok()?)),
            6 => Self::GenNum(word(body)?),
            7 => Self::CapBits(word(body)?),
            8 => Self::SportIdx,
            _ => return None,
        })
    }
}

fn put(to: &mut [u8], word: u32) {
    to[..4].copy_from_slice(&word.to_be_bytes());
}

fn word(from: &[u8]) -> Option<u32> {
    let bytes = from.get(..4)?.try_into().ok()?;
    Some(u32::from_be_bytes(bytes))
}

/// The extension area of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtArea([u8; AREA]);

impl ExtArea {
    /// An area without extension headers.
    pub const EMPTY: Self = Self([0; AREA]);

    /// The area with these bytes, as they came.
    pub const fn from_bytes(bytes: [u8; AREA]) -> Self {
        Self(bytes)
    }

    /// The bytes, as they go out.
    pub const fn bytes(&self) -> &[u8; AREA] {
        &self.0
    }

    /// The area with `ext` behind what is there. What does not fit is left out, as by the kernel,
    /// and so is everything behind a record that is not understood.
    #[must_use]
    pub fn with(mut self, ext: Ext) -> Self {
        let mut walk = self.iter();
        let understood = walk.by_ref().all(|record| record.is_ok());
        let at = walk.at;
        let len = Ext::body_len(ext.kind()).unwrap_or(0);
        if understood && at + 1 + len <= AREA {
            self.0[at] = ext.kind();
            self.0[at + 1..][..len].copy_from_slice(&ext.body()[..len]);
            // Behind the end of the records a peer may have left anything.
            self.0[at + 1 + len..].fill(0);
        }
        self
    }

    /// The extension headers in order.
    pub const fn iter(&self) -> ExtIter<'_> {
        ExtIter {
            area: &self.0,
            at: 0,
            ended: false,
        }
    }
}

impl<'a> IntoIterator for &'a ExtArea {
    type Item = Result<Ext, UnknownExt>;
    type IntoIter = ExtIter<'a>;

    fn into_iter(self) -> ExtIter<'a> {
        self.iter()
    }
}

/// A record whose type is not known: neither is its length, so nothing behind it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("extension header of unknown type {0}")]
pub struct UnknownExt(pub u8);

/// Walks the records of an [`ExtArea`]; at most 16.
#[derive(Clone, Debug)]
pub struct ExtIter<'a> {
    area: &'a [u8; AREA],
    at: usize,
    ended: bool,
}

impl Iterator for ExtIter<'_> {
    type Item = Result<Ext, UnknownExt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let kind = *self.area.get(self.at)?;
        if kind == 0 {
            self.ended = true;
            return None;
        }
        let record = Ext::body_len(kind).and_then(|len| {
            let body = self.area.get(self.at + 1..self.at + 1 + len)?;
            Some((Ext::parse(kind, body)?, len))
        });
        match record {
            Some((ext, len)) => {
                self.at += 1 + len;
                Some(Ok(ext))
            }
            None => {
                self.ended = true;
                Some(Err(UnknownExt(kind)))
            }
        }
    }
}
