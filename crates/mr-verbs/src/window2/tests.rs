//! What happens when a bind or an invalidation fails, on a device.

use super::*;
use crate::testing::Rig;
use crate::{Arena, ArenaBuffer, Status};
use mr_core::{BackendError, ErrorKind};

fn backend(rig: &Rig, arena: &Arena) -> Window2Backend {
    Window2Backend::new(&rig.ours, [arena.clone()]).unwrap()
}

/// The HCA does the first half of a chain, fails at one request, and flushes the rest: no key
/// is left alive, no region is lost, and the next map has a new queue pair.
#[test]
fn a_chain_that_fails_half_way_leaves_no_key_alive() {
    let Some(rig) = Rig::or_skip("a_chain_that_fails_half_way_leaves_no_key_alive") else {
        return;
    };
    let arena = Arena::new(&rig.domain, 1 << 20).unwrap();
    let backend = backend(&rig, &arena);
    for broken in [0, 3, 6] {
        let mut buffers: Vec<_> = (0..7).map(|_| arena.take(4096).unwrap()).collect();
        let mut regions: Vec<_> = (0..7).map(|_| backend.alloc().unwrap()).collect();
        let keys: Vec<_> = regions
            .iter_mut()
            .zip(&mut buffers)
            .map(|(region, buffer)| rig.map(&backend, region, buffer, 1))
            .collect();
        let before = rig.ours.connections();
        let bound = regions[broken].bound.as_mut().unwrap();
        bound.key = RemoteKey::new(bound.key.index() ^ 0x5a_0000, bound.key.tag());
        let mut batch: Vec<&mut Window2Region> = regions.iter_mut().collect();
        backend.invalidate(&mut batch).unwrap();
        assert_eq!(arena.bound(), 0);

        for (key, buffer) in keys.iter().zip(&buffers) {
            rig.ours.reconnect().unwrap();
            rig.assert_refused(buffer, *key);
        }
        assert!(rig.ours.connections() > before);
        for (region, buffer) in regions.iter_mut().zip(&mut buffers) {
            rig.ours.reconnect().unwrap();
            let key = rig.map(&backend, region, buffer, 2);
            rig.write(buffer, key).unwrap();
            backend.invalidate(&mut [region]).unwrap();
        }
        for region in regions {
            backend.dealloc(region).unwrap();
        }
    }
}

/// A bind that the HCA refuses costs the queue pair; the region is as before, and other leases
/// end as they should.
#[test]
fn a_failed_bind_is_recovered_from() {
    let Some(rig) = Rig::or_skip("a_failed_bind_is_recovered_from") else {
        return;
    };
    let arena = Arena::new(&rig.domain, 1 << 20).unwrap();
    let backend = backend(&rig, &arena);
    let mut bystander = backend.alloc().unwrap();
    let mut bystander_buffer = arena.take(4096).unwrap();
    let bystander_key = rig.map(&backend, &mut bystander, &mut bystander_buffer, 1);

    let mut region = backend.alloc().unwrap();
    let mut buffer = arena.take(4096).unwrap();
    let window = region.window.as_mut().unwrap();
    let wrong = RemoteKey::new(window.key().index() ^ 0x5a_0000, window.key().tag());
    window.set_key(wrong);
    let error = rig
        .try_map(&backend, &mut region, &mut buffer, 1)
        .unwrap_err();
    let lost = Error::ConnectionLost {
        what: "",
        status: Status::WindowBind,
    };
    assert_eq!(
        std::mem::discriminant(&error),
        std::mem::discriminant(&lost),
        "{error}"
    );
    assert!(error.to_string().contains("status 6"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(arena.bound(), 1, "the bystander's");

    let before = rig.ours.connections();
    let key = rig.map(&backend, &mut region, &mut buffer, 2);
    assert_eq!(rig.ours.connections(), before + 1);
    rig.write(&buffer, key).unwrap();
    rig.assert_refused(&bystander_buffer, bystander_key);
    backend
        .invalidate(&mut [&mut region, &mut bystander])
        .unwrap();
    assert_eq!(arena.bound(), 0);
}

fn job<'a>(region: &'a mut Window2Region, buffer: &'a mut ArenaBuffer, tag: u8) -> Job<'a> {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    MapJob::new(region, Rig::range(buffer), access, KeyTag::new(tag))
}

/// Seven windows, of which the fourth cannot be bound.
fn jobs_with_a_wrong_one<'a>(
    regions: &'a mut [Window2Region],
    buffers: &'a mut [ArenaBuffer],
    tag: u8,
) -> Vec<Job<'a>> {
    let window = regions[3].window.as_mut().unwrap();
    let wrong = RemoteKey::new(window.key().index() ^ 0x5a_0000, window.key().tag());
    window.set_key(wrong);
    let pairs = regions.iter_mut().zip(buffers);
    pairs
        .map(|(region, buffer)| job(region, buffer, tag))
        .collect()
}

