//! The network: hosts, links, and what is under way.

use super::Faults;
use super::faults::{draw_delay, happens};
use crate::fabric::{Fabric, Link, Sink};
use crate::proto::{DoneStatus, Frame, LinkId, LinkKind, Path, RdmaDone, RdmaWork, Transmission};
use crate::wire::FRAGMENT_LEN;
use mr_core::{Clock, Time};
use mr_mock::{MockHca, RemotePeer};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A network in process. Clones are the same network.
#[derive(Clone)]
pub struct MockNetwork {
    pub(super) net: Arc<Net>,
}

pub(super) type Trace = Box<dyn Fn(Time, &str) + Send>;

pub(super) struct Net {
    pub(super) state: Mutex<State>,
    pub(super) clock: Arc<dyn Clock>,
    /// Held by whoever delivers.
    pub(super) delivering: Mutex<()>,
}

pub(super) struct State {
    pub(super) faults: Faults,
    pub(super) random: ChaCha8Rng,
    nodes: HashMap<IpAddr, Node>,
    pub(super) pairs: HashMap<u64, Pair>,
    next_pair: u64,
    /// What is under way, by the time of its arrival and the order of its departure.
    pub(super) under_way: BTreeMap<(Time, u64), Happening>,
    departures: u64,
    pub(super) cut: HashSet<(IpAddr, IpAddr)>,
    pub(super) trace: Option<Trace>,
}

struct Node {
    sink: Weak<dyn Sink>,
    hca: Option<MockHca>,
}

/// Both ends of a link.
pub(super) struct Pair {
    pub(super) path: Path,
    pub(super) ends: [End; 2],
}

/// One end: side 0 has dialled.
pub(super) struct End {
    pub(super) sink: Weak<dyn Sink>,
    pub(super) id: Option<LinkId>,
    /// What reaches the memory of the other end.
    pub(super) reach: Option<Arc<RemotePeer>>,
    /// Arrival of the last thing under way to this end.
    last: Time,
    /// Bytes that are left of a congestion map to this end, and whether it is lost.
    map_left: usize,
    map_lost: bool,
}

/// Something that will happen.
pub(super) enum Happening {
    Dialled(u64),
    Opened(u64),
    Frame(u64, usize, Frame),
    /// An operation of an end arrives at the other.
    Rdma(u64, usize, Weak<dyn Sink>, RdmaWork),
    Done(u64, Weak<dyn Sink>, RdmaDone),
    /// An end is told that its link is gone.
    Lost(Weak<dyn Sink>, LinkId),
}

/// One host's place in a network.
pub struct MockFabric {
    net: Arc<Net>,
    hca: Option<MockHca>,
    mine: Mutex<Vec<IpAddr>>,
}

/// One end of a link, for the host there.
pub(super) struct MockLink {
    pub(super) net: Weak<Net>,
    pub(super) pair: u64,
    pub(super) side: usize,
    pub(super) sink: Weak<dyn Sink>,
}

impl MockNetwork {
    /// A network without hosts, whose faults come from `seed`.
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        let state = State {
            faults: Faults::none(),
            random: ChaCha8Rng::seed_from_u64(seed),
            nodes: HashMap::new(),
            pairs: HashMap::new(),
            next_pair: 0,
            under_way: BTreeMap::new(),
            departures: 0,
            cut: HashSet::new(),
            trace: None,
        };
        let net = Net {
            state: Mutex::new(state),
            clock,
            delivering: Mutex::new(()),
        };
        Self { net: Arc::new(net) }
    }

    /// A place for a host; with an HCA its memory can be reached by RDMA.
    pub fn fabric(&self, hca: Option<MockHca>) -> MockFabric {
        MockFabric {
            net: Arc::clone(&self.net),
            hca,
            mine: Mutex::new(Vec::new()),
        }
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.net.lock().faults = faults;
    }

    /// Cuts two addresses off from each other, or joins them again. A link between them ends when
    /// something is sent on it.
    pub fn set_cut(&self, a: IpAddr, b: IpAddr, cut: bool) {
        let mut state = self.net.lock();
        for pair in [(a, b), (b, a)] {
            if cut {
                state.cut.insert(pair);
            } else {
                state.cut.remove(&pair);
            }
        }
    }

    /// Joins everyone again.
    pub fn heal(&self) {
        self.net.lock().cut.clear();
    }

    /// Calls `trace` with everything that happens in the network, in words.
    pub fn set_trace(&self, trace: impl Fn(Time, &str) + Send + 'static) {
        self.net.lock().trace = Some(Box::new(trace));
    }

    /// When the next thing happens.
    pub fn next_due(&self) -> Option<Time> {
        let state = self.net.lock();
        state.under_way.keys().next().map(|key| key.0)
    }

    /// Lets happen what is due. Says whether anything was.
    pub fn step(&self) -> bool {
        self.net.deliver_due()
    }
}

