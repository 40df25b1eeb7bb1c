//! Every check that stands between a peer and the memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{ALL, Memory, hca, map};
use mr_core::{Access, ErrorKind, KeyTag, MrBackend, RemoteKey};
use mr_core::{BackendError, KeyScope};
use mr_mock::{MockError, MockHca, Operation, Preset, RefusalReason, RemotePeer};

/// Runs an operation on a connection in service and returns why it was refused, if it was.
fn attempt(
    peer: &RemotePeer,
    operation: Operation,
    key: RemoteKey,
    offset: u64,
    len: u64,
) -> Option<RefusalReason> {
    peer.recover();
    let touched = peer.touch(operation, key, offset, len).err();
    assert_eq!(peer.is_in_error(), touched.is_some());
    peer.recover();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    let moved = match operation {
        Operation::Write => peer.write(key, offset, &bytes),
        Operation::Read => peer.read(key, offset, &mut bytes),
    };
    let reason = touched.map(|refusal| refusal.reason);
    assert_eq!(
        moved.err().map(|refusal| refusal.reason),
        reason,
        "moving bytes and touching must agree"
    );
    reason
}

#[test]
fn access_is_what_the_mapping_allows_and_nothing_else() {
    let hca = hca("connectx-2008", &[]);
    let peer = hca.connect();
    let memory = Memory::new(64);
    for bits in 0..=ALL.bits() {
        let access = Access::from_bits_truncate(bits);
        let mut region = hca.alloc().unwrap();
        let key = hca
            .map(&mut region, memory.range(), access, KeyTag::new(0))
            .unwrap()
            .remote;
        for (operation, needed) in [
            (Operation::Write, Access::REMOTE_WRITE),
            (Operation::Read, Access::REMOTE_READ),
        ] {
            let expected = (!access.contains(needed)).then_some(RefusalReason::AccessDenied);
            assert_eq!(
                attempt(&peer, operation, key, 0, 64),
                expected,
                "{access:?}"
            );
        }
    }
}

#[test]
fn no_byte_outside_of_the_mapping_is_reached() {
    for start in [0, 1, 4000] {
        let hca = hca(
            "connectx-2008",
            &[("page_bytes", "512"), ("mtu_bytes", "256")],
        );
        let peer = hca.connect();
        const LEN: u64 = 1300;
        // Guard bytes on both sides.
        let around = Memory::at(start, 100 + LEN as usize + 100);
        let memory = around.part(100, LEN as usize);
        let mut region = hca.alloc().unwrap();
        let key = map(&hca, &mut region, &memory, 0).remote;
        let edges = [
            0,
            1,
            255,
            256,
            511,
            512,
            1299,
            1300,
            1301,
            u64::MAX - 1,
            u64::MAX,
        ];
        for offset in edges {
            for len in [1, 2, 256, 257, 1299, 1300, 1301] {
                let inside = offset.checked_add(len).is_some_and(|end| end <= LEN);
                let expected = (!inside).then_some(RefusalReason::OutOfRange);
                for operation in [Operation::Write, Operation::Read] {
                    assert_eq!(
                        attempt(&peer, operation, key, offset, len),
                        expected,
                        "{operation:?} {offset}+{len}"
                    );
                }
            }
        }
        peer.recover();
        peer.write(key, 0, &[0xff; LEN as usize]).unwrap();
        let bytes = around.bytes();
        let written = bytes.iter().filter(|&&byte| byte == 0xff).count();
        assert_eq!(written, LEN as usize);
        assert!(bytes[100..100 + LEN as usize].iter().all(|&b| b == 0xff));
    }
}

#[test]
fn bytes_arrive_where_they_belong() {
    let hca = hca("connectx-5", &[("mtu_bytes", "256")]);
    let peer = hca.connect();
    let memory = Memory::at(123, 100_000);
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &memory, 0).remote;
    let data: Vec<u8> = (0..90_000u32).map(|n| (n % 251) as u8).collect();
    peer.write(key, 5_000, &data).unwrap();
    assert_eq!(&memory.bytes()[5_000..95_000], &data[..]);
    let mut back = vec![0; 70_000];
    let transfer = peer.read(key, 15_000, &mut back).unwrap();
    assert_eq!(back, &data[10_000..80_000]);
    assert_eq!(transfer.bytes, 70_000);
    assert_eq!(transfer.packets, 70_000u64.div_ceil(256));
}

#[test]
fn local_and_remote_keys_never_match() {
    let hca = hca("connectx-5", &[]);
    let peer = hca.connect();
    for tag in [0, 1, 254, 255] {
        let mut region = hca.alloc().unwrap();
        let keys = map(&hca, &mut region, &Memory::new(64), tag);
        assert_ne!(keys.local.bits(), keys.remote.bits());
        assert_eq!(keys.local.tag(), keys.remote.tag());
        assert_eq!(keys.remote.tag(), KeyTag::new(tag));
        let mistaken = RemoteKey::from_bits(keys.local.bits());
        assert_eq!(
            attempt(&peer, Operation::Write, mistaken, 0, 1),
            Some(RefusalReason::UnknownKey)
        );
    }
}

