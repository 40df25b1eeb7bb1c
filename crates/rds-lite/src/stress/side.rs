//! All tasks of one side.

use super::carrier::Carrier;
use super::counts::Counts;
use super::header::HEADER;
use super::load::Load;
use super::pattern::filler;
use super::task::Task;
use mr_core::{Clock, SystemClock};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long what is under way has to come to an end.
const DRAIN: Duration = Duration::from_secs(10);

/// How often it is looked whether something is over.
const GLANCE: Duration = Duration::from_millis(1);

/// When tasks begin to ask, stop to, and end.
#[derive(Default)]
pub(super) struct Signals {
    pub(super) begin: AtomicBool,
    pub(super) no_more: AtomicBool,
    pub(super) end: AtomicBool,
    /// Tasks that have seen that they shall ask no more.
    pub(super) quiet: AtomicUsize,
}

/// All tasks of one side, each in a thread. Dropping it tells them to end.
pub struct Side {
    tasks: Vec<JoinHandle<()>>,
    counts: Arc<Counts>,
    signals: Arc<Signals>,
}

/// Where the tasks of a side are: at the ports behind that of the agreement. `None` if there are not so
/// many ports.
#[must_use]
pub fn places(ip: IpAddr, port: u16, load: &Load) -> Option<Vec<SocketAddr>> {
    let place = |task| Some(SocketAddr::new(ip, port.checked_add(1)?.checked_add(task)?));
    (0..load.tasks).map(place).collect()
}

impl Side {
    /// Starts a task on each carrier, which answers the tasks at `peers`, and asks them if `asks`, when the
    /// load begins: before that they may not be there.
    ///
    /// # Errors
    ///
    /// There are no threads.
    pub fn start<C: Carrier>(
        carriers: Vec<C>,
        peers: &[SocketAddr],
        load: &Load,
        asks: bool,
    ) -> io::Result<Self> {
        let mut side = Self {
            tasks: Vec::with_capacity(carriers.len()),
            counts: Arc::default(),
            signals: Arc::default(),
        };
        let filler = filler(load.req_bytes.max(load.ack_bytes).saturating_sub(HEADER));
        let filler = bytes::Bytes::from(filler);
        for carrier in carriers {
            let counts = Arc::clone(&side.counts);
            let task = Task::new(carrier, peers, load, asks, counts, filler.clone());
            let signals = Arc::clone(&side.signals);
            let thread = std::thread::Builder::new().name("rds-task".into());
            side.tasks.push(thread.spawn(move || task.run(&signals))?);
        }
        Ok(side)
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Has the tasks ask: all others are there.
    pub(super) fn begin(&self) {
        self.signals.begin.store(true, Ordering::SeqCst);
    }

    /// Has the tasks ask nothing new.
    pub(super) fn ask_no_more(&self) {
        self.signals.no_more.store(true, Ordering::SeqCst);
    }

    /// Waits for the answers to what was asked.
    pub(super) fn drain(&self) {
        // A task that has not seen it yet may be about to ask.
        let quiet = || self.signals.quiet.load(Ordering::SeqCst) == self.tasks.len();
        let over = || quiet() && self.counts.outstanding() == 0;
        wait_until(|| over() || self.counts.failure().is_some());
    }

    /// Ends the tasks.
    pub(super) fn end(&self) {
        self.signals.end.store(true, Ordering::SeqCst);
        wait_until(|| self.tasks.iter().all(JoinHandle::is_finished));
    }

    /// What was wrong, if anything was. Complete only when the load is over.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if let Some(failure) = self.counts.failure() {
            return Some(failure);
        }
        let outstanding = self.counts.outstanding();
        if outstanding > 0 {
            return Some(format!(
                "{outstanding} requests were not answered in {DRAIN:?}"
            ));
        }
        if self.tasks.iter().any(|task| !task.is_finished()) {
            return Some("a task does not end".into());
        }
        None
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.ask_no_more();
        self.signals.end.store(true, Ordering::SeqCst);
    }
}

fn wait_until(is_over: impl Fn() -> bool) {
    let clock = SystemClock::new();
    let start = clock.now();
    while !is_over() && clock.now().since(start) < DRAIN {
        std::thread::sleep(GLANCE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::carrier::{Arrived, Operation, Refusal, Want};
    use super::super::error::Fault;
    use super::super::header::{Header, Kind};
    use super::*;
    use bytes::Bytes;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Sends when it may, and answers itself.
    struct Gate {
        sends: Sender<()>,
        may: Receiver<()>,
        rounds: Sender<()>,
        answer: Option<Vec<u8>>,
    }

    fn peer() -> SocketAddr {
        ([10, 0, 0, 2], 4001).into()
    }

    impl Carrier for Gate {
        type Payload = Vec<u8>;

        fn send(&mut self, message: Bytes, _: SocketAddr) -> Result<(), Refusal> {
            self.sends.send(()).map_err(Fault::socket)?;
            self.may.recv().map_err(Fault::socket)?;
            let kind = Kind::Answer;
            let answer = Header::decode(&message).map(|header| Header { kind, ..header });
            self.answer = answer.map(|header| header.encode().to_vec());
            Ok(())
        }

        fn ask(
            &mut self,
            _: SocketAddr,
            _: Want,
            _: impl FnOnce(u64) -> Bytes,
        ) -> Result<u64, Refusal> {
            Err(Refusal::NotNow)
        }

        fn settle(&mut self, _: u64) -> Result<(), Fault> {
            Ok(())
        }

        fn operate(&mut self, _: SocketAddr, _: Operation, _: Bytes) -> Result<(), Refusal> {
            Err(Refusal::NotNow)
        }

        fn next(&mut self, _: bool) -> Result<Option<Arrived<Vec<u8>>>, Fault> {
            // Whether anybody counts them is not of interest here.
            let _ = self.rounds.send(());
            let answer = self.answer.take();
            Ok(answer.map(|payload| Arrived::Message {
                from: peer(),
                payload,
                cookie: None,
            }))
        }

        fn finish(&mut self) -> Result<(), Fault> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_asked_before_all_are_there_and_nothing_is_left_unanswered() {
        let (sends, sending) = channel();
        let (release, may) = channel();
        let (rounds, round) = channel();
        let gate = Gate {
            sends,
            may,
            rounds,
            answer: None,
        };
        let load = Load {
            req_bytes: HEADER,
            ..Load::default()
        };
        let side = Side::start(vec![gate], &[peer()], &load, true).unwrap();
        // The other side may not be bound yet, and would never see what is asked now.
        for _ in 0..10 {
            round.recv().unwrap();
        }
        drop(round);
        assert!(sending.try_recv().is_err());
        side.begin();
        sending.recv().unwrap();
        // The task is about to have asked when it shall ask no more.
        side.ask_no_more();
        std::thread::scope(|scope| {
            scope.spawn(|| release.send(()).unwrap());
            side.drain();
        });
        assert_eq!(side.counts().answers.load(Ordering::Relaxed), 1);
        side.end();
        assert_eq!(side.failure(), None);
    }
}
