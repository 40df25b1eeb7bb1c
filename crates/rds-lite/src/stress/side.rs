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
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long what is under way has to come to an end.
const DRAIN: Duration = Duration::from_secs(10);

/// How often it is looked whether something is over.
const GLANCE: Duration = Duration::from_millis(1);

/// When tasks stop to ask, and end.
#[derive(Default)]
struct Signals {
    no_more: AtomicBool,
    end: AtomicBool,
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
    /// Starts a task on each carrier, which answers the tasks at `peers`, and asks them if `asks`.
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
            let run = move || task.run(&signals.no_more, &signals.end);
            side.tasks.push(thread.spawn(run)?);
        }
        Ok(side)
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Has the tasks ask nothing new.
    pub(super) fn ask_no_more(&self) {
        self.signals.no_more.store(true, Ordering::SeqCst);
    }

    /// Waits for the answers to what was asked.
    pub(super) fn drain(&self) {
        wait_until(|| self.counts.outstanding() == 0 || self.counts.failure().is_some());
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
