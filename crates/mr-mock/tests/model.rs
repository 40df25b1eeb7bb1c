//! The one thing that makes the mock's unsafe code sound: dead means dead.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Memory, hca, map};
use mr_core::{Fence, MrBackend, RemoteKey};
use mr_mock::{MockHca, MockRegion};
use proptest::prelude::*;

const REGIONS: usize = 2;
const LEN: usize = 4 * 512;

#[derive(Clone, Debug)]
enum Step {
    /// A region, a tag, and whether the memory is a short one.
    Map(usize, u8, bool),
    Soft(usize),
    /// The regions in this bit set.
    Invalidate(u8),
    /// Any key that was ever given out, by its place from the latest.
    Write(usize, u16, u16, u8),
    PeerInvalidates(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..REGIONS, 0..2u8, any::<bool>())
            .prop_map(|(region, tag, short)| Step::Map(region, tag, short)),
        1 => (0..REGIONS).prop_map(Step::Soft),
        2 => (0..1u8 << REGIONS).prop_map(Step::Invalidate),
        8 => (0..6usize, 0..LEN as u16, 1..300u16, any::<u8>())
            .prop_map(|(key, offset, len, byte)| Step::Write(key, offset, len, byte)),
        1 => (0..4usize).prop_map(Step::PeerInvalidates),
    ]
}

/// A mapping that was made at some time.
struct Made {
    region: usize,
    key: RemoteKey,
    memory: Memory,
    /// What the memory held when its key was declared dead.
    dead: Option<Vec<u8>>,
}

struct World {
    hca: MockHca,
    regions: Vec<MockRegion>,
    made: Vec<Made>,
}

impl World {
    fn new(changes: &[(&str, &str)]) -> Self {
        let hca = hca("connectx-2008", changes);
        let regions = (0..REGIONS).map(|_| hca.alloc().unwrap()).collect();
        Self {
            hca,
            regions,
            made: Vec::new(),
        }
    }

    fn declare_dead(&mut self, region: usize) {
        for made in &mut self.made {
            if made.region == region && made.dead.is_none() {
                made.dead = Some(made.memory.bytes());
            }
        }
    }

    fn map(&mut self, region: usize, tag: u8, short: bool, remap: &str) {
        let memory = Memory::new(if short { LEN / 4 } else { LEN });
        let range = memory.range();
        let mapped = self.hca.map(
            &mut self.regions[region],
            range,
            common::ALL,
            mr_core::KeyTag::new(tag),
        );
        let Ok(keys) = mapped else {
            assert_eq!(remap, "impossible");
            return;
        };
        if remap == "kills-previous" {
            self.declare_dead(region);
        }
        self.made.push(Made {
            region,
            key: keys.remote,
            memory,
            dead: None,
        });
    }

    /// Declares every mapping dead that a later one of its region has replaced.
    fn declare_replaced_dead(&mut self) {
        for place in 0..self.made.len() {
            let (made, later) = self.made[place..].split_first_mut().unwrap();
            if made.dead.is_none() && later.iter().any(|later| later.region == made.region) {
                made.dead = Some(made.memory.bytes());
            }
        }
    }

    /// With a global fence the set may be empty, and replaced keys of all regions die.
    fn invalidate(&mut self, set: u8) {
        let global = self.hca.capabilities().fence == Fence::Global;
        if set == 0 && !global {
            return;
        }
        let mut batch: Vec<_> = self
            .regions
            .iter_mut()
            .enumerate()
            .filter(|(region, _)| set & (1 << region) != 0)
            .map(|(_, region)| region)
            .collect();
        self.hca.invalidate(&mut batch).unwrap();
        for region in (0..REGIONS).filter(|region| set & (1 << region) != 0) {
            self.declare_dead(region);
        }
        if global {
            self.declare_replaced_dead();
        }
    }

    fn write(&self, back: usize, offset: u16, len: u16, byte: u8) {
        let Some(made) = self.made.iter().rev().nth(back) else {
            return;
        };
        let peer = self.hca.connect();
        let written = peer.write(made.key, offset.into(), &vec![byte; len.into()]);
        let alive = |other: &Made| other.key == made.key && other.dead.is_none();
        if !self.made.iter().any(alive) {
            assert!(written.is_err(), "a dead key was honoured: {}", made.key);
        }
    }

    fn peer_invalidates(&mut self, back: usize) {
        let Some(made) = self.made.iter().rev().nth(back) else {
            return;
        };
        let region = made.region;
        let before = self.hca.invalidated_by_peer(&mut self.regions[region]);
        let done = self.hca.connect().invalidate(made.key);
        let after = self.hca.invalidated_by_peer(&mut self.regions[region]);
        assert_eq!(after, before || done.is_ok());
        if done.is_ok() {
            self.declare_dead(region);
        }
    }

    fn check(&self) {
        for made in &self.made {
            if let Some(then) = &made.dead {
                assert_eq!(&made.memory.bytes(), then, "memory of a dead key changed");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever the knobs, and however small the caches: once a call has said that a key is dead,
    /// the key is refused, and the bytes of its mapping never change again.
    #[test]
    fn dead_means_dead(
        fence in prop::sample::select(vec!["global", "per-key"]),
        cache_tag in prop::sample::select(vec!["full-key", "index"]),
        remap in prop::sample::select(vec!["impossible", "leaves-previous", "kills-previous"]),
        (entries, lines) in prop::sample::select(vec![("0", "0"), ("1", "2"), ("4", "16"), ("64", "64")]),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(&[
            ("fence", fence), ("cache_tag", cache_tag), ("remap", remap),
            ("remote_invalidate", "true"), ("page_bytes", "512"), ("mtu_bytes", "256"),
            ("mtt_line_pages", "2"), ("mpt_ways", "1"), ("mtt_ways", "1"),
            ("mpt_entries", entries), ("mtt_lines", lines),
        ]);
        for step in steps {
            match step {
                Step::Map(region, tag, short) => world.map(region, tag, short, remap),
                Step::Soft(region) => world.hca.soft_invalidate(&mut world.regions[region]),
                Step::Invalidate(set) => world.invalidate(set),
                Step::Write(back, offset, len, byte) => world.write(back, offset, len, byte),
                Step::PeerInvalidates(back) => world.peer_invalidates(back),
            }
            world.check();
        }
    }
}

/// Two threads, one writing through a key, one invalidating it: when the invalidation returns,
/// the last byte has been written.
#[test]
fn an_invalidation_waits_for_the_bytes_on_their_way() {
    let hca = hca("connectx-5", &[]);
    let memory = Memory::new(256 << 10);
    let mut region = hca.alloc().unwrap();
    for round in 0..200 {
        memory.fill(0);
        let key = map(&hca, &mut region, &memory, round as u8).remote;
        std::thread::scope(|scope| {
            let peer = hca.connect();
            scope.spawn(move || {
                let _ = peer.write(key, 0, &[0xee; 256 << 10]);
            });
            for _ in 0..round * 50 {
                std::hint::spin_loop();
            }
            hca.invalidate(&mut [&mut region]).unwrap();
            let then = memory.bytes();
            assert_eq!(memory.bytes(), then);
            let written = then.iter().filter(|&&byte| byte == 0xee).count();
            assert!(written % (32 << 10) == 0, "{written} bytes: a run was cut");
            assert!(then[..written].iter().all(|&byte| byte == 0xee));
        });
    }
}
