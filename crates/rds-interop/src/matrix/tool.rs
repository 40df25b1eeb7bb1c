//! Cases in which the program `rds` is the near side, as its users run it, and the far agent the other.

use super::case::{Pair, Side};
use super::remote::{SHORT, millis, order};
use super::traffic::join;
use crate::step::{Reply, Step};
use crate::stress::Part;
use anyhow::{Context, Result, bail, ensure};
use rds_lite::stress::Load;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a load lasts, without and with memory, which only the later requests move; twice as long, and so on,
/// where the machine is too slow for that.
const TIME: Duration = Duration::from_millis(700);
const MEMORY_TIME: Duration = Duration::from_millis(1000);

/// Requests under way, so that some are when the first memory is lent.
const DEPTH: u16 = 4;

/// Bytes of an RDMA operation.
const MEMORY: usize = 64 << 10;

/// How long a ping may take: its connection has to be made first.
const PING: u64 = 15;

/// How often it is looked whether a program has ended.
const GLANCE: Duration = Duration::from_millis(10);

/// A run of the program. Dropping it ends it.
struct Tool {
    child: Child,
    line: String,
}

impl Tool {
    fn start(program: &Path, line: String) -> Result<Self> {
        let child = Command::new(program)
            .args(line.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, line })
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// The last line of its output, when it has ended well, and in time.
    fn finish(mut self, until: Instant) -> Result<String> {
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > until => bail!("`rds {}` does not end", self.line),
                None => thread::sleep(GLANCE),
            }
        };
        let read = |pipe: Option<&mut dyn std::io::Read>| -> Result<String> {
            let mut text = String::new();
            pipe.context("no pipe")?.read_to_string(&mut text)?;
            Ok(text)
        };
        let said = read(self.child.stdout.as_mut().map(|pipe| pipe as _))?;
        let error = read(self.child.stderr.as_mut().map(|pipe| pipe as _))?;
        let last = |text: &str| text.lines().last().unwrap_or_default().to_owned();
        ensure!(
            status.success(),
            "`rds {}`: {status}: {} {}",
            self.line,
            last(&said),
            last(&error)
        );
        Ok(last(&said))
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // One that has ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What these cases know beside two agents.
struct Bench<'a, 'p> {
    pair: &'a Pair<'p>,
    program: &'a Path,
    near: IpAddr,
    far: Side<'p>,
    /// Whether the program begins.
    leads: bool,
}

/// What both sides say of a load.
struct Summaries {
    near: Value,
    far: Value,
    /// `rds info` has shown the connection meanwhile.
    shown: bool,
}

impl<'a, 'p> Bench<'a, 'p> {
    fn new(pair: &'a Pair<'p>) -> Result<Self> {
        let leads = pair.near == pair.from.ip;
        let (near, far) = if leads {
            (pair.from, pair.to)
        } else {
            (pair.to, pair.from)
        };
        // The program gets the near agent's address, so that must have no sockets there.
        order(near.peer, &Step::Restart)?;
        Ok(Self {
            pair,
            program: pair.tool.context("no program")?,
            near: near.ip,
            far,
            leads,
        })
    }

    fn start(&self, line: String) -> Result<Tool> {
        Tool::start(self.program, line)
    }

    /// Has both sides carry a load that is long enough to do all of these, and returns how much of
    /// each either side has done.
    fn carry_until(&self, rdma_bytes: usize, names: &[&str]) -> Result<Vec<(f64, f64)>> {
        let mut load = Load {
            depth: DEPTH,
            verify: true,
            rdma_bytes,
            ..Load::default()
        };
        let mut time = if rdma_bytes == 0 { TIME } else { MEMORY_TIME };
        loop {
            load.time = Some(time);
            let summaries = self.carry(&load)?;
            let figures = names.iter().map(|name| summaries.figures(name));
            let figures: Vec<(f64, f64)> = figures.collect::<Result<_>>()?;
            let enough = |&(near, far): &(f64, f64)| near > 0.0 && far > 0.0;
            if summaries.shown && figures.iter().all(enough) {
                return Ok(figures);
            }
            let shown = summaries.shown;
            self.pair.check().with_context(|| {
                format!("in {time:?} {names:?} were {figures:?}, connection shown: {shown}")
            })?;
            time *= 2;
        }
    }

