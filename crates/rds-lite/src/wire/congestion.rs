//! The congestion map: which ports of an address take no more for now.

use crate::wire::MAP_LEN;
use std::fmt;

/// One bit per port, set while the socket there has more queued than its receive buffer holds.
#[derive(Clone, PartialEq, Eq)]
pub struct CongestionMap {
    bits: Box<[u8; MAP_LEN]>,
    set: u32,
}

impl CongestionMap {
    /// A map with no port congested.
    pub fn new() -> Self {
        Self {
            bits: Box::new([0; MAP_LEN]),
            set: 0,
        }
    }

    /// The map in a payload; `None` if it does not have exactly 8192 bytes.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let bits: Box<[u8; MAP_LEN]> = Box::new(payload.try_into().ok()?);
        let set = bits.iter().map(|byte| byte.count_ones()).sum();
        Some(Self { bits, set })
    }

    /// The map as it goes out: port `p` is bit `p % 8` of byte `p / 8`.
    pub fn bytes(&self) -> &[u8; MAP_LEN] {
        &self.bits
    }

    /// Whether `port` is congested.
    pub fn contains(&self, port: u16) -> bool {
        self.bits[usize::from(port) / 8] >> (port % 8) & 1 != 0
    }

    /// Whether no port is congested.
    pub const fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// Sets or clears the bit of `port`. Says whether that changed it.
    pub fn set(&mut self, port: u16, congested: bool) -> bool {
        if self.contains(port) == congested {
            return false;
        }
        self.bits[usize::from(port) / 8] ^= 1 << (port % 8);
        if congested {
            self.set += 1;
        } else {
            self.set -= 1;
        }
        true
    }
}

impl Default for CongestionMap {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CongestionMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = (0..=u16::MAX).filter(|&port| self.contains(port));
        f.debug_set().entries(ports).finish()
    }
}
