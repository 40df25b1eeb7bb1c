//! Hosts that come and go on one network.

use crate::log::Log;
use mr_core::{Clock, Driver, ErrorKind, ManualClock, Pool, Time};
use mr_mock::{Call, Fault, FaultBackend, FaultControl, FaultPlan, MockHca, Preset, When};
use mr_policies::Policy;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rds_lite::fabric::mock::{Faults, MockNetwork};
use rds_lite::rdma::PoolRegions;
use rds_lite::wire::Version;
use rds_lite::{Driving, Host};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const PRESETS: [&str; 4] = ["connectx-2008", "connectx-3", "connectx-5", "soft-roce"];

const POLICIES: [&str; 7] = [
    "immediate",
    "use-once",
    "threshold=2",
    "max-exposure=1ms",
    "periodic=5ms",
    "adaptive=0.01key-s/10ms",
    "use-n=3,threshold=3",
];

/// The presets with tables and caches as small as a simulation needs.
fn preset(place: usize) -> &'static Preset {
    static SMALL: OnceLock<Vec<Preset>> = OnceLock::new();
    &SMALL.get_or_init(|| {
        let small = |name: &&str| {
            let sizes = [
                ("mpt_entries", "16"),
                ("mpt_ways", "4"),
                ("mtt_lines", "16"),
                ("mtt_ways", "4"),
            ];
            Preset::named(name).unwrap().with(&sizes).unwrap()
        };
        PRESETS.iter().map(small).collect()
    })[place]
}

/// A die.
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[self.below(from.len() as u64) as usize])
    }
}

pub(crate) struct Node {
    pub(crate) host: Host,
    pub(crate) hca: MockHca,
    pub(crate) faults: FaultControl,
}

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) network: MockNetwork,
    pub(crate) nodes: Vec<Node>,
    pub(crate) log: Log,
    policy: Policy,
    preset: usize,
    /// Where mappings begin for peers.
    base: u64,
    /// Receive buffers of a link, if links are as over InfiniBand.
    ring: Option<u32>,
    flow_control: bool,
    built: u64,
    seed: u64,
}

struct Shared(Arc<ManualClock>);

impl Clock for Shared {
    fn now(&self) -> Time {
        self.0.now()
    }
}

pub(crate) fn ip(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, node as u8 + 1))
}

impl World {
    pub(crate) fn new(seed: u64, dice: &mut Dice, log: &Log) -> Self {
        let clock = Arc::new(ManualClock::new());
        let network = MockNetwork::new(clock.clone(), seed);
        if log.is_recording() {
            // The trace runs in this thread only, but its type does not know.
            let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
            let to = Arc::clone(&lines);
            network.set_trace(move |time, what| {
                to.lock().unwrap().push((time.as_nanos(), what.to_owned()));
            });
            TRACE.set(Some(lines));
        }
        let preset = dice.below(PRESETS.len() as u64) as usize;
        // Use-n, the last one, is for an HCA that can map a region again before it invalidates it.
        let remaps = usize::from(preset > 0);
        let policy = dice.pick(&POLICIES[..POLICIES.len() - remaps]).unwrap();
        log.write(0, || format!("policy {policy} on {}", PRESETS[preset]));
        let mut world = Self {
            clock,
            network,
            nodes: Vec::new(),
            log: log.clone(),
            policy: policy.parse().unwrap(),
            preset,
            base: dice.below(4096),
            ring: dice
                .one_in(2)
                .then_some([4, 16, 64][dice.below(3) as usize]),
            flow_control: dice.one_in(2),
            built: 0,
            seed,
        };
        for node in 0..2 + dice.below(3) as usize {
            let node = world.build(node);
            world.nodes.push(node);
        }
        world
    }