#[test]
fn only_the_one_right_tag_is_honoured() {
    let hca = hca("connectx-5", &[]);
    let peer = hca.connect();
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(64), 77).remote;
    for tag in 0..=255 {
        let expected = (tag != 77).then_some(RefusalReason::Invalidated);
        let tried = key.with_tag(KeyTag::new(tag));
        assert_eq!(attempt(&peer, Operation::Read, tried, 0, 1), expected);
    }
    for index in [0, 2, 3, (1 << 23) - 1, 1 << 23, (1 << 24) - 1] {
        let tried = RemoteKey::new(index, KeyTag::new(77));
        assert_eq!(
            attempt(&peer, Operation::Read, tried, 0, 1),
            Some(RefusalReason::UnknownKey)
        );
    }
}

#[test]
fn a_key_is_worth_nothing_in_another_domain() {
    let hca = hca("connectx-5", &[]);
    let other = hca.another_domain();
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(64), 0).remote;
    let foreign = other.connect();
    assert_eq!(
        attempt(&foreign, Operation::Write, key, 0, 1),
        Some(RefusalReason::WrongDomain)
    );
    foreign.recover();
    assert_eq!(
        foreign.invalidate(key).unwrap_err().reason,
        RefusalReason::WrongDomain
    );
    assert_eq!(attempt(&hca.connect(), Operation::Write, key, 0, 1), None);
}

#[test]
fn a_key_of_a_connection_is_worth_nothing_on_another() {
    let hca = hca("connectx-5-window", &[]);
    assert_eq!(hca.capabilities().key_scope, KeyScope::Connection);
    let (peer, other) = (hca.connect(), hca.connect());
    let bound = hca.for_connection(&peer).unwrap();
    let mut region = bound.alloc().unwrap();
    let unbound = hca.map(&mut region, Memory::new(64).range(), ALL, KeyTag::new(0));
    assert_eq!(unbound, Err(MockError::NoConnection));
    let key = map(&bound, &mut region, &Memory::new(64), 0).remote;
    assert_eq!(attempt(&peer, Operation::Write, key, 0, 1), None);
    assert_eq!(
        attempt(&other, Operation::Write, key, 0, 1),
        Some(RefusalReason::WrongConnection)
    );
    other.recover();
    assert_eq!(
        other.invalidate(key).unwrap_err().reason,
        RefusalReason::WrongConnection
    );
    assert!(!bound.invalidated_by_peer(&mut region));
    assert!(hca.another_domain().for_connection(&peer).is_err());
}

#[test]
fn a_refusal_stops_the_connection_and_only_that_one() {
    let hca = hca("connectx-5", &[]);
    let (peer, other) = (hca.connect(), hca.connect());
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(64), 0).remote;
    peer.write(key, 60, &[0; 5]).unwrap_err();
    assert_eq!(
        peer.write(key, 0, &[0; 5]).unwrap_err().reason,
        RefusalReason::ConnectionInError
    );
    assert_eq!(
        peer.write(key, 0, &[]).unwrap_err().reason,
        RefusalReason::ConnectionInError
    );
    other.write(key, 0, &[0; 5]).unwrap();
    peer.recover();
    peer.write(key, 0, &[0; 5]).unwrap();
    assert_eq!(hca.counters().packets_refused, 1);
}

#[test]
fn a_transfer_without_bytes_checks_no_key() {
    let peer = hca("connectx-5", &[]).connect();
    let nothing = RemoteKey::from_bits(0xdead_beef);
    assert_eq!(attempt(&peer, Operation::Write, nothing, 9, 0), None);
    assert_eq!(attempt(&peer, Operation::Read, nothing, 9, 0), None);
}

#[test]
fn a_peer_can_end_a_mapping_that_it_has_the_key_of() {
    let hca = hca("connectx-5", &[]);
    let peer = hca.connect();
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(64), 5).remote;
    assert!(!hca.invalidated_by_peer(&mut region));
    let wrong = key.with_tag(KeyTag::new(6));
    assert_eq!(
        peer.invalidate(wrong).unwrap_err().reason,
        RefusalReason::Invalidated
    );
    assert!(!hca.invalidated_by_peer(&mut region));
    peer.recover();
    peer.write(key, 0, b"warm").unwrap();
    peer.invalidate(key).unwrap();
    assert!(hca.invalidated_by_peer(&mut region));
    assert_eq!(
        attempt(&peer, Operation::Write, key, 0, 1),
        Some(RefusalReason::Invalidated)
    );
    peer.recover();
    assert_eq!(
        peer.invalidate(key).unwrap_err().reason,
        RefusalReason::Invalidated
    );
    // No local work is needed before the next use.
    let next = map(&hca, &mut region, &Memory::new(64), 6).remote;
    assert!(!hca.invalidated_by_peer(&mut region));
    assert_eq!(attempt(&peer, Operation::Write, next, 0, 1), None);
}

