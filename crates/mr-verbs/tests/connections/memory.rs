//! RDMA: the peer's memory, and this end's buffers.

use crate::rig::{Place, header, pattern};
use mr_core::{Access, Lease, Pool};
use mr_policies::UseOnce;
use mr_verbs::cm::{ConnectionConfig, Flags, NotTaken, Refused, RemoteMemory};
use mr_verbs::{RegistrationBackend, Status};
use std::sync::Arc;

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

type Keys = Arc<Pool<RegistrationBackend>>;

/// A pool in the place's domain, whose keys count from the start of a page.
fn keys(place: &Place) -> Keys {
    let backend = RegistrationBackend::zero_based(&place.domain);
    Arc::new(Pool::builder(backend, UseOnce).build().unwrap())
}

/// Memory of the peer, `offset` bytes into what is leased.
fn remote<P: std::ops::Deref<Target = Pool<RegistrationBackend>>>(
    lease: &Lease<RegistrationBackend, Vec<u8>, P>,
    offset: u64,
) -> RemoteMemory {
    assert!(lease.remote_addr() < 4096);
    assert_eq!(lease.remote_addr(), lease.addr() % 4096);
    RemoteMemory {
        addr: lease.remote_addr() + offset,
        key: lease.remote_key(),
    }
}

/// Cuts bytes into buffers of these lengths.
fn cut(bytes: &[u8], lens: &[usize]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut cut = |len: &usize| {
        let (head, tail) = rest.split_at(*len);
        rest = tail;
        head.to_vec()
    };
    lens.iter().map(&mut cut).collect()
}

/// Lists of buffers: none, one, several, empty ones among them, and more than a work request can
/// have; copied or registered.
const LISTS: [&[usize]; 8] = [
    &[],
    &[1],
    &[4096],
    &[3, 0, 5000, 17],
    &[100_000],
    &[1, 70_000, 2, 0, 30_001],
    &[1000; 30],
    &[9001; 20],
];