    pub(crate) fn build(&mut self, _node: usize) -> Node {
        self.built += 1;
        let seed = self.seed << 8 | self.built;
        let hca = MockHca::new(preset(self.preset)).based_at(self.base);
        let backend = FaultBackend::new(hca.clone(), FaultPlan::none());
        let faults = backend.control();
        let pool = Pool::builder(backend, self.policy.clone())
            .clock(Shared(self.clock.clone()))
            .capacity(6)
            .seed(seed)
            .configure(|config| {
                config.driver = Driver::Manual;
                config.shards = 1;
                config.max_age = Duration::from_millis(50);
                config.max_unclaimed = Some(1 << 12);
                config.max_retries = 1000;
            })
            .build::<Vec<u8>>()
            .unwrap();
        let note = hca.clone();
        let regions =
            PoolRegions::new(Arc::new(pool)).on_release(move |key| note.note_released(key));
        let fabric = self.network.fabric(Some(hca.clone()));
        let fabric = match self.ring {
            Some(ring) => fabric.like_infiniband(ring),
            None => fabric,
        };
        // Some hosts propose what others have to be asked for.
        let newest = seed.is_multiple_of(3);
        let host = Host::builder(fabric)
            .clock(self.clock.clone())
            .driving(Driving::Manual)
            .regions(regions)
            .configure(|config| {
                config.seed = Some(seed);
                config.send_buffer = 40_000;
                config.receive_buffer = 20_000;
                config.receive_budget = 2 << 20;
                config.ack_timeout = Duration::from_millis(50);
                config.greet_timeout = Duration::from_millis(50);
                config.reconnect_max = Duration::from_millis(20);
                config.map_refresh = Duration::from_millis(20);
                config.max_queued = 64;
                config.flow_control = self.flow_control;
                config.version = if newest { Version::V4_1 } else { Version::V3_1 };
            })
            .build()
            .unwrap();
        Node { host, hca, faults }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        self.drain_trace();
        self.log.write(self.now(), line);
    }

    fn drain_trace(&self) {
        TRACE.with_borrow(|trace| {
            if let Some(trace) = trace {
                for (time, what) in trace.lock().unwrap().drain(..) {
                    self.log.write(time, || format!("    {what}"));
                }
            }
        });
    }

    /// Lets time pass, event by event. Bounded: a system that never comes to rest in between is
    /// broken.
    pub(crate) fn run(&self, time: Duration) {
        let end = self.clock.now() + time;
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 100_000, "events without end");
            let polled: Vec<_> = self.nodes.iter().map(|node| node.host.poll()).collect();
            if self.network.step() {
                continue;
            }
            let due = polled
                .into_iter()
                .flatten()
                .chain(self.network.next_due())
                .min();
            match due {
                Some(due) if due <= end => self.clock.advance_to(due),
                _ => break,
            }
        }
        self.clock.advance_to(end);
        self.drain_trace();
    }

    /// Sets what goes wrong from now on.
    pub(crate) fn misbehave(&mut self, dice: &mut Dice) {
        let rate = |dice: &mut Dice, most: u64| {
            if dice.one_in(2) {
                0.0
            } else {
                dice.below(most) as f64 / 1000.0
            }
        };
        let mut faults = Faults::none();
        let longest = Duration::from_micros([0, 10, 1000, 20_000][dice.below(4) as usize]);
        faults.delay = Duration::ZERO..=longest;
        faults.lose_link = rate(dice, 30);
        faults.duplicate = rate(dice, 300);
        faults.corrupt = rate(dice, 20);
        faults.lose_control = rate(dice, 500);
        faults.dial_timeout = Duration::from_millis(5);
        self.note(|| format!("{faults:?}"));
        self.network.set_faults(faults);
        let fail = rate(dice, 300);
        for (place, node) in self.nodes.iter().enumerate() {
            let plan = FaultPlan::seeded(self.seed ^ place as u64)
                .on(
                    Call::Invalidate,
                    When::Rate(fail),
                    Fault::HalfDone(ErrorKind::Io),
                )
                .on(
                    Call::Map,
                    When::Rate(fail / 4.0),
                    Fault::Fail(ErrorKind::Busy),
                );
            node.faults.set_plan(plan);
        }
    }

    /// Nothing goes wrong any more.
    pub(crate) fn behave(&mut self) {
        self.note(|| "faults end".into());
        self.network.heal();
        let mut faults = Faults::none();
        faults.dial_timeout = Duration::from_millis(5);
        self.network.set_faults(faults);
        for node in &self.nodes {
            node.faults.set_plan(FaultPlan::none());
        }
    }
}

type Lines = Arc<std::sync::Mutex<Vec<(u64, String)>>>;

thread_local! {
    static TRACE: std::cell::RefCell<Option<Lines>> = const { std::cell::RefCell::new(None) };
}