#[test]
fn an_fmr_knows_no_invalidation_by_peers() {
    let hca = hca("connectx-2008", &[]);
    let peer = hca.connect();
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(64), 5).remote;
    assert_eq!(
        peer.invalidate(key).unwrap_err().reason,
        RefusalReason::Unsupported
    );
    assert_eq!(attempt(&peer, Operation::Write, key, 0, 1), None);
}

#[test]
fn a_region_is_refused_what_its_state_forbids() {
    let hca = hca("connectx-5", &[("max_pages", "4"), ("max_regions", "2")]);
    let mut region = hca.alloc().unwrap();
    map(&hca, &mut region, &Memory::new(64), 0);
    let again = hca.map(&mut region, Memory::new(64).range(), ALL, KeyTag::new(1));
    assert_eq!(again, Err(MockError::NotInvalidated));
    let failed = hca.dealloc(region).unwrap_err();
    assert_eq!(failed.error, MockError::NotInvalidated);
    let mut region = failed.region;
    hca.invalidate(&mut [&mut region]).unwrap();

    let too_large = hca.map(
        &mut region,
        Memory::at(1, 4 * 4096).range(),
        ALL,
        KeyTag::new(1),
    );
    assert_eq!(too_large.unwrap_err().kind(), ErrorKind::Denied);
    assert!(hca.capabilities().max_bytes <= 3 * 4096);
    map(&hca, &mut region, &Memory::new(4 * 4096), 1);

    let other = hca.alloc().unwrap();
    assert_eq!(hca.alloc().unwrap_err().kind(), ErrorKind::NoMemory);
    hca.dealloc(other).unwrap();
    assert_eq!(hca.regions(), 1);
    hca.alloc().unwrap();
}

#[test]
fn a_region_is_known_only_where_it_is_from() {
    let preset = Preset::named("connectx-5").unwrap();
    let (hca, stranger) = (MockHca::new(&preset), MockHca::new(&preset));
    for other in [stranger, hca.another_domain()] {
        let mut ours = hca.alloc().unwrap();
        let mut theirs = other.alloc().unwrap();
        let key = map(&hca, &mut ours, &Memory::new(64), 0).remote;
        map(&other, &mut theirs, &Memory::new(64), 0);
        let failed = other.invalidate(&mut [&mut ours, &mut theirs]).unwrap_err();
        assert!(!failed.is_dead(0));
        assert!(failed.is_dead(1));
        assert_eq!(attempt(&hca.connect(), Operation::Write, key, 0, 1), None);
        assert!(other.dealloc(ours).is_err());
    }
}

#[test]
fn a_removed_device_honours_nothing() {
    let hca = hca("connectx-2008", &[]);
    let peer = hca.connect();
    let mut region = hca.alloc().unwrap();
    let key = map(&hca, &mut region, &Memory::new(64), 0).remote;
    peer.write(key, 0, b"warm").unwrap();
    hca.remove();
    assert_eq!(
        attempt(&peer, Operation::Write, key, 0, 1),
        Some(RefusalReason::DeviceRemoved)
    );
    let failed = hca.invalidate(&mut [&mut region]).unwrap_err();
    assert_eq!(
        failed.error(0).map(BackendError::kind),
        Some(ErrorKind::NoDevice)
    );
    assert_eq!(hca.alloc().unwrap_err().kind(), ErrorKind::NoDevice);
    assert!(hca.dealloc(region).is_err());
}

#[test]
fn where_the_hca_chooses_keys_they_do_not_repeat_at_once() {
    let hca = hca("connectx-3-registration", &[]);
    assert_eq!(hca.capabilities().tag_bits, 0);
    let mut region = hca.alloc().unwrap();
    let mut seen = Vec::new();
    for _ in 0..256 {
        let key = map(&hca, &mut region, &Memory::new(64), 9).remote;
        assert!(!seen.contains(&key));
        seen.push(key);
        hca.invalidate(&mut [&mut region]).unwrap();
    }
}

#[test]
fn what_lies_before_the_first_byte_is_out_of_range() {
    let hca = hca("connectx-5", &[]).based_at(0x40);
    let peer = hca.connect();
    let mut region = hca.alloc().unwrap();
    let memory = Memory::new(64);
    let key = map(&hca, &mut region, &memory, 0).remote;
    assert_eq!(hca.capabilities().remote_addr(12_345), 0x40);
    for (offset, len) in [(0, 1), (0x3f, 2), (0x40, 65), (0x80, 1), (u64::MAX, 2)] {
        assert_eq!(
            attempt(&peer, Operation::Write, key, offset, len),
            Some(RefusalReason::OutOfRange),
            "{offset:#x}"
        );
        peer.recover();
    }
    peer.write(key, 0x40, &[7; 64]).unwrap();
    assert_eq!(memory.bytes(), [7; 64]);
    hca.invalidate(&mut [&mut region]).unwrap();
}
