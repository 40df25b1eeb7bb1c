//! Flow control by credits: how many frames the peer has receive buffers for.

/// A grant is announced by itself from so many buffers on, as in the kernel.
const ANNOUNCE: u32 = 16;

/// The most that one header grants.
const MAX_GRANT: u32 = 255;

/// Credits of one link.
///
/// Each frame uses one of the peer's receive buffers, and each frame received frees one of this side's
/// again. The last credit is kept for a frame that grants some: two sides without credits could not
/// tell each other that there are buffers.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    on: bool,
    /// Frames that the peer has buffers for.
    send: u32,
    /// Buffers of this side that the peer does not know of.
    owed: u32,
    /// So many owed are announced.
    announce: u32,
}

impl Credits {
    /// What a link begins with: `granted` by the peer, or 0 if it does not count. This side has
    /// granted all of its `ring` buffers.
    pub(crate) fn new(granted: u32, ring: u32) -> Self {
        Self {
            on: granted > 0,
            send: granted,
            owed: 0,
            announce: ANNOUNCE.min(ring / 2).max(1),
        }
    }

    /// Whether a frame may be sent.
    pub(crate) const fn allow(&self) -> bool {
        // The last one must grant something.
        !self.on || self.send > 1 || (self.send == 1 && self.owed > 0)
    }

    /// A frame is sent. Returns what its header grants.
    pub(crate) fn spend(&mut self) -> u8 {
        if !self.on {
            return 0;
        }
        self.send = self.send.saturating_sub(1);
        let grant = self.owed.min(MAX_GRANT);
        self.owed -= grant;
        grant as u8
    }

    /// A frame has arrived, whose header grants `grant`. Says whether this side owes so much that it
    /// must say so.
    pub(crate) fn arrived(&mut self, grant: u8) -> bool {
        if !self.on {
            return false;
        }
        self.send = self.send.saturating_add(u32::from(grant));
        self.owed = self.owed.saturating_add(1);
        self.owed >= self.announce
    }

    /// Frames that may be sent now, for statistics; `None` where they are not counted.
    pub(crate) fn left(&self) -> Option<u32> {
        self.on.then_some(self.send)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::{RngCore, SeedableRng};
    use std::collections::VecDeque;

    /// Two sides that send whenever they may, and announce when they must: nobody sends what has no
    /// buffer, and neither stops for good.
    #[test]
    fn no_frame_without_a_buffer_and_no_standstill() {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        for ring in [2, 3, 15, 16, 17, 32, 1024] {
            let mut sides = [Credits::new(ring, ring), Credits::new(ring, ring)];
            let mut wires = [VecDeque::new(), VecDeque::new()];
            // Buffers that are free, at the other side.
            let mut free = [ring, ring];
            let mut sent = [0, 0];
            let mut must = [false, false];
            let mut half = 0;
            for step in 0..20_000 {
                let side = (random.next_u32() % 2) as usize;
                // The second half is one way only.
                let talks = side == 0 || step < 10_000;
                if step == 10_000 {
                    half = sent[0];
                }
                if random.next_u32().is_multiple_of(2) {
                    if (talks || must[side]) && sides[side].allow() {
                        must[side] = false;
                        free[side] -= 1;
                        sent[side] += 1;
                        wires[side].push_back(sides[side].spend());
                    }
                } else if let Some(grant) = wires[1 - side].pop_front() {
                    free[1 - side] += 1;
                    must[side] |= sides[side].arrived(grant);
                }
            }
            // At most one step in four sends.
            assert!(
                half > 500 && sent[0] - half > 500,
                "ring {ring}: {half} {sent:?}"
            );
        }
    }

    #[test]
    fn without_a_grant_nothing_is_counted() {
        let mut credits = Credits::new(0, 1024);
        for _ in 0..3000 {
            assert!(credits.allow());
            assert_eq!(credits.spend(), 0);
            assert!(!credits.arrived(255));
        }
        assert_eq!(credits.left(), None);
    }

    #[test]
    fn a_header_grants_at_most_255() {
        let mut credits = Credits::new(10, 1024);
        for _ in 0..300 {
            credits.arrived(0);
        }
        assert_eq!(
            (credits.spend(), credits.spend(), credits.spend()),
            (255, 45, 0)
        );
        assert_eq!(credits.left(), Some(7));
    }
}