/// The HCA binds the first three of a chain, refuses the fourth, and flushes the rest: the error is
/// that of the fourth, no key is alive, and the same regions can be bound again.
#[test]
fn a_chain_of_binds_that_fails_half_way_leaves_no_key_alive() {
    let Some(rig) = Rig::or_skip("a_chain_of_binds_that_fails_half_way_leaves_no_key_alive") else {
        return;
    };
    let arena = Arena::new(&rig.domain, 1 << 20).unwrap();
    let backend = backend(&rig, &arena);
    let mut buffers: Vec<_> = (0..7).map(|_| arena.take(4096).unwrap()).collect();
    let mut regions: Vec<_> = (0..7).map(|_| backend.alloc().unwrap()).collect();
    let firsts: Vec<_> = regions[..3]
        .iter()
        .map(|region| {
            region
                .window
                .as_ref()
                .unwrap()
                .key()
                .with_tag(KeyTag::new(1))
        })
        .collect();
    let mut jobs = jobs_with_a_wrong_one(&mut regions, &mut buffers, 1);
    backend.map_batch(&mut jobs);
    for (place, job) in jobs.into_iter().enumerate() {
        match job.into_answer() {
            Some(Err(error)) => {
                assert_eq!(place, 3, "{error}");
                assert!(error.to_string().contains("status 6"), "{error}");
                assert!(error.kind().leaves_region_known());
            }
            None => assert_ne!(place, 3),
            Some(Ok(keys)) => panic!("{place} has {keys:?}"),
        }
    }
    assert_eq!(arena.bound(), 0);
    for (key, buffer) in firsts.iter().zip(&buffers) {
        rig.ours.reconnect().unwrap();
        rig.assert_refused(buffer, *key);
    }
    let pairs = regions.iter_mut().zip(&mut buffers);
    let mut jobs: Vec<_> = pairs
        .map(|(region, buffer)| job(region, buffer, 2))
        .collect();
    backend.map_batch(&mut jobs);
    let keys: Vec<_> = jobs
        .into_iter()
        .map(|job| job.into_answer().unwrap().unwrap().remote)
        .collect();
    for (key, buffer) in keys.iter().zip(&buffers) {
        rig.write(buffer, *key).unwrap();
    }
    backend
        .invalidate(&mut regions.iter_mut().collect::<Vec<_>>())
        .unwrap();
    rig.assert_refused(&buffers[6], keys[6]);
    assert_eq!(arena.bound(), 0);
}

/// What was posted and not waited for counts as bound, whatever became of it, until it is invalidated;
/// then no key of it is alive.
#[test]
fn a_chain_of_requests_that_fails_half_way_ends_as_leases_do() {
    let Some(rig) = Rig::or_skip("a_chain_of_requests_that_fails_half_way_ends_as_leases_do")
    else {
        return;
    };
    let arena = Arena::new(&rig.domain, 1 << 20).unwrap();
    let backend = backend(&rig, &arena);
    let mut buffers: Vec<_> = (0..7).map(|_| arena.take(4096).unwrap()).collect();
    let mut regions: Vec<_> = (0..7).map(|_| backend.alloc().unwrap()).collect();
    let mut jobs = jobs_with_a_wrong_one(&mut regions, &mut buffers, 1);
    backend.map_batch_chained(&mut jobs, &mut |place, _| vec![place as u8]);
    let keys: Vec<_> = jobs
        .into_iter()
        .map(|job| job.into_answer().unwrap().unwrap().remote)
        .collect();
    assert_eq!(arena.bound(), 7);
    backend
        .invalidate(&mut regions.iter_mut().collect::<Vec<_>>())
        .unwrap();
    assert_eq!(arena.bound(), 0);
    for (key, buffer) in keys.iter().zip(&buffers) {
        rig.ours.reconnect().unwrap();
        rig.assert_refused(buffer, *key);
    }
    assert!(rig.ours.connections() > 1);
}

/// The queue pair was lost, and nobody has noticed: the batch goes through on a new one.
#[test]
fn a_batch_on_a_queue_pair_that_is_lost_goes_through_on_a_new_one() {
    let Some(rig) = Rig::or_skip("a_batch_on_a_queue_pair_that_is_lost_goes_through_on_a_new_one")
    else {
        return;
    };
    let arena = Arena::new(&rig.domain, 1 << 20).unwrap();
    let backend = backend(&rig, &arena);
    let mut buffers: Vec<_> = (0..7).map(|_| arena.take(4096).unwrap()).collect();
    let mut regions: Vec<_> = (0..7).map(|_| backend.alloc().unwrap()).collect();
    rig.ours.link().unwrap().queue().pair().break_off().unwrap();
    let pairs = regions.iter_mut().zip(&mut buffers);
    let mut jobs: Vec<_> = pairs
        .map(|(region, buffer)| job(region, buffer, 1))
        .collect();
    backend.map_batch(&mut jobs);
    let keys: Vec<_> = jobs
        .into_iter()
        .map(|job| job.into_answer().unwrap().unwrap().remote)
        .collect();
    assert_eq!(rig.ours.connections(), 2);
    for (key, buffer) in keys.iter().zip(&buffers) {
        rig.write(buffer, *key).unwrap();
    }
    backend
        .invalidate(&mut regions.iter_mut().collect::<Vec<_>>())
        .unwrap();
    assert_eq!(arena.bound(), 0);
}
