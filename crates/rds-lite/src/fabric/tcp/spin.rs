//! Looking again a few times rather than going to sleep.
//!
//! A peer that is about to answer is often faster than a sleep and a wake-up, most of all where a
//! processor without work is halted. Others that want the processor get it between two looks.

/// Looks before a sleep: some 70 us, which is more than the peer needs to wake up and to answer. Were
/// it less, two sides that both sleep would never find out that neither has to.
const LOOKS: u32 = 128;

/// Sleeps at most from one vain attempt to the next. It keeps the cost of attempts near a microsecond a
/// sleep where none is of use.
const MOST_SKIPPED: u32 = 63;

/// When it was last worth it.
#[derive(Debug, Default)]
pub(super) struct Spin {
    /// Looks of this attempt so far.
    looks: u32,
    /// Sleeps until the next attempt.
    left: u32,
    /// The same, after the next attempt if it is in vain.
    next: u32,
}

impl Spin {
    /// Somebody begins to wait.
    pub(super) fn begin(&mut self) {
        self.looks = 0;
    }

    /// There is nothing: whether to look once more before sleeping. Lets others have the processor.
    pub(super) fn again(&mut self) -> bool {
        if self.looks == 0 && self.left > 0 {
            self.left -= 1;
            return false;
        }
        if self.looks == LOOKS {
            self.looks = 0;
            self.left = self.next;
            self.next = (2 * self.next + 1).min(MOST_SKIPPED);
            return false;
        }
        self.looks += 1;
        std::thread::yield_now();
        true
    }

    /// There is something.
    pub(super) fn found(&mut self) {
        if self.looks > 0 {
            self.next = 0;
        }
        self.looks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks of `waits` waits for something that comes after so many.
    fn looks(spin: &mut Spin, waits: u32, comes_after: u32) -> u32 {
        let mut all = 0;
        for _ in 0..waits {
            spin.begin();
            let mut looks = 0;
            while looks < comes_after && spin.again() {
                looks += 1;
            }
            spin.found();
            all += looks;
        }
        all
    }

    #[test]
    fn vain_looks_become_rare_and_one_find_brings_them_back() {
        let mut spin = Spin::default();
        let vain = looks(&mut spin, 1000, u32::MAX);
        assert!((LOOKS..25 * LOOKS).contains(&vain), "{vain} in a thousand");
        assert!(looks(&mut spin, 64, 1) > 0);
        assert_eq!(looks(&mut spin, 100, LOOKS), 100 * LOOKS);
    }
}
