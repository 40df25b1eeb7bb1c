//! Hostile bytes for the decoders of the wire: a value or an error, without allocating, and a value is
//! written back as it came.

use mr_fuzz::Fuzz;
use rds_lite::stress::{self, HEADER, Load};
use rds_lite::wire::{
    CONNECT_LEN, CONNECT_MAX, CongestionMap, Connect, Ext, ExtArea, HEADER_LEN, Header,
    HeaderError, MAP_LEN, MAX_MESSAGE, Rejection, Version, checksum,
};

const HEADERS: Fuzz<'_> = Fuzz {
    name: "headers",
    corpus: &[concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/headers")],
    words: &[
        "\u{1}",
        "\u{2}",
        "\u{3}",
        "\u{4}",
        "\u{5}",
        "\u{6}",
        "\u{7}",
        "\u{8}",
        "\u{9}",
        "\0\u{10}\0\0",
    ],
    longest: 2 * HEADER_LEN,
    cost: 1,
    most_bytes: |_| 0,
};

const MAPS: Fuzz<'_> = Fuzz {
    name: "congestion maps",
    longest: 2 * MAP_LEN,
    cost: 20,
    most_bytes: |_| MAP_LEN,
    ..HEADERS
};

const INTRODUCTIONS: Fuzz<'_> = Fuzz {
    name: "introductions",
    corpus: &[concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/corpus/introductions"
    )],
    words: &["\u{1}", "\u{2}", "\u{3}", "\u{4}", "rdsl", "\0\0\0\0"],
    longest: 2 * CONNECT_MAX,
    cost: 1,
    most_bytes: |_| 256,
};

const STRESS: Fuzz<'_> = Fuzz {
    name: "headers of rds stress",
    corpus: &[concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/corpus/stress-headers"
    )],
    words: &["\u{1}", "\u{2}", "\u{3}"],
    longest: 2 * HEADER,
    ..HEADERS
};

const LOADS: Fuzz<'_> = Fuzz {
    name: "loads",
    corpus: &[concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/loads")],
    words: &[
        "ack_bytes",
        "req_bytes",
        "depth",
        "tasks",
        "time",
        "null",
        "secs",
        "nanos",
        "rdma_bytes",
        "true",
        "false",
        "65535",
        "1048577",
        "18446744073709551615",
        "-1",
        "1e9",
        "{",
        "}",
        ",",
    ],
    longest: 1 << 10,
    cost: 10,
    // Names and numbers that JSON takes apart.
    most_bytes: |len| 4 * len + 1024,
};

#[test]
fn any_header_is_refused_or_written_back_as_it_came() {
    HEADERS.run(|input| {
        let mut bytes = [0; HEADER_LEN];
        let len = input.len().min(HEADER_LEN);
        bytes[..len].copy_from_slice(&input[..len]);
        check(&bytes);
        // Most mutations break the checksum: without one the rest is looked at.
        bytes[30..32].fill(0);
        check(&bytes);
    });
}

fn check(bytes: &[u8; HEADER_LEN]) {
    match Header::decode(bytes) {
        Ok((header, summed)) => {
            assert!(header.len as usize <= MAX_MESSAGE);
            assert!(!summed || checksum(bytes) == 0);
            let mut expected = *bytes;
            // Padding and checksum are not the header's.
            expected[26..32].fill(0);
            assert!(header.encode_unchecked() == expected);
            assert!(Header::decode(&header.encode()) == Ok((header, true)));
            check_area(&header.ext);
        }
        Err(HeaderError::Checksum) => assert!(checksum(bytes) != 0),
        Err(HeaderError::TooLong(len)) => assert!(len as usize > MAX_MESSAGE),
        Err(_) => {}
    }
}

fn check_area(area: &ExtArea) {
    let understood = area.iter().all(|record| record.is_ok());
    assert!(area.iter().count() <= 16);
    let unknowns = area.iter().filter(Result::is_err).count();
    assert!(unknowns == usize::from(!understood), "it ends the walk");
    let more = area.with(Ext::SportIdx);
    assert!(
        understood || more == *area,
        "nothing behind what is not known"
    );
    assert!(more.iter().count() <= area.iter().count() + 1);
}

#[test]
fn a_map_has_one_length_and_counts_its_bits() {
    MAPS.run(|input| {
        let decoded = CongestionMap::decode(input).is_some();
        assert_eq!(decoded, input.len() == MAP_LEN);
        let mut bytes = [0; MAP_LEN];
        let len = input.len().min(MAP_LEN);
        bytes[..len].copy_from_slice(&input[..len]);
        let mut map = CongestionMap::decode(&bytes).unwrap();
        assert!(map.bytes() == &bytes);
        assert_eq!(map.is_empty(), bytes == [0; MAP_LEN]);
        for port in (0..=u16::MAX).filter(|port| bytes[usize::from(port / 8)] != 0) {
            map.set(port, false);
        }
        assert!(map.is_empty());
    });
}

#[test]
fn any_introduction_is_understood_as_far_as_it_goes_and_written_back() {
    INTRODUCTIONS.run(|input| {
        let Some(connect) = Connect::decode(input) else {
            return assert!(input.is_empty());
        };
        let said = input.len() >= CONNECT_LEN && input[8] != 0;
        assert!(said || connect == Connect::decode(&[0]).unwrap(), "silent");
        if let Some(version) = connect.choose() {
            assert!(version == Version::V3_1 || version.major == 4 && version.minor <= 1);
            assert!(version != Version::V3_1 || connect.version == Version::V3_1);
        }
        let generations = connect.generations;
        assert!(generations.is_none_or(|generations| generations.own != 0));
        let bytes = connect.encode();
        assert!(bytes.len() <= CONNECT_MAX);
        assert!(Connect::decode(&bytes) == Some(connect));
        if said {
            // Padding is not the block's; what is behind it counts only with its mark.
            assert!(bytes[..13] == input[..13] && bytes[16..28] == input[16..28]);
            assert!(generations.is_none() || bytes[CONNECT_LEN..] == input[CONNECT_LEN..44]);
        }
        // The same bytes as a refusal.
        match Rejection::decode(input) {
            Rejection::Other(reason) => assert!(reason > 1 && input[..4] == reason.to_ne_bytes()),
            Rejection::Incompatible => {}
        }
    });
}

#[test]
fn any_header_of_rds_stress_is_refused_or_written_back_with_what_is_used_of_it() {
    STRESS.run(|input| match stress::Header::decode(input) {
        Some(header) => {
            let bytes = header.encode();
            assert!(bytes[..4] == input[..4] && bytes[16..20] == input[16..20]);
            assert!(stress::Header::decode(&bytes) == Some(header));
        }
        None => assert!(input.len() < HEADER || !(1..=2).contains(&input[18]) || input[19] > 2),
    });
}

#[test]
fn any_load_is_refused_or_bounded() {
    LOADS.run(|input| {
        let load = serde_json::from_slice::<Load>(input);
        let Some(load) = load.ok().filter(|load| load.check().is_ok()) else {
            return;
        };
        let under_way = usize::from(load.tasks).pow(2) * usize::from(load.depth);
        assert!(under_way <= 1 << 18 && under_way * load.rdma_bytes <= 1 << 30);
        assert!(load.buffer_bytes() <= 64 << 20);
    });
}
