//! The network: hosts, links, and what is under way.

use super::Faults;
use super::faults::{draw_delay, happens};
use crate::fabric::{Fabric, Link, Sink};
use crate::proto::{
    DoneStatus, Frame, Greeting, LinkId, LinkKind, Path, RdmaDone, RdmaWork, Transmission,
};
use crate::wire::{Connect, FRAGMENT_LEN, Header};
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
    /// Frames that were sent although no buffer was granted for them.
    breaches: u64,
}

struct Node {
    sink: Weak<dyn Sink>,
    hca: Option<MockHca>,
}

/// Both ends of a link.
pub(super) struct Pair {
    pub(super) path: Path,
    pub(super) ends: [End; 2],
    /// What the side that has dialled says, and then what the other has answered.
    pub(super) said: Vec<u8>,
    /// Loses nothing in the middle and says nothing twice, as a reliable connection of an HCA.
    reliable: bool,
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
    /// Frames that this end may still send; `None` where nobody counts.
    granted: Option<u64>,
}

/// Something that will happen.
pub(super) enum Happening {
    Dialled(u64),
    Answered(u64),
    Established(u64),
    Rejected(Weak<dyn Sink>, LinkId, Vec<u8>),
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
    kind: LinkKind,
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
            breaches: 0,
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
        let kind = LinkKind {
            fragment: FRAGMENT_LEN,
            greeting: Greeting::Probe,
            always_acks: true,
            packets_per_ack: 8,
            rdma: hca.is_some(),
            fences: false,
            receive_ring: 0,
            own_ack: false,
            smaller_dials: false,
        };
        MockFabric {
            net: Arc::clone(&self.net),
            hca,
            mine: Mutex::new(Vec::new()),
            kind,
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

    /// Frames so far that were sent although credits were counted and none was left.
    pub fn credit_breaches(&self) -> u64 {
        self.net.lock().breaches
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

    /// Ends a link before it was one, by a refusal of the side that was dialled.
    pub(super) fn reject(&mut self, now: Time, number: u64, reason: Vec<u8>) {
        let end = self.pairs.get_mut(&number).map(|pair| &mut pair.ends[0]);
        let dialled = end.and_then(|end| Some((Weak::clone(&end.sink), end.id.take()?)));
        let at = self.arrival(now, number, 0);
        self.end_pair(now, number, "rejected");
        if let Some((sink, id)) = dialled {
            self.schedule(at, Happening::Rejected(sink, id, reason));
        }
    }

    fn sink(&self, ip: IpAddr) -> Option<Weak<dyn Sink>> {
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
        let reliable = self.pairs.get(&number).is_some_and(|pair| pair.reliable);
        if unnumbered && !probe && !reliable && self.loses_control(number, side, &frame) {
            self.tell(now, || format!("link {number}: a control frame is lost"));
            return None;
        }
        if happens(&mut self.random, self.faults.lose_link) {
            self.end_pair(now, number, "lost");
            return None;
        }
        let whole = frame.payload.len() == Header::len_in(&frame.header);
        if whole && !unnumbered && !reliable && happens(&mut self.random, self.faults.duplicate) {
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
        let len = Header::len_in(&frame.header);
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
                self.spend_credit(number, side);
                if let Some(frame) = self.mistreat(now, number, other, frame) {
                    let at = self.arrival(now, number, other);
                    self.schedule(at, Happening::Frame(number, other, frame));
                }
            }
            Transmission::Frame(_) => {}
        }
    }

    /// Both sides have said how many buffers they have, or not.
    pub(super) fn count_credits(&mut self, number: u64, answer: &[u8]) {
        let Some(pair) = self.pairs.get_mut(&number) else {
            return;
        };
        let credit = |said: &[u8]| Connect::decode(said).map_or(0, |said| u64::from(said.credit));
        let granted = [credit(answer), credit(&pair.said)];
        if granted.iter().all(|&granted| granted > 0) {
            pair.ends[0].granted = Some(granted[0]);
            pair.ends[1].granted = Some(granted[1]);
        }
        pair.said = answer.to_vec();
    }

    fn spend_credit(&mut self, number: u64, side: usize) {
        let pair = self.pairs.get_mut(&number);
        let Some(granted) = pair.and_then(|pair| pair.ends[side].granted.as_mut()) else {
            return;
        };
        match granted.checked_sub(1) {
            Some(left) => *granted = left,
            None => self.breaches += 1,
        }
    }

    /// The header of a frame that arrives at an end grants it more.
    pub(super) fn take_grant(&mut self, number: u64, side: usize, frame: &Frame) {
        let pair = self.pairs.get_mut(&number);
        if let Some(granted) = pair.and_then(|pair| pair.ends[side].granted.as_mut()) {
            *granted += u64::from(frame.header[25]);
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

impl MockFabric {
    /// The same place with links like those of RDS over InfiniBand: introductions go with the dial, a
    /// link has `ring` receive buffers at each end, and nothing is lost in the middle or said twice.
    #[must_use]
    pub fn like_infiniband(mut self, ring: u32) -> Self {
        self.kind.greeting = Greeting::Connect;
        self.kind.fences = true;
        self.kind.receive_ring = ring;
        self
    }
}

impl Fabric for MockFabric {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn kind(&self) -> LinkKind {
        self.kind
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

    fn dial(&self, id: LinkId, path: Path, introduction: Vec<u8>, sink: Weak<dyn Sink>) {
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
            granted: None,
        };
        let ends = [end(Weak::clone(&sink), Some(id)), end(sink, None)];
        let pair = Pair {
            path,
            ends,
            said: introduction,
            reliable: self.kind.greeting == Greeting::Connect,
        };
        state.pairs.insert(number, pair);
        state.tell(now, || format!("link {number} {path}: dialled"));
        let at = now + state.delay();
        state.schedule(at, Happening::Dialled(number));
    }

    fn pump(&self) -> Option<Time> {
        self.net.deliver_due();
        let state = self.net.lock();
        state.under_way.keys().next().map(|key| key.0)
    }

    fn shut_down(&self, _patience: std::time::Duration) -> usize {
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
        // It has none.
        0
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

/// The answer to an operation whose link has ended.
pub(super) fn flushed(work: RdmaWork) -> RdmaDone {
    work.end(DoneStatus::Flushed)
}
