//! What a connection costs on this machine's device: frames in batches of several lengths, and RDMA
//! writes whose bytes are copied through registered memory, or whose buffers are registered.
//!
//! Both ends are in this process. `MR_VERBS_DEVICE` names the device.

use mr_core::{Access, Pool};
use mr_policies::UseOnce;
use mr_verbs::cm::{
    Connection, ConnectionConfig, Dial, Event, Flags, Listener, Poller, RemoteMemory, Waker, dial,
};
use mr_verbs::{Device, Domain, RegistrationBackend};
use std::io::{Write, stdout};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Nothing here takes as long.
const BOUND: Duration = Duration::from_secs(30);

/// Runs of which the median counts.
const RUNS: usize = 9;

fn main() -> Outcome<()> {
    let device = match std::env::var("MR_VERBS_DEVICE") {
        Ok(name) => Device::open(&name)?,
        Err(_) => Device::open_first()?,
    };
    let [.., 0xff, 0xff, a, b, c, d] = device.gid()?.bytes else {
        return Err("the device has no IPv4 address".into());
    };
    let domain = Domain::new(&device)?;
    let ip = Ipv4Addr::new(a, b, c, d);
    frames(&domain, ip)?;
    writes(&domain, ip)
}

/// One end.
struct End {
    connection: Connection,
    poller: Poller,
}

fn connect(domain: &Arc<Domain>, ip: Ipv4Addr, config: &ConnectionConfig) -> Outcome<(End, End)> {
    let listener = Listener::bind(domain, SocketAddrV4::new(ip, 0), 1)?;
    let wanted = Dial {
        local: ip,
        remote: listener.local_addr(),
        private_data: b"",
        timeout: BOUND,
    };
    let cancel = Waker::new()?;
    thread::scope(|scope| {
        let dialled = scope.spawn(|| dial(domain, &wanted, config, &cancel));
        let request = listener.wait(BOUND)?.ok_or("nobody dials")?;
        let (connection, poller) = request.accept(config, b"")?;
        let far = End { connection, poller };
        let dialled = dialled.join().map_err(|_| "the dial panicked")??;
        let (connection, poller) = (dialled.connection, dialled.poller);
        Ok((End { connection, poller }, far))
    })
}

impl End {
    /// Polls until so many work requests have ended or frames have come.
    fn await_count(&mut self, count: usize) -> Outcome<()> {
        let (mut seen, mut over) = (0, None);
        while seen < count {
            self.poller.poll(usize::MAX, |event| match event {
                Event::Ended(_) | Event::Frame(_) => seen += 1,
                Event::Over(why) => over = Some(why),
                _ => {}
            });
            if let Some(over) = over {
                return Err(over.to_string().into());
            }
            if seen < count && !self.poller.wait(BOUND) {
                return Err("it took too long".into());
            }
        }
        Ok(())
    }
}

/// The median of several runs, in microseconds.
fn median(mut run: impl FnMut() -> Outcome<Duration>) -> Outcome<f64> {
    let mut times = (0..RUNS).map(|_| run()).collect::<Outcome<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times[RUNS / 2].as_secs_f64() * 1e6)
}

fn frames(domain: &Arc<Domain>, ip: Ipv4Addr) -> Outcome<()> {
    const FRAMES: usize = 128;
    let (mut near, mut far) = connect(domain, ip, &ConnectionConfig::default())?;
    writeln!(
        stdout(),
        "frames of 4096 bytes:\n{:>8} {:>10}",
        "batch",
        "µs each"
    )?;
    for batch in [1, 4, 16, 64] {
        let each = median(|| {
            let started = Instant::now();
            for first in (0..FRAMES).step_by(batch) {
                let mut chain = near.connection.batch();
                for id in first..first + batch {
                    let flags = if id == FRAMES - 1 {
                        Flags::SIGNALLED | Flags::SOLICITED
                    } else {
                        Flags::SOLICITED
                    };
                    chain.send(id as u64, &[0; 48], &[1; 4096], flags)?;
                }
                chain.post();
            }
            far.await_count(FRAMES)?;
            near.await_count(FRAMES)?;
            far.connection.repost(FRAMES as u32);
            Ok(started.elapsed() / FRAMES as u32)
        })?;
        writeln!(stdout(), "{batch:>8} {each:>10.1}")?;
    }
    Ok(())
}

fn writes(domain: &Arc<Domain>, ip: Ipv4Addr) -> Outcome<()> {
    const WRITES: usize = 32;
    const SIZES: [usize; 7] = [
        512,
        4 << 10,
        16 << 10,
        64 << 10,
        128 << 10,
        256 << 10,
        1 << 20,
    ];
    let mut copying = ConnectionConfig::default();
    copying.staged_at_most = usize::MAX;
    copying.staging_bytes = 4 << 20;
    let mut registering = copying;
    registering.staged_at_most = 0;
    let (mut copying, _copied) = connect(domain, ip, &copying)?;
    let (mut registering, _registered) = connect(domain, ip, &registering)?;

    let pool = Pool::builder(RegistrationBackend::zero_based(domain), UseOnce).build()?;
    let lease = pool.lease(vec![0; 1 << 20], Access::REMOTE_WRITE)?;
    let target = RemoteMemory {
        addr: lease.remote_addr(),
        key: lease.remote_key(),
    };
    writeln!(
        stdout(),
        "RDMA writes, one after the other:\n{:>8} {:>10} {:>14}",
        "bytes",
        "µs, copied",
        "µs, registered"
    )?;
    for size in SIZES {
        let mut buffers = vec![vec![1; size]];
        let mut each = |end: &mut End| {
            median(|| {
                let started = Instant::now();
                for id in 0..WRITES as u64 {
                    let local = std::mem::take(&mut buffers);
                    let mut batch = end.connection.batch();
                    batch.write(id, local, target, Flags::SIGNALLED)?;
                    batch.post();
                    let mut back = None;
                    while back.is_none() {
                        end.poller.poll(usize::MAX, |event| {
                            if let Event::Ended(ended) = event {
                                back = Some(ended.local);
                            }
                        });
                        if back.is_none() && !end.poller.wait(BOUND) {
                            return Err("it took too long".into());
                        }
                    }
                    buffers = back.unwrap_or_default();
                }
                Ok(started.elapsed() / WRITES as u32)
            })
        };
        let (copied, registered) = (each(&mut copying)?, each(&mut registering)?);
        writeln!(stdout(), "{size:>8} {copied:>10.0} {registered:>14.0}")?;
    }
    lease.invalidate()?;
    Ok(())
}
