//! What every message of the load begins with: the header of rds-stress.

/// Bytes of the header.
pub const HEADER: usize = 63;

/// Whether a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It asks.
    Request,
    /// It answers.
    Answer,
}

/// What the answerer does to the asker's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rdma {
    /// Nothing.
    None,
    /// Reads it.
    Read,
    /// Writes to it.
    Write,
}

/// The header, as far as it is used here; the other fields of rds-stress are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Requests are numbered from 1, per pair of tasks.
    pub seq: u32,
    /// Which of the asker's requests under way.
    pub index: u16,
    /// Asks or answers.
    pub kind: Kind,
    /// What is done to the asker's memory.
    pub rdma: Rdma,
    /// What the memory is filled with.
    pub pattern: u64,
    /// The asker's memory; 0 if the cookie comes beside the message.
    pub cookie: u64,
    /// Bytes of it.
    pub rdma_bytes: u32,
}

impl Header {
    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut to = [0; HEADER];
        to[0..4].copy_from_slice(&self.seq.to_be_bytes());
        to[16..18].copy_from_slice(&self.index.to_be_bytes());
        to[18] = match self.kind {
            Kind::Request => 1,
            Kind::Answer => 2,
        };
        to[19] = match self.rdma {
            Rdma::None => 0,
            Rdma::Read => 1,
            Rdma::Write => 2,
        };
        to[36..44].copy_from_slice(&self.pattern.to_be_bytes());
        to[44..52].copy_from_slice(&self.cookie.to_be_bytes());
        to[52..56].copy_from_slice(&self.rdma_bytes.to_be_bytes());
        to
    }

    /// The header in front of `from`, if it is one.
    #[must_use]
    pub fn decode(from: &[u8]) -> Option<Self> {
        let from = from.get(..HEADER)?;
        Some(Self {
            seq: u32::from_be_bytes(from[0..4].try_into().ok()?),
            index: u16::from_be_bytes(from[16..18].try_into().ok()?),
            kind: match from[18] {
                1 => Kind::Request,
                2 => Kind::Answer,
                _ => return None,
            },
            rdma: match from[19] {
                0 => Rdma::None,
                1 => Rdma::Read,
                2 => Rdma::Write,
                _ => return None,
            },
            pattern: u64::from_be_bytes(from[36..44].try_into().ok()?),
            cookie: u64::from_be_bytes(from[44..52].try_into().ok()?),
            rdma_bytes: u32::from_be_bytes(from[52..56].try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let header = Header {
            seq: 7,
            index: 3,
            kind: Kind::Request,
            rdma: Rdma::Write,
            pattern: 0x0102_0304_0506_0708,
            cookie: u64::MAX - 1,
            rdma_bytes: 1 << 20,
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        assert_eq!(Header::decode(&bytes[1..]), None);
        assert_eq!(Header::decode(&[0; HEADER]), None);
    }
}
