//! Both ends of a connection on one device, and what tests do with one.

use crate::common::device_or_skip;
use mr_verbs::cm::{
    Connection, ConnectionConfig, Dial, DialError, Dialled, Ended, Event, Listener, Over, Poller,
    Waker, dial,
};
use mr_verbs::{Device, Domain, Status};
use std::io::{Write, stderr};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What every wait must end in.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// A device with an address, and a domain on it.
pub(crate) struct Place {
    pub(crate) ip: Ipv4Addr,
    pub(crate) domain: Arc<Domain>,
}

impl Place {
    /// `None`, after saying so loudly, where no device is expected.
    pub(crate) fn or_skip(test: &str) -> Option<Self> {
        let device = device_or_skip(test)?;
        let Some(ip) = address(&device) else {
            let why = "the device has no IPv4 address";
            let _ = writeln!(stderr(), "{test}: SKIPPED, {why}");
            return None;
        };
        let domain = Domain::new(&device).unwrap();
        Some(Self { ip, domain })
    }

    /// Listens at a port that the system chooses.
    pub(crate) fn listen(&self, backlog: u32) -> Listener {
        Listener::bind(&self.domain, SocketAddrV4::new(self.ip, 0), backlog).unwrap()
    }

    pub(crate) fn dial(
        &self,
        remote: SocketAddrV4,
        config: &ConnectionConfig,
        private_data: &[u8],
    ) -> Result<Dialled, DialError> {
        let wanted = Dial {
            local: self.ip,
            remote,
            private_data,
            timeout: BOUND,
        };
        dial(&self.domain, &wanted, config, &Waker::new().unwrap())
    }

    /// Two ends, connected.
    pub(crate) fn ends(&self, config: &ConnectionConfig) -> (End, End) {
        self.ends_of(config, config)
    }

    pub(crate) fn ends_of(&self, near: &ConnectionConfig, far: &ConnectionConfig) -> (End, End) {
        let listener = self.listen(1);
        let remote = listener.local_addr();
        let (dialled, accepted) = thread::scope(|scope| {
            let dialled = scope.spawn(|| self.dial(remote, near, b"hello").unwrap());
            let request = listener.wait(BOUND).unwrap().expect("a request");
            let accepted = request.accept(far, b"welcome").unwrap();
            (dialled.join().unwrap(), accepted)
        });
        let near = End::new(dialled.connection, dialled.poller);
        let mut far = End::new(accepted.0, accepted.1);
        far.run_until("the peer is ready", |end| end.established);
        (near, far)
    }
}

/// The IPv4 address of a device that has one.
fn address(device: &Device) -> Option<Ipv4Addr> {
    let gid = device.gid().unwrap().bytes;
    let (prefix, ip) = gid.split_at(12);
    let mapped = prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    mapped.then(|| Ipv4Addr::from(<[u8; 4]>::try_from(ip).unwrap()))
}

/// One end, with all that has happened at it.
pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) poller: Poller,
    pub(crate) established: bool,
    /// Header and payload of each frame.
    pub(crate) frames: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) ended: Vec<Ended>,
    pub(crate) over: Vec<Over>,
}

impl End {
    pub(crate) const fn new(connection: Connection, poller: Poller) -> Self {
        Self {
            connection,
            poller,
            established: false,
            frames: Vec::new(),
            ended: Vec::new(),
            over: Vec::new(),
        }
    }

    /// Polls for what there is.
    pub(crate) fn poll(&mut self) -> usize {
        let Self {
            poller,
            established,
            frames,
            ended,
            over,
            ..
        } = self;
        poller.poll(usize::MAX, |event| match event {
            Event::Established => {
                assert!(!*established, "told once");
                assert!(frames.is_empty(), "before the first frame");
                *established = true;
            }
            Event::Frame(frame) => {
                frames.push((frame.header().to_vec(), frame.payload().to_vec()));
            }
            Event::Ended(end) => ended.push(end),
            Event::Over(why) => over.push(why),
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + BOUND;
        loop {
            self.poll();
            if done(self) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "not within {BOUND:?}: {what}; {:?}",
                self.over
            );
            self.poller.wait(left);
        }
    }

    /// The ids of all that has ended, with how.
    pub(crate) fn ends(&self) -> Vec<(u64, Status)> {
        self.ended.iter().map(|end| (end.id, end.status)).collect()
    }
}

/// A header whose bytes tell which it is.
pub(crate) fn header(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(6)
}

/// Bytes that are nowhere else the same.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| byte()).collect()
}

/// Files that this process has open.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