impl Net {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Something happens at the earliest at `at`, and after everything that departed before for the
    /// same time.
    pub(super) fn schedule(&mut self, at: Time, happening: Happening) {
        self.departures += 1;
        self.under_way.insert((at, self.departures), happening);
    }

    pub(super) fn delay(&mut self) -> std::time::Duration {
        draw_delay(&mut self.random, &self.faults.delay)
    }

    /// When something that departs now for an end arrives there: not before what departed earlier.
    pub(super) fn arrival(&mut self, now: Time, pair: u64, side: usize) -> Time {
        let at = now + self.delay();
        let Some(pair) = self.pairs.get_mut(&pair) else {
            return at;
        };
        let end = &mut pair.ends[side];
        end.last = end.last.max(at);
        end.last
    }

    pub(super) fn tell(&self, now: Time, what: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            trace(now, &what());
        }
    }

    /// Ends a link. Ends that still have it are told; one RDMA operation at a time is flushed when
    /// its time comes.
    pub(super) fn end_pair(&mut self, now: Time, number: u64, why: &str) {
        let Some(pair) = self.pairs.remove(&number) else {
            return;
        };
        self.tell(now, || format!("link {number} {}: {why}", pair.path));
        for end in pair.ends {
            if let Some(id) = end.id {
                let at = (now + self.delay()).max(end.last);
                self.schedule(at, Happening::Lost(end.sink, id));
            }
        }
    }

    pub(super) fn sink(&self, ip: IpAddr) -> Option<Weak<dyn Sink>> {
        self.nodes.get(&ip).map(|node| Weak::clone(&node.sink))
    }

    fn connect_hca(&self, ip: IpAddr) -> Option<Arc<RemotePeer>> {
        let hca = self.nodes.get(&ip)?.hca.as_ref()?;
        Some(Arc::new(hca.connect()))
    }

    /// What goes wrong with a frame, if anything; `None` loses it.
    fn mistreat(&mut self, now: Time, number: u64, side: usize, mut frame: Frame) -> Option<Frame> {
        let unnumbered = frame.header[..8] == [0; 8];
        let probe = frame.header[20..24] != [0; 4];
        if unnumbered && !probe && self.loses_control(number, side, &frame) {
            self.tell(now, || format!("link {number}: a control frame is lost"));
            return None;
        }
        if happens(&mut self.random, self.faults.lose_link) {
            self.end_pair(now, number, "lost");
            return None;
        }
        let whole = frame.payload.len() == message_len(&frame);
        if whole && !unnumbered && happens(&mut self.random, self.faults.duplicate) {
            self.tell(now, || format!("link {number}: a message is doubled"));
            let at = self.arrival(now, number, side);
            self.schedule(at, Happening::Frame(number, side, frame.clone()));
        }
        if happens(&mut self.random, self.faults.corrupt) {
            let bit = self.random.next_u32() as usize % (frame.header.len() * 8);
            frame.header[bit / 8] ^= 1 << (bit % 8);
            self.tell(now, || {
                format!("link {number}: header bit {bit} is flipped")
            });
        }
        Some(frame)
    }

    /// Whether an acknowledgement or a congestion map is lost; a map is so as a whole.
    fn loses_control(&mut self, number: u64, side: usize, frame: &Frame) -> bool {
        let lost = happens(&mut self.random, self.faults.lose_control);
        let len = message_len(frame);
        let Some(pair) = self.pairs.get_mut(&number) else {
            return lost;
        };
        let end = &mut pair.ends[side];
        if len == 0 {
            return lost;
        }
        if end.map_left == 0 {
            (end.map_left, end.map_lost) = (len, lost);
        }
        end.map_left = end.map_left.saturating_sub(frame.payload.len());
        end.map_lost
    }

    fn is_cut(&self, path: Path) -> bool {
        self.cut.contains(&(path.local, path.remote))
    }

    fn depart(&mut self, now: Time, link: &MockLink, what: Transmission) {
        let (number, side) = (link.pair, link.side);
        let other = 1 - side;
        let path = self.pairs.get(&number).map(|pair| pair.path);
        if path.is_some_and(|path| self.is_cut(path)) {
            self.end_pair(now, number, "cut");
        }
        match what {
            Transmission::Rdma(work) => {
                let at = self.arrival(now, number, other);
                let sink = Weak::clone(&link.sink);
                self.schedule(at, Happening::Rdma(number, side, sink, work));
            }
            Transmission::Frame(frame) if self.pairs.contains_key(&number) => {
                if let Some(frame) = self.mistreat(now, number, other, frame) {
                    let at = self.arrival(now, number, other);
                    self.schedule(at, Happening::Frame(number, other, frame));
                }
            }
            Transmission::Frame(_) => {}
        }
    }

    /// A dial arrives. Whom it reaches, or `None`.
    pub(super) fn reach(&mut self, number: u64) -> Option<(Weak<dyn Sink>, Path)> {
        let path = self.pairs.get(&number)?.path;
        let (near, far) = (self.connect_hca(path.local), self.connect_hca(path.remote));
        let sink = self.sink(path.remote);
        let cut = self.is_cut(path);
        let pair = self.pairs.get_mut(&number)?;
        let sink = sink.filter(|_| !cut)?;
        pair.ends[0].reach = far;
        pair.ends[1].reach = near;
        pair.ends[1].sink = Weak::clone(&sink);
        Some((sink, path.reversed()))
    }
}