    /// Has both sides carry a load, and asks the program for its state meanwhile.
    fn carry(&self, load: &Load) -> Result<Summaries> {
        let (pair, near, far) = (self.pair, self.near, self.far.ip);
        let port = pair.ports.next(near).port();
        let _socket = pair.ports.next(near);
        let serves = pair.ports.next(near);
        let mut line = format!(
            "stress --fabric {} -r {near} -p {port} -z --format json --info {serves}",
            pair.transport
        );
        let lead = if self.leads {
            let time = load.time.unwrap_or_default().as_secs_f64();
            let (depth, memory) = (load.depth, load.rdma_bytes);
            line += &format!(" -s {far} --connect-retries 5 -v -T {time} -d {depth} -D {memory}");
            None
        } else {
            Some((near, load.clone()))
        };
        thread::scope(|scope| {
            let far_part = scope.spawn(|| self.far_part(port, lead));
            let mut tool = self.start(line)?;
            let shown = self.is_shown(&mut tool, serves)?;
            let near = tool.finish(pair.until);
            let far = join(far_part)?;
            match (near, far) {
                (Ok(near), Ok(far)) => {
                    let near = serde_json::from_str(&near).context("no summary")?;
                    Ok(Summaries { near, far, shown })
                }
                (Err(near), Ok(_)) => Err(near),
                (Ok(_), Err(far)) => Err(far),
                (Err(near), Err(far)) => Err(near.context(format!("{far:#}"))),
            }
        })
    }

    /// Has the far agent take part in a load. Returns its summary.
    fn far_part(&self, port: u16, lead: Option<(IpAddr, Load)>) -> Result<Value> {
        let left = self.pair.check()?;
        let part = Part {
            own: self.far.ip,
            port,
            lead,
        };
        let within = millis(left.min(SHORT));
        match self.far.peer.call(&Step::Stress { part, within }, left)? {
            Reply::Stressed(summary) => Ok(serde_json::from_str(&summary)?),
            other => bail!("a load was carried, and the answer is {other:?}"),
        }
    }

    /// Whether `rds info` says, before a run of the program has ended, that it is connected to the far side.
    fn is_shown(&self, tool: &mut Tool, serves: SocketAddr) -> Result<bool> {
        let far = self.far.ip.to_string();
        while !tool.has_ended()? && Instant::now() < self.pair.until {
            let info = self.start(format!("info --format json {serves}"))?;
            // Before its sockets are bound nobody answers.
            if let Ok(line) = info.finish(self.pair.until) {
                let host: Value = serde_json::from_str(&line).context("no state")?;
                let connections = host["connections"].as_array().into_iter().flatten();
                let mut up = connections.filter(|conn| conn["up"] == true);
                if up.any(|conn| conn["remote"] == far) {
                    return Ok(true);
                }
            }
            thread::sleep(GLANCE);
        }
        Ok(false)
    }
}

impl Summaries {
    /// What both sides say of this, of a run in which all was right.
    fn figures(&self, name: &str) -> Result<(f64, f64)> {
        let figure = |summary: &Value| {
            let right = summary["verified"] == true && summary["failures"] == Value::Array(vec![]);
            let figure = summary[name].as_f64().filter(|_| right);
            figure.with_context(|| format!("{name}: {summary}"))
        };
        Ok((figure(&self.near)?, figure(&self.far)?))
    }
}

/// One ping, and one by `rds info`: each run has to make its connection first.
pub(super) fn ping(pair: &Pair<'_>) -> Result<String> {
    let bench = Bench::new(pair)?;
    let (near, far) = (bench.near, bench.far.ip);
    let fabric = pair.transport;
    let line = format!("ping --fabric {fabric} -c 1 -i {PING} -I {near} {far}");
    let last = bench.start(line)?.finish(pair.until)?;
    ensure!(last.ends_with(" usec"), "{last}");
    let line = format!("info --fabric {fabric} --source {near} --wait {PING} --format json {far}");
    let host: Value = serde_json::from_str(&bench.start(line)?.finish(pair.until)?)?;
    let connection = &host["connections"][0];
    let up = connection["up"] == true && connection["remote"] == far.to_string();
    ensure!(up, "{connection}");
    let version = connection["version"].as_str().unwrap_or_default();
    Ok(format!("{}, version {version}", last.trim()))
}

/// Datagrams both ways, all verified.
pub(super) fn stress(pair: &Pair<'_>) -> Result<String> {
    let figures = Bench::new(pair)?.carry_until(0, &["rx/s"])?;
    Ok(figures
        .iter()
        .map(|figure| shown("rx/s", *figure))
        .collect())
}

/// Reads and writes of the other's memory both ways, by turns, all verified.
pub(super) fn stress_rdma(pair: &Pair<'_>) -> Result<String> {
    let names = ["mbi K/s", "mbo K/s"];
    let figures = Bench::new(pair)?.carry_until(MEMORY, &names)?;
    let figures = names.iter().zip(figures);
    let shown: Vec<String> = figures.map(|(name, figure)| shown(name, figure)).collect();
    Ok(shown.join(", "))
}

fn shown(name: &str, (near, far): (f64, f64)) -> String {
    format!("{name} {near:.0} here and {far:.0} there")
}
