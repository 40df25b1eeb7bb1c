//! Keys that change from use to use, and come back.

use super::Harness;
use super::trial::{LEN, Trial, Verdict};
use crate::{KeyTag, MrBackend};

/// Whoever holds the key of the use before holds a wrong one.
pub fn consecutive_keys_differ<H: Harness>(trial: &Trial<H>) -> Verdict {
    if trial.backend().capabilities().tag_bits == 0 {
        return Verdict::RuledOut("its HCA chooses the key");
    }
    let mut region = trial.alloc();
    let mut memory = trial.harness.memory(LEN);
    let mut previous = None;
    for tag in 0..=255 {
        let place = trial.map(&mut region, &mut memory, tag);
        assert_ne!(previous, Some(place.key), "use {tag}");
        previous = Some(place.key);
        trial.invalidate(&mut region);
    }
    Verdict::Holds
}

/// A key held from the first use is refused after the first, the second, and many uses, while the
/// region is mapped for somebody else.
pub fn a_key_held_over_many_uses_is_refused<H: Harness>(trial: &Trial<H>) -> Verdict {
    const LOOKS: [u8; 5] = [1, 2, 3, 127, 255];
    let (mut region, first, held) = trial.mapped(0);
    trial.assert_writes(held, b"mine");
    trial.invalidate(&mut region);
    trial.assert_write_refused(held);
    for tag in 1..=255 {
        let mut memory = trial.harness.memory(LEN);
        let place = trial.map(&mut region, &mut memory, tag);
        // Where the HCA chooses the whole key it may choose an old one: then it is no stale key.
        if LOOKS.contains(&tag) && place.key != held.key {
            trial.assert_write_refused(held);
        }
        trial.invalidate(&mut region);
        assert!(memory.as_ref().iter().all(|&byte| byte == 0), "use {tag}");
    }
    assert_eq!(&first.as_ref()[..5], b"mine\0");
    Verdict::Holds
}

/// 8-bit tags wrap, so an old key can become right again. Then it must reach the new memory, and
/// never the old.
pub fn a_key_that_comes_back_after_256_uses_reaches_the_new_memory<H: Harness>(
    trial: &Trial<H>,
) -> Verdict {
    if trial.backend().capabilities().tag_bits == 0 {
        return Verdict::RuledOut("its HCA chooses the tag");
    }
    let (mut region, old, held) = trial.mapped(7);
    trial.assert_writes(held, b"old");
    trial.invalidate(&mut region);
    let mut between = trial.harness.memory(LEN);
    for use_number in 1..KeyTag::COUNT {
        let tag = (7 + use_number) as u8;
        let place = trial.map(&mut region, &mut between, tag);
        assert_ne!(place.key, held.key);
        trial.invalidate(&mut region);
    }
    let mut new = trial.harness.memory(LEN);
    let again = trial.map(&mut region, &mut new, 7);
    assert_eq!(again.key.tag(), held.key.tag());
    trial.assert_writes(again, b"new");
    trial.invalidate(&mut region);
    assert_eq!(
        (&old.as_ref()[..4], &new.as_ref()[..4]),
        (&b"old\0"[..], &b"new\0"[..])
    );
    assert!(between.as_ref().iter().all(|&byte| byte == 0));
    Verdict::Holds
}
