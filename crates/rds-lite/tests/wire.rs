//! The wire format: computed vectors, round trips, and decoders that take anything.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use proptest::prelude::*;
use rds_lite::wire::{
    CONNECT_LEN, CONNECT_MAX, CongestionMap, Connect, Ext, ExtArea, Flags, Generations, HEADER_LEN,
    Header, HeaderError, MAP_LEN, MAX_MESSAGE, Rejection, UnknownExt, Version, checksum,
};

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn data() -> Header {
    Header {
        sequence: 1,
        len: 1024,
        sport: 4000,
        dport: 4001,
        flags: Flags::ACK_REQUIRED,
        ..Header::default()
    }
}

/// Vectors computed from the kernel's structures.
fn vectors() -> [(Header, &'static str); 4] {
    let ack = Header {
        ack: 7,
        ..Header::default()
    };
    let dest = Ext::RdmaDest {
        rkey: 0x1234_5678,
        offset: 0x40,
    };
    let with_dest = Header {
        ext: ExtArea::EMPTY.with(dest),
        ..data()
    };
    let probe = Header {
        sequence: 1,
        sport: 1,
        ext: ExtArea::EMPTY.with(Ext::NPaths(8)),
        ..Header::default()
    };
    [
        (
            ack,
            "000000000000000000000000000000070000000000000000000000000000fff800000000000000000000000000000000",
        ),
        (
            data(),
            "00000000000000010000000000000000000004000fa00fa1020000000000dabd00000000000000000000000000000000",
        ),
        (
            with_dest,
            "00000000000000010000000000000000000004000fa00fa1020000000000eb5403123456780000004000000000000000",
        ),
        (
            probe,
            "000000000000000100000000000000000000000000010000000000000000f2fd05000800000000000000000000000000",
        ),
    ]
}

#[test]
fn headers_are_byte_exact() {
    for (header, bytes) in vectors() {
        let bytes = hex(bytes);
        assert_eq!(header.encode().as_slice(), bytes, "{header:?}");
        let bytes: [u8; HEADER_LEN] = bytes.try_into().unwrap();
        assert_eq!(Header::decode(&bytes), Ok((header, true)));
        assert_eq!(checksum(&bytes), 0);

        let mut unsummed = bytes;
        unsummed[30..32].fill(0);
        assert_eq!(header.encode_unchecked(), unsummed);
        assert_eq!(Header::decode(&unsummed), Ok((header, false)));
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (header, _) in vectors() {
        let good = header.encode();
        for bit in 0..HEADER_LEN * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                Header::decode(&bad),
                Err(HeaderError::Checksum),
                "bit {bit}"
            );
        }
    }
}

#[test]
fn a_message_is_at_most_one_mebibyte() {
    let header = |len| Header { len, ..data() }.encode();
    assert!(Header::decode(&header(MAX_MESSAGE as u32)).is_ok());
    let over = MAX_MESSAGE as u32 + 1;
    assert_eq!(
        Header::decode(&header(over)),
        Err(HeaderError::TooLong(over))
    );
}

#[test]
fn an_unknown_extension_ends_the_walk_and_is_reported() {
    // A kernel of 6.1 would read the body of type 9 as further records.
    let area = ExtArea::from_bytes([2, 0, 0, 0, 1, 9, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0]);
    let records: Vec<_> = area.iter().collect();
    assert_eq!(records, [Ok(Ext::Rdma { rkey: 1 }), Err(UnknownExt(9))]);
}

#[test]
fn a_record_that_does_not_fit_is_left_out() {
    let dest = Ext::RdmaDest { rkey: 1, offset: 2 };
    let full = ExtArea::EMPTY.with(dest).with(Ext::GenNum(3));
    assert_eq!(full.iter().count(), 2);
    assert_eq!(full.with(Ext::GenNum(4)), full);
    // 9 + 5 + 2 bytes fill the area to the last: there is no terminator.
    let brim = full.with(Ext::SportIdx);
    assert_eq!(brim.iter().count(), 3);
    assert_eq!(brim.iter().last(), Some(Ok(Ext::SportIdx)));
}

fn any_ext() -> impl Strategy<Value = Ext> {
    prop_oneof![
        any::<u32>().prop_map(Ext::Version),
        any::<u32>().prop_map(|rkey| Ext::Rdma { rkey }),
        any::<(u32, u32)>().prop_map(|(rkey, offset)| Ext::RdmaDest { rkey, offset }),
        any::<(u32, u8)>().prop_map(|(bytes, flags)| Ext::RdmaBytes { bytes, flags }),
        any::<u16>().prop_map(Ext::NPaths),
        any::<u32>().prop_map(Ext::GenNum),
        any::<u32>().prop_map(Ext::CapBits),
        Just(Ext::SportIdx),
    ]
}

