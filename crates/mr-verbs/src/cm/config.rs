//! How large a connection is, and how it waits for the peer.

use crate::{Device, PAGE};
use std::time::Duration;

/// Bytes of private data that a request can carry. The peer sees as many, padded with zeros.
pub const MAX_REQUEST_DATA: usize = 56;

/// Bytes of private data that a reply can carry. The peer sees as many, padded with zeros.
pub const MAX_REPLY_DATA: usize = 196;

/// Bytes of private data that a rejection can carry. The peer sees as many, padded with zeros.
pub const MAX_REJECT_DATA: usize = 148;

/// The settings of a connection. The defaults are those of RDS over InfiniBand, where it has any.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectionConfig {
    /// Work requests that may be under way, at least 8. Defaults to 256.
    pub sends: u32,
    /// Frames that may have arrived and not been posted again, at least 1. Defaults to 1024.
    pub receives: u32,
    /// Bytes of a frame's header: each frame has exactly so many. Defaults to 48.
    pub header_bytes: u32,
    /// Bytes of a frame's payload, at most. Defaults to 4096.
    pub payload_bytes: u32,
    /// Bytes of registered memory that the data of short RDMA operations is copied through, rounded
    /// up to whole pages. What finds no room there is registered. Defaults to 1 MiB.
    pub staging_bytes: usize,
    /// RDMA operations of up to so many bytes are copied. Defaults to 64 KiB.
    pub staged_at_most: usize,
    /// 4.096 µs × 2 to this power until a packet that was not acknowledged goes again. Defaults
    /// to 14 (67 ms).
    pub ack_timeout: u8,
    /// How often it goes again before the connection is lost, 1 to 7. Defaults to 7; RDS has 1.
    pub retries: u8,
    /// How long the peer is to wait when it has sent more than there are receives posted, by the code
    /// of the InfiniBand specification. Defaults to 10: 0.32 ms.
    pub rnr_timer: u8,
    /// Reads and atomic operations that may be under way in each direction, 1 to 16 and as many as
    /// both ends allow. Defaults to 16.
    pub rd_atomic: u8,
    /// How long the HCA has, when a connection is over, to end what was posted, at most a minute. What
    /// is left then ends with the queue pair. Defaults to 1 s.
    pub drain: Duration,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            sends: 256,
            receives: 1024,
            header_bytes: 48,
            payload_bytes: 4096,
            staging_bytes: 1 << 20,
            staged_at_most: 64 << 10,
            ack_timeout: 14,
            retries: 7,
            rnr_timer: 10,
            rd_atomic: 16,
            drain: Duration::from_secs(1),
        }
    }
}

impl ConnectionConfig {
    /// Bytes of registered memory that a connection with these settings takes. Beside it there are
    /// the queues, of some 200 bytes for each work request, three file descriptors, and the buffers of
    /// RDMA operations that are under way.
    pub fn memory(&self) -> u64 {
        let stride = u64::from(self.slot_bytes());
        [
            u64::from(self.sends) * stride,
            u64::from(self.receives) * stride,
            self.staging_bytes as u64,
        ]
        .into_iter()
        .map(|bytes| bytes.checked_next_multiple_of(PAGE as u64))
        .try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?))
        .unwrap_or(u64::MAX)
    }

    /// Bytes from one frame to the next: a frame, rounded up to a cache line.
    pub(crate) const fn slot_bytes(&self) -> u32 {
        self.frame_bytes().div_ceil(64).saturating_mul(64)
    }

    pub(crate) const fn frame_bytes(&self) -> u32 {
        self.header_bytes.saturating_add(self.payload_bytes)
    }

    /// The same within its bounds, and those of the device.
    pub(crate) fn clamped(mut self, device: &Device) -> Self {
        /// Nothing that is sent in one piece is as long.
        const LONGEST: u32 = 1 << 20;
        let attr = device.attr();
        let queue = attr.max_qp_wr.min(attr.max_cqe / 2).max(8);
        self.sends = self.sends.clamp(8, queue);
        self.receives = self.receives.clamp(1, queue);
        self.header_bytes = self.header_bytes.min(LONGEST);
        // An atomic operation leaves its result in a slot.
        self.payload_bytes = self.payload_bytes.clamp(8, LONGEST);
        self.ack_timeout = self.ack_timeout.clamp(1, 31);
        self.retries = self.retries.clamp(1, 7);
        self.rnr_timer = self.rnr_timer.min(31);
        self.drain = self.drain.min(Duration::from_secs(60));
        self.rd_atomic = self.rd_atomic.clamp(1, attr.max_rd_atomic.max(1));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_that_of_all_slots_and_the_staging() {
        let config = ConnectionConfig {
            sends: 2,
            receives: 1,
            staging_bytes: 1,
            ..ConnectionConfig::default()
        };
        assert_eq!(config.slot_bytes(), 4160);
        assert_eq!(config.memory(), (12 + 8 + 4) << 10);
        let absurd = ConnectionConfig {
            header_bytes: u32::MAX,
            staging_bytes: usize::MAX,
            ..config
        };
        assert_eq!(absurd.memory(), u64::MAX);
    }
}
