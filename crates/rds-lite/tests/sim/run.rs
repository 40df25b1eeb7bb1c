//! One seed.

use crate::actor::{Cast, PORTS};
use crate::log::Log;
use crate::world::{Dice, World, ip};
use std::ops::AddAssign;
use std::time::Duration;

/// How much has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    delivered: u64,
    reported: u64,
    operations: u64,
    succeeded: u64,
    returned: u64,
    congested: u64,
    retransmitted: u64,
    duplicates: u64,
    bad_headers: u64,
    resets: u64,
    restarts: u64,
    quarantines: u64,
    rejected: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.delivered += other.delivered;
        self.reported += other.reported;
        self.operations += other.operations;
        self.succeeded += other.succeeded;
        self.returned += other.returned;
        self.congested += other.congested;
        self.retransmitted += other.retransmitted;
        self.duplicates += other.duplicates;
        self.bad_headers += other.bad_headers;
        self.resets += other.resets;
        self.restarts += other.restarts;
        self.quarantines += other.quarantines;
        self.rejected += other.rejected;
    }
}

impl Summary {
    /// Everything that can happen has happened.
    pub(crate) fn assert_covers(&self) {
        for (what, count) in [
            ("messages delivered", self.delivered),
            ("failures reported", self.reported),
            ("operations", self.operations),
            ("operations done", self.succeeded),
            ("buffers returned", self.returned),
            ("congested destinations", self.congested),
            ("retransmissions", self.retransmitted),
            ("duplicates dropped", self.duplicates),
            ("damaged headers", self.bad_headers),
            ("links lost", self.resets),
            ("peers restarted", self.restarts),
            ("quarantines", self.quarantines),
            ("dials rejected", self.rejected),
        ] {
            assert!(count > 0, "no {what} in any seed");
        }
    }
}

pub(crate) fn run(seed: u64, log: &Log) -> Summary {
    let mut dice = Dice::new(seed);
    let mut world = World::new(seed, &mut dice, log);
    let mut cast = Cast::new();
    let mut summary = Summary::default();
    for node in 0..world.nodes.len() {
        for port in 0..PORTS {
            cast.bind(&world, node, 10 + port as u16);
        }
    }
    if dice.below(4) > 0 {
        world.misbehave(&mut dice);
    }
    for _ in 0..60 + dice.below(150) {
        act(&mut world, &mut cast, &mut dice, &mut summary);
        let pause = [0, 1, 50, 2000, 10_000][dice.below(5) as usize];
        world.run(Duration::from_micros(dice.below(pause + 1)));
    }
    settle(&mut world, &mut cast);
    for node in &world.nodes {
        summary.count_host(&node.host);
    }
    summary.delivered = cast.checker.delivered;
    summary.reported = cast.checker.reported;
    summary.operations = cast.operations;
    summary.succeeded = cast.succeeded;
    summary.returned = cast.memory.returned;
    summary.congested = cast.congested;
    summary
}

impl Summary {
    fn count_host(&mut self, host: &rds_lite::Host) {
        let counters = host.counters();
        self.retransmitted += counters.lite_retransmitted;
        self.duplicates += counters.recv_drop_old_seq;
        self.bad_headers += counters.recv_drop_bad_checksum;
        self.resets += counters.conn_reset;
        self.restarts += counters.lite_peer_restarts;
        self.rejected += counters.lite_dials_rejected;
        self.quarantines += host.pool_stats().unwrap().quarantines;
    }
}

fn act(world: &mut World, cast: &mut Cast, dice: &mut Dice, summary: &mut Summary) {
    match dice.below(100) {
        0..35 => cast.send(world, dice),
        35..45 => cast.lend(world, dice),
        45..58 => cast.operate(world, dice),
        58..80 => cast.receive(world, dice),
        80..85 => cast.free(world, dice),
        85..90 => cast.reclaim(world),
        90..92 => cast.cancel(world, dice),
        92..94 => world.misbehave(dice),
        94..96 => {
            let nodes = world.nodes.len() as u64;
            let (a, b) = (
                ip(dice.below(nodes) as usize),
                ip(dice.below(nodes) as usize),
            );
            let cut = dice.one_in(2);
            world.note(|| format!("{a} and {b} cut: {cut}"));
            world.network.set_cut(a, b, cut);
        }
        96..98 => {
            let count = cast.actors.len() as u64;
            if count > 0 {
                cast.close(world, dice.below(count) as usize);
            }
        }
        98 => {
            let node = dice.below(world.nodes.len() as u64) as usize;
            summary.count_host(&world.nodes[node].host);
            cast.restart(world, node);
        }
        _ => {
            let node = dice.below(world.nodes.len() as u64) as usize;
            cast.bind(world, node, 10 + dice.below(PORTS) as u16);
        }
    }
}

/// Faults end, everybody receives: everything must drain, and all memory must come back.
fn settle(world: &mut World, cast: &mut Cast) {
    world.behave();
    // A host without a socket is not there at all.
    for node in 0..world.nodes.len() {
        cast.bind(world, node, 10);
    }
    for actor in &cast.actors {
        actor.socket.set_corked(false);
    }
    let mut rounds = 0;
    loop {
        world.run(Duration::from_millis(20));
        let received = cast.receive_all(world);
        cast.reclaim(world);
        let unsent = cast.actors.iter().any(|actor| actor.socket.unsent() > 0);
        if !received && !unsent {
            break;
        }
        rounds += 1;
        assert!(rounds < 500, "does not drain after the faults have ended");
    }
    cast.free_all(world);
    let mut rounds = 0;
    while cast.memory.outstanding() > 0 {
        world.run(Duration::from_millis(100));
        for actor in &cast.actors {
            actor.socket.flush_mrs().unwrap();
        }
        cast.reclaim(world);
        rounds += 1;
        assert!(
            rounds < 1000,
            "{} buffers do not come back",
            cast.memory.outstanding()
        );
    }
    cast.receive_all(world);
    assert_eq!(
        world.network.credit_breaches(),
        0,
        "a frame without a buffer"
    );
    cast.checker.assert_complete();
    for node in &world.nodes {
        let mut rounds = 0;
        loop {
            let pool = node.host.pool_stats().unwrap();
            if pool.regions.clean == 6 && pool.stale.keys == 0 {
                break;
            }
            world.run(Duration::from_millis(100));
            rounds += 1;
            assert!(
                rounds < 1000,
                "regions do not become clean: {:?}",
                pool.regions
            );
        }
        assert_eq!(
            node.host.receive_memory(),
            0,
            "receive buffers do not come back"
        );
    }
}
