//! Frames, and who waits when there are too many.

use crate::rig::{BOUND, Place, header, pattern};
use mr_verbs::Status;
use mr_verbs::cm::{ConnectionConfig, Flags, Refused};
use std::thread;
use std::time::Duration;

const SIZES: [usize; 8] = [0, 1, 47, 48, 49, 1000, 4095, 4096];

#[test]
fn frames_of_every_size_arrive_as_they_were_sent() {
    let Some(place) = Place::or_skip("frames_of_every_size_arrive_as_they_were_sent") else {
        return;
    };
    let (mut near, mut far) = place.ends(&ConnectionConfig::default());
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut near, &mut far];
        let mut batch = ends[from].connection.batch();
        for (id, size) in SIZES.iter().enumerate() {
            let id = id as u64;
            let payload = pattern(id, *size);
            batch
                .send(id, &header(id), &payload, Flags::SIGNALLED)
                .unwrap();
        }
        batch.post();
        ends[from].run_until("all are sent", |end| end.ended.len() == SIZES.len());
        ends[to].run_until("all have arrived", |end| end.frames.len() == SIZES.len());
        for (id, (size, (head, payload))) in SIZES.iter().zip(&ends[to].frames).enumerate() {
            let id = id as u64;
            assert_eq!(*head, header(id));
            assert!(*payload == pattern(id, *size), "frame of {size} bytes");
        }
        let wanted: Vec<_> = (0..SIZES.len() as u64)
            .map(|id| (id, Status::Success))
            .collect();
        assert_eq!(ends[from].ends(), wanted);
    }
    let mut batch = near.connection.batch();
    for (head, payload) in [(&header(0)[..47], 0), (&header(0)[..], 4097)] {
        let refused = batch.send(0, head, &vec![0; payload], Flags::empty());
        assert!(
            matches!(refused, Err(Refused::TooLong { .. })),
            "{refused:?}"
        );
    }
    assert!(batch.is_empty());
}

