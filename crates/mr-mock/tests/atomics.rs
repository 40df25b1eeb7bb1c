//! Fetch-add and compare-swap through a key.

mod common;

use common::{Memory, hca};
use mr_core::{Access, KeyTag, MrBackend};
use mr_mock::RefusalReason;

fn word(memory: &Memory) -> u64 {
    let bytes = memory.bytes();
    u64::from_ne_bytes(std::array::from_fn(|place| bytes[8 + place]))
}

#[test]
fn atomics_change_the_word_and_return_what_was_there() {
    let hca = hca("connectx-5", &[]);
    let peer = hca.connect();
    let memory = Memory::new(64);
    let mut region = hca.alloc().unwrap();
    let access = Access::REMOTE_ATOMIC;
    let keys = hca.map(&mut region, memory.range(), access, KeyTag::new(1));
    let key = keys.unwrap().remote;

    assert_eq!(peer.fetch_add(key, 8, 5).unwrap().0, 0);
    assert_eq!(peer.fetch_add(key, 8, u64::MAX).unwrap().0, 5);
    assert_eq!(word(&memory), 4, "wraps");
    assert_eq!(peer.compare_swap(key, 8, 9, 1).unwrap().0, 4);
    assert_eq!(word(&memory), 4, "no match, no change");
    assert_eq!(peer.compare_swap(key, 8, 4, 1).unwrap().0, 4);
    assert_eq!(word(&memory), 1);

    for (offset, reason) in [
        (9, RefusalReason::Misaligned),
        (57, RefusalReason::OutOfRange),
        (64, RefusalReason::OutOfRange),
    ] {
        assert_eq!(peer.fetch_add(key, offset, 1).unwrap_err().reason, reason);
        assert!(peer.is_in_error());
        peer.recover();
    }
    assert_eq!(word(&memory), 1);
    hca.invalidate(&mut [&mut region]).unwrap();
    let refusal = peer.fetch_add(key, 8, 1).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Invalidated);
}

#[test]
fn atomics_need_their_own_access() {
    let hca = hca("connectx-5", &[]);
    let peer = hca.connect();
    let memory = Memory::new(64);
    let mut region = hca.alloc().unwrap();
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let keys = hca.map(&mut region, memory.range(), access, KeyTag::new(1));
    let refusal = peer.fetch_add(keys.unwrap().remote, 0, 1).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::AccessDenied);
}
