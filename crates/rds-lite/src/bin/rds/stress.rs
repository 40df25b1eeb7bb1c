//! `rds stress`.

mod control;
mod header;
mod options;
mod report;
mod slots;
mod task;

pub(crate) use options::Options;

use crate::setup::{FabricName, fabric, host, mock_hosts, own_address};
use crate::{Verdict, snapshot};
use anyhow::{Context, Result};
use control::Control;
use mr_core::{Clock, SystemClock};
use options::Load;
use rds_lite::Host;
use report::{Reporter, Totals};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use task::{Counts, Task};

/// How long what is under way has to come to an end.
const DRAIN: Duration = Duration::from_secs(10);

/// All tasks of one side.
struct Side {
    host: Host,
    tasks: Vec<JoinHandle<()>>,
    counts: Arc<Counts>,
}

/// When tasks begin, stop sending, and end.
#[derive(Default)]
struct Signals {
    no_more: AtomicBool,
    end: AtomicBool,
}

pub(crate) fn run(options: Options, out: &mut impl Write) -> Result<Verdict> {
    let has_address = options.receive_address.is_some() || options.send_address.is_some();
    let mut load = options.load()?;
    match fabric(&options.common, has_address)? {
        FabricName::Mock => {
            load.verify = true;
            embedded(&options, &load, out)
        }
        network => match options.send_address {
            Some(peer) => active(&options, &load, network, peer, out),
            None => passive(&options, network, out),
        },
    }
}

/// Both ends in this process.
fn embedded(options: &Options, load: &Load, out: &mut impl Write) -> Result<Verdict> {
    let [(near, one), (far, two)] = mock_hosts(&options.pool, |config| load.configure(config))?;
    if let Some(addr) = options.common.info {
        snapshot::serve(addr, vec![near.clone(), far.clone()])?;
    }
    let signals = Arc::new(Signals::default());
    let sides = [
        Side::start(near, load, options.port, one, two, true, &signals)?,
        Side::start(far, load, options.port, two, one, !load.one_way, &signals)?,
    ];
    let totals = measure(options, load, &sides, out, |_| true)?;
    stop(&signals, &sides);
    report(options, load, &totals, &sides, out)
}

/// The side that names the load and begins.
fn active(
    options: &Options,
    load: &Load,
    network: FabricName,
    peer: IpAddr,
    out: &mut impl Write,
) -> Result<Verdict> {
    load.check_on(network)?;
    let own = own_address(options.receive_address, peer)?;
    let mut control = Control::connect(own, SocketAddr::new(peer, options.port), options)?;
    control.send(load)?;
    let host = host(network, &options.common, &options.pool, own, |config| {
        load.configure(config);
    })?;
    if let Some(addr) = options.common.info {
        snapshot::serve(addr, vec![host.clone()])?;
    }
    let signals = Arc::new(Signals::default());
    let side = [Side::start(
        host,
        load,
        options.port,
        own,
        peer,
        true,
        &signals,
    )?];
    control.send(&"ready")?;
    control.expect("ready")?;
    let totals = measure(options, load, &side, out, |_| true)?;
    signals.no_more.store(true, Ordering::SeqCst);
    control.send(&"no more")?;
    control.expect("no more")?;
    drain(&side);
    control.send(&"end")?;
    control.expect("end")?;
    stop(&signals, &side);
    report(options, load, &totals, &side, out)
}

/// The side that waits for a load.
fn passive(options: &Options, network: FabricName, out: &mut impl Write) -> Result<Verdict> {
    let own = options
        .receive_address
        .context("give -r for this host's address")?;
    let mut control = Control::accept(SocketAddr::new(own, options.port))?;
    let load: Load = control.receive()?;
    load.check()?;
    load.check_on(network)?;
    let host = host(network, &options.common, &options.pool, own, |config| {
        load.configure(config);
    })?;
    if let Some(addr) = options.common.info {
        snapshot::serve(addr, vec![host.clone()])?;
    }
    let signals = Arc::new(Signals::default());
    let peer = control.peer();
    let sends = !load.one_way;
    let side = [Side::start(
        host,
        &load,
        options.port,
        own,
        peer,
        sends,
        &signals,
    )?];
    control.send(&"ready")?;
    control.expect("ready")?;
    let totals = measure(options, &load, &side, out, |wait| !control.has_word(wait))?;
    control.expect("no more")?;
    signals.no_more.store(true, Ordering::SeqCst);
    control.send(&"no more")?;
    drain(&side);
    control.expect("end")?;
    control.send(&"end")?;
    stop(&signals, &side);
    report(options, &load, &totals, &side, out)
}

