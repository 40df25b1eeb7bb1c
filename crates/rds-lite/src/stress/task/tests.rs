//! Peers that do not keep to what was agreed.

use super::super::pattern::filler;
use super::*;
use std::collections::VecDeque;

/// Takes everything, and brings what a test has put into it.
#[derive(Default)]
struct Script {
    brings: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Nothing can be sent.
    full: bool,
    sent: Vec<Header>,
}

impl Carrier for Script {
    type Payload = Vec<u8>;

    fn send(&mut self, message: Bytes, _: SocketAddr) -> Result<(), Refusal> {
        if self.full {
            return Err(Refusal::NotNow);
        }
        self.sent.extend(Header::decode(&message));
        Ok(())
    }

    fn ask(
        &mut self,
        to: SocketAddr,
        _: Want,
        compose: impl FnOnce(u64) -> Bytes,
    ) -> Result<u64, Refusal> {
        self.send(compose(7), to).map(|()| 7)
    }

    fn settle(&mut self, _: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn operate(&mut self, to: SocketAddr, _: Operation, answer: Bytes) -> Result<(), Refusal> {
        self.send(answer, to)
    }

    fn next(&mut self, _: bool) -> Result<Option<Arrived<Vec<u8>>>, Fault> {
        let came = self.brings.pop_front();
        Ok(came.map(|(from, payload)| Arrived::Message {
            from,
            payload,
            cookie: None,
        }))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

const LOAD: Load = Load {
    ack_bytes: 63,
    req_bytes: 100,
    one_way: false,
    depth: 2,
    tasks: 1,
    time: None,
    rdma_bytes: 64,
    rdma_vector: 1,
    rdma_mode: 0,
    verify: true,
    use_once: false,
    fence: true,
    invalidate: false,
    cache_mrs: false,
};

fn peer() -> SocketAddr {
    ([10, 0, 0, 2], 4001).into()
}

fn task(load: &Load) -> Task<Script> {
    let filler = filler(load.req_bytes - HEADER).into();
    let counts = Arc::default();
    Task::new(Script::default(), &[peer()], load, false, counts, filler)
}

fn request(seq: u32) -> Header {
    Header {
        seq,
        index: 0,
        kind: Kind::Request,
        rdma: Rdma::None,
        pattern: 1,
        cookie: 7,
        rdma_bytes: 64,
    }
}

/// What a task says of these messages.
fn told(load: &Load, full: bool, messages: &[(SocketAddr, Bytes)]) -> String {
    let mut task = task(load);
    task.carrier.full = full;
    let messages = messages.iter();
    task.carrier.brings = messages
        .map(|(from, bytes)| (*from, bytes.to_vec()))
        .collect();
    match task.round(false) {
        Ok(()) => format!("{} answers", task.carrier.sent.len()),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn a_peer_that_does_not_keep_to_the_load_ends_it() {
    let filler = filler(1 << 20).into();
    let message = |header: Header, len| (peer(), compose(&header, len, &filler));
    let fine = || message(request(1), 100);
    let wide = Load {
        rdma_bytes: 0,
        ..LOAD
    };
    let read = Header {
        rdma: Rdma::Read,
        ..request(1)
    };
    let long = Header {
        rdma_bytes: u32::MAX,
        ..read
    };
    let answer = Header {
        kind: Kind::Answer,
        ..request(1)
    };
    let stranger = ([10, 0, 0, 3], 4001).into();
    let mut damaged = fine().1.to_vec();
    damaged[99] ^= 1;
    for (load, messages, says) in [
        (&LOAD, vec![fine(), message(request(2), 100)], "2 answers"),
        (&LOAD, vec![message(read, 100)], "1 answers"),
        (&LOAD, vec![(stranger, fine().1)], "has no part in this"),
        (&LOAD, vec![(peer(), Bytes::new())], "without a header"),
        (
            &LOAD,
            vec![message(request(1), 101)],
            "101 bytes rather than 100",
        ),
        (&LOAD, vec![message(request(1), 1 << 20)], "1048576 bytes"),
        (
            &LOAD,
            vec![message(request(1), 63)],
            "63 bytes rather than 100",
        ),
        (&LOAD, vec![(peer(), damaged.into())], "was changed"),
        (
            &LOAD,
            vec![fine(), fine()],
            "request 1 of 10.0.0.2:4001 rather than 2",
        ),
        (
            &LOAD,
            vec![message(long, 100)],
            "its memory has another length",
        ),
        (
            &wide,
            vec![message(read, 100)],
            "its memory has another length",
        ),
        (
            &LOAD,
            vec![message(answer, 63)],
            "an answer of 10.0.0.2:4001 to nothing",
        ),
    ] {
        let told = told(load, false, &messages);
        assert!(told.contains(says), "{told}, and not {says}");
    }
    let nothing = Header {
        rdma_bytes: 0,
        ..read
    };
    let told = told(&wide, false, &[message(nothing, 100)]);
    assert!(told.contains("no RDMA was"), "{told}");
}

#[test]
fn a_peer_that_is_not_answered_can_ask_no_more_than_was_agreed() {
    let filler = filler(100).into();
    let message = |seq| (peer(), compose(&request(seq), 100, &filler));
    assert_eq!(told(&LOAD, true, &[message(1), message(2)]), "0 answers");
    let told = told(&LOAD, true, &[message(1), message(2), message(3)]);
    assert!(told.contains("more are under way"), "{told}");
}

#[test]
fn what_found_no_room_is_answered_later() {
    let mut task = task(&LOAD);
    let filler = task.filler.clone();
    for round in 0..3 {
        task.carrier.full = true;
        for at in 1..=2 {
            let bytes = compose(&request(2 * round + at), 100, &filler);
            task.carrier.brings.push_back((peer(), bytes.to_vec()));
        }
        task.round(false).unwrap();
        task.carrier.full = false;
        task.round(false).unwrap();
    }
    let sent: Vec<u32> = task.carrier.sent.iter().map(|header| header.seq).collect();
    assert_eq!(sent, [1, 2, 3, 4, 5, 6]);
}