/// A write is there when the frame behind it has arrived, and a read brings it back.
#[test]
fn what_is_written_before_a_frame_is_there_when_it_arrives() {
    let Some(place) = Place::or_skip("what_is_written_before_a_frame_is_there_when_it_arrives")
    else {
        return;
    };
    let pool = keys(&place);
    for at_most in [0, 64 << 10, usize::MAX] {
        let mut config = ConnectionConfig::default();
        config.staged_at_most = at_most;
        let (mut near, mut far) = place.ends(&config);
        for (round, lens) in LISTS.iter().enumerate() {
            let round = round as u64;
            let bytes = pattern(round, lens.iter().sum());
            let lease = pool.lease(vec![0; bytes.len() + 50], ALL).unwrap();
            let target = remote(&lease, 33);
            let mut batch = near.connection.batch();
            batch
                .write(1, cut(&bytes, lens), target, Flags::empty())
                .unwrap();
            batch
                .send(2, &header(round), b"", Flags::SIGNALLED | Flags::SOLICITED)
                .unwrap();
            batch.post();
            far.run_until("the frame", |end| end.frames.len() as u64 > round);
            near.run_until("both have ended", |end| end.ended.len() == 2);
            assert_eq!(near.ends(), [(1, Status::Success), (2, Status::Success)]);
            assert_eq!(
                near.ended[0].local,
                cut(&bytes, lens),
                "the buffers come back"
            );
            near.ended.clear();

            let into: Vec<_> = lens.iter().map(|len| vec![0xee; *len]).collect();
            let mut batch = near.connection.batch();
            batch.read(3, into, target, Flags::empty()).unwrap();
            batch
                .send(4, &header(9), b"", Flags::SIGNALLED | Flags::FENCE)
                .unwrap();
            batch.post();
            near.run_until("both have ended", |end| end.ended.len() == 2);
            assert_eq!(near.ends(), [(3, Status::Success), (4, Status::Success)]);
            assert!(near.ended[0].local == cut(&bytes, lens), "{lens:?}");
            near.ended.clear();
            far.run_until("the other frame", |end| end.frames.len() as u64 > round);
            far.frames.truncate(round as usize + 1);

            let memory = lease.invalidate().unwrap();
            assert!(memory[33..33 + bytes.len()] == bytes[..], "{lens:?}");
            assert!(memory[..33].iter().all(|byte| *byte == 0));
            assert!(memory[33 + bytes.len()..].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn atomic_operations_fetch_what_was_there() {
    let Some(place) = Place::or_skip("atomic_operations_fetch_what_was_there") else {
        return;
    };
    let (mut near, _far) = place.ends(&ConnectionConfig::default());
    let pool = keys(&place);
    let lease = pool.lease(vec![0; 4096], ALL).unwrap();
    // The buffer may begin anywhere; the operation's place must be aligned.
    let offset = lease.addr().next_multiple_of(8) - lease.addr();
    let target = remote(&lease, offset);
    let mut batch = near.connection.batch();
    batch.fetch_add(1, target, 40, Flags::empty()).unwrap();
    batch.fetch_add(2, target, 2, Flags::empty()).unwrap();
    batch
        .compare_swap(3, target, 42, 7, Flags::empty())
        .unwrap();
    batch
        .compare_swap(4, target, 42, 9, Flags::SIGNALLED)
        .unwrap();
    batch.post();
    near.run_until("all have ended", |end| end.ended.len() == 4);
    let found: Vec<_> = near.ended.iter().map(|end| (end.id, end.value)).collect();
    assert_eq!(found, [(1, 0), (2, 40), (3, 42), (4, 7)]);
    let memory = lease.invalidate().unwrap();
    assert_eq!(memory[offset as usize..][..8], 7_u64.to_ne_bytes());
}

/// As many operations with as large buffers as one likes: what finds no staging is registered, what
/// finds no room is given back.
#[test]
fn operations_are_bounded_by_the_queue_and_lose_no_buffer() {
    let Some(place) = Place::or_skip("operations_are_bounded_by_the_queue_and_lose_no_buffer")
    else {
        return;
    };
    let mut config = ConnectionConfig::default();
    config.sends = 16;
    config.staging_bytes = 8192;
    let (mut near, _far) = place.ends(&config);
    let pool = keys(&place);
    let lease = pool.lease(vec![0; 4096], ALL).unwrap();
    let target = remote(&lease, 0);
    let mut batch = near.connection.batch();
    for id in 0..16 {
        let local = vec![vec![id as u8; 4096]];
        batch.write(id, local, target, Flags::empty()).unwrap();
    }
    let local = vec![vec![1, 2], vec![3]];
    match batch.write(16, local.clone(), target, Flags::empty()) {
        Err(NotTaken {
            why: Refused::Full,
            local: back,
        }) => assert_eq!(back, local),
        other => panic!("{other:?}"),
    }
    match batch.read(16, vec![vec![0]; 1000], target, Flags::empty()) {
        Err(NotTaken {
            why: Refused::TooLong { len, max },
            local: back,
        }) => {
            assert!(
                len >= 1000 && max < 1000 && back.len() == 1000,
                "{len} {max}"
            );
        }
        other => panic!("{other:?}"),
    }
    batch.post();
    near.run_until("all have ended", |end| end.ended.len() >= 12);
    // The last is silent unless the ledger had it ask: a frame behind it brings its end.
    let mut batch = near.connection.batch();
    batch.send(99, &header(0), b"", Flags::SIGNALLED).unwrap();
    batch.post();
    near.run_until("all have ended", |end| end.ended.len() == 17);
    for (id, end) in near.ended[..16].iter().enumerate() {
        assert_eq!((end.id, end.status), (id as u64, Status::Success));
        assert_eq!(end.local, [vec![id as u8; 4096]]);
    }
    assert_eq!(lease.invalidate().unwrap(), vec![15; 4096]);
}
