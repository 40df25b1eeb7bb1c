//! Looking a few times more before going to sleep.
//!
//! A peer that is about to answer is faster than a sleep and a wake-up, most of all where a processor
//! without work is halted. Others that want the processor get it between two looks.

/// Looks before a sleep: some 20 us.
const LOOKS: u32 = 32;

/// Sleeps at most from one vain attempt to the next, which keeps the cost of all attempts below a
/// microsecond a sleep where none is of use.
const MOST_SKIPPED: u32 = 63;

/// When it was last worth it.
#[derive(Debug, Default)]
pub(super) struct Spin {
    /// Sleeps until the next attempt.
    left: u32,
    /// The same, after the next attempt if it is in vain.
    next: u32,
}

impl Spin {
    /// Looks until `look` finds something, if that is likely to be soon. Says whether it did.
    pub(super) fn until<E>(
        &mut self,
        mut look: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        if self.left > 0 {
            self.left -= 1;
            return Ok(false);
        }
        for _ in 0..LOOKS {
            std::thread::yield_now();
            if look()? {
                self.next = 0;
                return Ok(true);
            }
        }
        self.left = self.next;
        self.next = (2 * self.next + 1).min(MOST_SKIPPED);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(spin: &mut Spin, found: bool) -> u32 {
        let mut looks = 0;
        let result: Result<_, ()> = spin.until(|| {
            looks += 1;
            Ok(found)
        });
        assert_eq!(result, Ok(found && looks > 0));
        looks
    }

    #[test]
    fn vain_looks_become_rare_and_one_find_brings_them_back() {
        let mut spin = Spin::default();
        let vain: u32 = (0..1000).map(|_| looks(&mut spin, false)).sum();
        assert!(vain <= 22 * LOOKS, "{vain} looks in a thousand sleeps");
        while looks(&mut spin, true) == 0 {}
        for _ in 0..100 {
            assert_eq!(looks(&mut spin, true), 1);
        }
    }
}