impl Fabric for MockFabric {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn kind(&self) -> LinkKind {
        LinkKind {
            fragment: FRAGMENT_LEN,
            greets: true,
            always_acks: true,
            packets_per_ack: 8,
            rdma: self.hca.is_some(),
            smaller_dials: false,
        }
    }

    fn listen(&self, ip: IpAddr, sink: Weak<dyn Sink>) -> Result<(), String> {
        let mut mine = self.mine.lock().unwrap_or_else(PoisonError::into_inner);
        if mine.contains(&ip) {
            return Ok(());
        }
        let mut state = self.net.lock();
        let taken = state.nodes.get(&ip);
        if taken.is_some_and(|node| node.sink.strong_count() > 0) {
            return Err("another host of the network has it".into());
        }
        let hca = self.hca.clone();
        state.nodes.insert(ip, Node { sink, hca });
        mine.push(ip);
        Ok(())
    }

    fn dial(&self, id: LinkId, path: Path, sink: Weak<dyn Sink>) {
        let now = self.net.clock.now();
        let mut state = self.net.lock();
        state.next_pair += 1;
        let number = state.next_pair;
        let end = |sink, id| End {
            sink,
            id,
            reach: None,
            last: now,
            map_left: 0,
            map_lost: false,
        };
        let ends = [end(Weak::clone(&sink), Some(id)), end(sink, None)];
        state.pairs.insert(number, Pair { path, ends });
        state.tell(now, || format!("link {number} {path}: dialled"));
        let at = now + state.delay();
        state.schedule(at, Happening::Dialled(number));
    }

    fn pump(&self) -> Option<Time> {
        self.net.deliver_due();
        let state = self.net.lock();
        state.under_way.keys().next().map(|key| key.0)
    }

    fn shut_down(&self) {
        let mine = std::mem::take(&mut *self.mine.lock().unwrap_or_else(PoisonError::into_inner));
        let now = self.net.clock.now();
        let mut state = self.net.lock();
        for ip in &mine {
            state.nodes.remove(ip);
        }
        let ours = |path: Path| mine.contains(&path.local) || mine.contains(&path.remote);
        let mut gone: Vec<_> = state
            .pairs
            .iter()
            .filter(|(_, pair)| ours(pair.path))
            .map(|(&number, _)| number)
            .collect();
        gone.sort_unstable();
        for number in gone {
            state.end_pair(now, number, "its host ends");
        }
    }
}

impl Link for MockLink {
    fn transmit(&self, what: &mut Vec<Transmission>) -> bool {
        let Some(net) = self.net.upgrade() else {
            what.clear();
            return true;
        };
        let now = net.clock.now();
        let mut state = net.lock();
        for transmission in what.drain(..) {
            state.depart(now, self, transmission);
        }
        true
    }

    fn close(&self) {
        let Some(net) = self.net.upgrade() else {
            return;
        };
        let now = net.clock.now();
        let mut state = net.lock();
        if let Some(pair) = state.pairs.get_mut(&self.pair) {
            pair.ends[self.side].id = None;
        }
        state.end_pair(now, self.pair, "closed");
    }
}

fn message_len(frame: &Frame) -> usize {
    u32::from_be_bytes([16, 17, 18, 19].map(|at| frame.header[at])) as usize
}

/// The answer to an operation whose link has ended.
pub(super) fn flushed(work: RdmaWork) -> RdmaDone {
    work.end(DoneStatus::Flushed)
}