/// What is taken ends, in order and once, however little of it asks for a completion; and what does
/// not fit fits when some has ended.
#[test]
fn a_full_queue_refuses_and_takes_again() {
    let Some(place) = Place::or_skip("a_full_queue_refuses_and_takes_again") else {
        return;
    };
    const FRAMES: u64 = 200;
    let mut config = ConnectionConfig::default();
    config.sends = 8;
    let (mut near, mut far) = place.ends(&config);
    let mut sent = 0;
    let mut full = 0;
    while sent < FRAMES {
        let mut batch = near.connection.batch();
        while sent < FRAMES {
            let flags = if sent == FRAMES - 1 {
                Flags::SIGNALLED
            } else {
                Flags::empty()
            };
            match batch.send(sent, &header(sent), b"", flags) {
                Ok(()) => sent += 1,
                Err(Refused::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        batch.post();
        if sent < FRAMES {
            full += 1;
            assert!(near.connection.room() < 8);
            near.run_until("there is room", |end| end.connection.room() > 0);
        }
    }
    assert!(full > 10, "{full}");
    near.run_until("all have ended", |end| end.ended.len() as u64 == FRAMES);
    assert_eq!(near.connection.room(), 8);
    let wanted: Vec<_> = (0..FRAMES).map(|id| (id, Status::Success)).collect();
    assert_eq!(near.ends(), wanted);
    far.run_until("all have arrived", |end| end.frames.len() as u64 == FRAMES);
}

/// What spares room is refused while there is some left for what does not.
#[test]
fn spared_room_is_found_by_who_does_not_spare_it() {
    let Some(place) = Place::or_skip("spared_room_is_found_by_who_does_not_spare_it") else {
        return;
    };
    let mut config = ConnectionConfig::default();
    config.sends = 8;
    let (mut near, mut far) = place.ends(&config);
    let mut batch = near.connection.batch();
    batch.spare(1);
    let spares = (0..8).take_while(|&id| {
        let sent = batch.send(id, &header(id), b"", Flags::empty());
        sent.is_ok()
    });
    assert_eq!(spares.count(), 7);
    batch.spare(0);
    batch.send(7, &header(7), b"", Flags::SIGNALLED).unwrap();
    let refused = batch.send(8, &header(8), b"", Flags::empty());
    assert!(matches!(refused, Err(Refused::Full)));
    batch.post();
    near.run_until("all have ended", |end| end.ended.len() == 8);
    far.run_until("all have arrived", |end| end.frames.len() == 8);
}

/// A batch that is not posted never was.
#[test]
fn a_batch_that_is_dropped_sends_nothing() {
    let Some(place) = Place::or_skip("a_batch_that_is_dropped_sends_nothing") else {
        return;
    };
    let (mut near, mut far) = place.ends(&ConnectionConfig::default());
    for round in 0..300 {
        let mut batch = near.connection.batch();
        batch
            .send(0, &header(0), b"lost", Flags::SIGNALLED)
            .unwrap();
        if round % 2 == 0 {
            drop(batch);
            let mut batch = near.connection.batch();
            batch
                .send(round, &header(round), b"", Flags::SIGNALLED)
                .unwrap();
            batch.post();
            near.run_until("it is sent", |end| end.ended.len() as u64 == round / 2 + 1);
        }
    }
    far.run_until("they arrive", |end| end.frames.len() == 150);
    assert!(far.frames.iter().all(|(_, payload)| payload.is_empty()));
    assert_eq!(near.connection.room(), near.connection.config().sends);
}

/// A receiver that posts nothing makes the sender wait, and loses nothing.
#[test]
fn frames_wait_for_a_receiver_that_is_not_ready() {
    let Some(place) = Place::or_skip("frames_wait_for_a_receiver_that_is_not_ready") else {
        return;
    };
    let mut small = ConnectionConfig::default();
    small.receives = 2;
    let (mut near, mut far) = place.ends_of(&ConnectionConfig::default(), &small);
    let mut batch = near.connection.batch();
    for id in 0..6 {
        batch
            .send(id, &header(id), b"waits", Flags::SIGNALLED)
            .unwrap();
    }
    batch.post();
    far.run_until("as many as are posted arrive", |end| end.frames.len() == 2);
    near.run_until("they have ended", |end| end.ended.len() == 2);
    near.poller.wait(Duration::from_millis(50));
    near.poll();
    assert_eq!(near.ended.len(), 2, "the others wait");
    for arrived in 3..=6 {
        assert_eq!(far.connection.repost(1), 1);
        far.run_until("one more arrives", |end| end.frames.len() == arrived);
    }
    near.run_until("all have ended", |end| end.ended.len() == 6);
    assert!(near.ended.iter().all(|end| end.status == Status::Success));
    let numbers: Vec<_> = far.frames.iter().map(|(head, _)| head.clone()).collect();
    assert_eq!(numbers, (0..6).map(header).collect::<Vec<_>>());
    assert_eq!(far.connection.repost(5), 2, "there are only two slots");
    assert_eq!(far.connection.repost(5), 0, "both are posted");
}

/// Several threads post, one polls, and each frame comes once.
#[test]
fn threads_share_a_connection() {
    let Some(place) = Place::or_skip("threads_share_a_connection") else {
        return;
    };
    const THREADS: u64 = 4;
    const EACH: u64 = 250;
    let mut config = ConnectionConfig::default();
    config.sends = 32;
    config.receives = 64;
    let (mut near, mut far) = place.ends(&config);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let connection = near.connection.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    let id = thread << 32 | number;
                    loop {
                        let mut batch = connection.batch();
                        match batch.send(id, &header(id), &pattern(id, 100), Flags::SIGNALLED) {
                            Ok(()) => break batch.post(),
                            Err(Refused::Full) => drop(batch),
                            Err(error) => panic!("{error}"),
                        }
                        thread::yield_now();
                    }
                }
            });
        }
        let all = (THREADS * EACH) as usize;
        scope.spawn(move || {
            near.run_until("all have ended", |end| end.ended.len() == all);
            assert!(near.ended.iter().all(|end| end.status == Status::Success));
        });
        let mut seen = 0;
        while seen < all {
            let connection = far.connection.clone();
            let before = far.frames.len();
            far.run_until("a frame", |end| end.frames.len() > before);
            connection.repost((far.frames.len() - before) as u32);
            seen = far.frames.len();
        }
        let mut next = [0; THREADS as usize];
        for (head, payload) in &far.frames {
            let id = u64::from_be_bytes(head[..8].try_into().unwrap());
            let (thread, number) = ((id >> 32) as usize, id & 0xffff_ffff);
            assert_eq!(next[thread], number, "in the order of its thread");
            next[thread] += 1;
            assert!(*payload == pattern(id, 100));
        }
        assert_eq!(next, [EACH; THREADS as usize]);
    });
}

/// A wait ends when it is woken, and when its time is over.
#[test]
fn a_poller_can_be_woken() {
    let Some(place) = Place::or_skip("a_poller_can_be_woken") else {
        return;
    };
    let (mut near, _far) = place.ends(&ConnectionConfig::default());
    assert!(!near.poller.wait(Duration::from_millis(1)));
    let waker = near.connection.waker().clone();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| near.poller.wait(BOUND));
        waker.wake();
        assert!(waiter.join().unwrap());
    });
}