proptest! {
    #[test]
    fn headers_round_trip(
        (sequence, ack, sport, dport) in any::<(u64, u64, u16, u16)>(),
        (flags, credit) in any::<(u8, u8)>(),
        len in 0..=MAX_MESSAGE as u32,
        exts in proptest::collection::vec(any_ext(), 0..4),
    ) {
        let ext = exts.iter().fold(ExtArea::EMPTY, |area, &ext| area.with(ext));
        let flags = Flags::from_bits_retain(flags);
        let header = Header { sequence, ack, len, sport, dport, flags, credit, ext };
        let bytes = header.encode();
        prop_assert_eq!(&bytes[26..30], &[0; 4], "padding is zero");
        prop_assert_eq!(Header::decode(&bytes).unwrap().0, header);
        let back: Vec<_> = ext.iter().map(Result::unwrap).collect();
        let mut expected = exts;
        expected.truncate(back.len());
        // What did not fit was left out; what came later and did fit is there.
        prop_assert!(back.len() >= expected.len().min(1));
        prop_assert_eq!(back.first(), expected.first());
    }

    #[test]
    fn anything_decodes_or_is_refused(bytes in any::<[u8; HEADER_LEN]>()) {
        let mut bytes = bytes;
        let _ = Header::decode(&bytes);
        // With the checksum absent the length is what decides.
        bytes[30..32].fill(0);
        match Header::decode(&bytes) {
            Ok((header, summed)) => {
                prop_assert!(!summed && header.len as usize <= MAX_MESSAGE);
                prop_assert!(header.ext.iter().count() <= 16);
            }
            Err(error) => prop_assert!(matches!(error, HeaderError::TooLong(_))),
        }
    }

    #[test]
    fn maps_of_the_wrong_size_are_refused(len in 0..3 * MAP_LEN) {
        prop_assert_eq!(CongestionMap::decode(&vec![0; len]).is_some(), len == MAP_LEN);
    }

    #[test]
    fn maps_round_trip(ports in proptest::collection::hash_set(any::<u16>(), 0..50)) {
        let mut map = CongestionMap::new();
        for &port in &ports {
            prop_assert!(map.set(port, true));
            prop_assert!(!map.set(port, true));
        }
        let mut back = CongestionMap::decode(map.bytes()).unwrap();
        prop_assert_eq!(&back, &map);
        for port in 0..=u16::MAX {
            prop_assert_eq!(back.contains(port), ports.contains(&port));
            back.set(port, false);
        }
        prop_assert!(back.is_empty() && back.bytes() == &[0; MAP_LEN]);
    }
}

fn connect() -> Connect {
    Connect {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        version: Version::V3_1,
        minors: 3,
        tos: 0,
        ack: 7,
        credit: 1024,
        generations: None,
    }
}

#[test]
fn introductions_are_byte_exact() {
    let bytes = "0a0000010a000002\
                 0301000300000000\
                 0000000000000007\
                 0000040000000000";
    assert_eq!(connect().encode(), hex(bytes));
    assert_eq!(Connect::decode(&hex(bytes)), Some(connect()));
    assert_eq!(hex(bytes).len(), CONNECT_LEN);
    let generations = Some(Generations { own: 5, peers: 0 });
    let ours = Connect {
        generations,
        ..connect()
    };
    let marked = format!("{bytes}7264736c0000000500000000");
    assert_eq!(ours.encode(), hex(&marked));
    assert!(ours.encode().len() <= CONNECT_MAX);
}

#[test]
fn versions_are_chosen_as_the_kernel_does() {
    let choose = |major, minor, minors| {
        let version = Version { major, minor };
        Connect {
            version,
            minors,
            ..connect()
        }
        .choose()
    };
    assert_eq!(choose(3, 1, 0), Some(Version::V3_1));
    assert_eq!(choose(3, 0, 3), None);
    assert_eq!(choose(4, 0, 1), Some(Version::V4_0));
    assert_eq!(choose(4, 0, 3), Some(Version::V4_1));
    assert_eq!(choose(4, 7, 0xffff), Some(Version::V4_1));
    assert_eq!(choose(4, 2, 0b100), None);
    assert_eq!(choose(5, 0, 3), None);
}

#[test]
fn a_peer_that_says_little_speaks_4_0() {
    assert_eq!(Connect::decode(&[]), None);
    for silent in [&[1][..], &[3; 31], &[0; 56], &[0; 200]] {
        let peer = Connect::decode(silent).unwrap();
        assert_eq!(peer.choose(), Some(Version::V4_0));
        assert_eq!((peer.ack, peer.credit), (0, 0));
        assert!(peer.source.is_unspecified());
    }
}

#[test]
fn a_rejection_says_a_number_or_nothing() {
    assert_eq!(Rejection::decode(&[]), Rejection::Incompatible);
    assert_eq!(Rejection::decode(&[1]), Rejection::Incompatible);
    assert_eq!(Rejection::decode(&[0; 148]), Rejection::Incompatible);
    assert_eq!(
        Rejection::decode(&Rejection::encode()),
        Rejection::Incompatible
    );
    let mut other = [0; 148];
    other[..4].copy_from_slice(&9i32.to_ne_bytes());
    assert_eq!(Rejection::decode(&other), Rejection::Other(9));
}

proptest! {
    #[test]
    fn introductions_round_trip_whatever_zeros_are_behind(
        (source, destination, own, peers) in any::<([u8; 4], [u8; 4], u32, u32)>(),
        (major, minor, minors, tos) in (1u8.., any::<u8>(), any::<u16>(), any::<u8>()),
        (ack, credit) in any::<(u64, u32)>(),
        zeros in 0usize..300,
    ) {
        let generations = (own != 0).then_some(Generations { own, peers });
        let connect = Connect {
            source: source.into(),
            destination: destination.into(),
            version: Version { major, minor },
            minors, tos, ack, credit, generations,
        };
        let mut bytes = connect.encode();
        bytes.resize(bytes.len() + zeros, 0);
        prop_assert_eq!(Connect::decode(&bytes), Some(connect));
    }

    #[test]
    fn any_introduction_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let connect = Connect::decode(&bytes);
        prop_assert_eq!(connect.is_none(), bytes.is_empty());
        if let Some(version) = connect.and_then(|connect| connect.choose()) {
            prop_assert!([Version::V3_1, Version::V4_0, Version::V4_1].contains(&version));
        }
        let _ = Rejection::decode(&bytes);
    }
}