impl Side {
    fn start(
        host: Host,
        load: &Load,
        port: u16,
        own: IpAddr,
        peer: IpAddr,
        sends: bool,
        signals: &Arc<Signals>,
    ) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let place = |task: u16| {
            port.checked_add(1 + task)
                .context("-p leaves no ports for -t")
        };
        let peers: Vec<SocketAddr> = (0..load.tasks)
            .map(|task| Ok(SocketAddr::new(peer, place(task)?)))
            .collect::<Result<_>>()?;
        let mut sockets = Vec::new();
        for task in 0..load.tasks {
            let addr = SocketAddr::new(own, place(task)?);
            let socket = host.bind(addr);
            sockets.push(socket.with_context(|| format!("cannot bind {addr}"))?);
        }
        let mut tasks = Vec::new();
        for socket in sockets {
            let task = Task::new(socket, &peers, load, sends, Arc::clone(&counts));
            let signals = Arc::clone(signals);
            let thread = std::thread::Builder::new().name("rds-task".into());
            tasks.push(thread.spawn(move || task.run(&signals.no_more, &signals.end))?);
        }
        Ok(Self {
            host,
            tasks,
            counts,
        })
    }
}

/// Prints a line a second for as long as the load shall run and `go_on`, which may wait, says so.
fn measure(
    options: &Options,
    load: &Load,
    sides: &[Side],
    out: &mut impl Write,
    mut go_on: impl FnMut(Duration) -> bool,
) -> Result<Totals> {
    let clock = SystemClock::new();
    let start = clock.now();
    let mut reporter = Reporter::new(options, load, clock.now());
    reporter.begin(out)?;
    let second = Duration::from_secs(1);
    loop {
        let passed = clock.now().since(start);
        let left = load.time.map_or(second, |time| time.saturating_sub(passed));
        let wait = left.min(second);
        let before = clock.now();
        let more = go_on(wait);
        std::thread::sleep(if more {
            wait.saturating_sub(clock.now().since(before))
        } else {
            Duration::ZERO
        });
        let over = !more
            || load
                .time
                .is_some_and(|time| clock.now().since(start) >= time);
        reporter.line(
            clock.now(),
            sides.iter().map(|side| &*side.counts),
            over,
            out,
        )?;
        let failed = sides.iter().any(|side| side.counts.failure().is_some());
        if over || failed {
            return Ok(reporter.totals());
        }
    }
}

/// Waits for the answers to what has been asked.
fn drain(sides: &[Side]) {
    let clock = SystemClock::new();
    let start = clock.now();
    while sides.iter().any(|side| side.counts.outstanding() > 0) && clock.now().since(start) < DRAIN
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn stop(signals: &Signals, sides: &[Side]) {
    signals.no_more.store(true, Ordering::SeqCst);
    drain(sides);
    signals.end.store(true, Ordering::SeqCst);
}

fn report(
    options: &Options,
    load: &Load,
    totals: &Totals,
    sides: &[Side],
    out: &mut impl Write,
) -> Result<Verdict> {
    for side in sides {
        let clock = SystemClock::new();
        let start = clock.now();
        while side.tasks.iter().any(|task| !task.is_finished()) && clock.now().since(start) < DRAIN
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let failures: Vec<String> = sides.iter().filter_map(|side| side.failure()).collect();
    report::end(options, load, totals, sides, &failures, out)?;
    Ok(if failures.is_empty() {
        Verdict::Good
    } else {
        Verdict::Bad
    })
}

impl Side {
    /// What was wrong, if anything was.
    fn failure(&self) -> Option<String> {
        let reissued = self.host.keys_reissued_while_stale();
        if reissued > 0 {
            return Some(format!("{reissued} keys were given out again while stale"));
        }
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
