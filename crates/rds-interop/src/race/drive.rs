//! Has the contenders take turns.

use super::agent::{Agent, Order, Outcome};
use super::modules::Modules;
use super::report::{Entry, Report, Sample};
use super::{Contender, Load, ask};
use anyhow::{Context, Result, bail};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Ports of seats: each turn has new ones, so that nothing of the turn before can reach it.
const FIRST_PORT: u16 = 5000;

/// What a turn may take beside its time: connecting, warming up, coming to an end.
const AROUND: Duration = Duration::from_secs(20);

/// What a race needs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The agent on the other machine, whose RDS has the same address.
    pub agent: SocketAddr,
    /// The address of RDS on this machine.
    pub address: IpAddr,
    /// Rounds, in each of which everybody has a turn with each load.
    pub rounds: u32,
    /// The time of a turn with one load.
    pub slice: Duration,
    /// When this time is over no further turn begins, once everybody has had the first.
    pub within: Duration,
    /// Who takes part.
    pub contenders: Vec<Contender>,
}

struct Track<'a> {
    setup: &'a Setup,
    agent: Agent,
    modules: Modules,
    port: u16,
}

/// Runs a race; `tell` is called after each turn with its round, who had it and what came of it.
///
/// Who fails once takes no further part, and the report says why.
///
/// # Errors
///
/// The agent is not there, or the kernel's modules cannot be loaded or removed.
pub fn run(setup: &Setup, mut tell: impl FnMut(u32, &Entry)) -> Result<Report> {
    let start = Instant::now();
    let mut track = Track {
        setup,
        agent: Agent::reach(setup.agent)?,
        modules: Modules::default(),
        port: FIRST_PORT,
    };
    let mut report = Report::default();
    for contender in &setup.contenders {
        let entries = contender.loads.iter();
        report
            .entries
            .extend(entries.map(|&load| Entry::new(contender.clone(), load)));
    }
    let count = report.entries.len();
    for round in 1..=setup.rounds {
        for turn in 0..count {
            if round > 1 && start.elapsed() >= setup.within {
                break;
            }
            // There and back, so that nobody always follows the same one, and modules change seldom.
            let turn = if round % 2 == 1 {
                turn
            } else {
                count - 1 - turn
            };
            let Some(entry) = report.entries.get_mut(turn) else {
                continue;
            };
            if entry.failure.is_some() {
                continue;
            }
            track.prepare(&entry.contender)?;
            match track.turn(&entry.contender, entry.load) {
                Ok(sample) => entry.samples.push((round, sample)),
                Err(error) => entry.failure = Some(format!("{error:#}")),
            }
            tell(round, entry);
            track.leave()?;
        }
    }
    report.took = start.elapsed();
    Ok(report)
}

impl Track<'_> {
    fn prepare(&mut self, contender: &Contender) -> Result<()> {
        let [here, there] = contender.kernels();
        self.modules.set(here)?;
        self.agent.call(&Order::Kernel(there))
    }

    fn turn(&mut self, contender: &Contender, load: Load) -> Result<Sample> {
        self.port = self.port.checked_add(1).unwrap_or(FIRST_PORT);
        let to = SocketAddr::new(self.setup.agent.ip(), self.port);
        let sit = Order::Sit(contender.answering(), to, load);
        self.agent.call(&sit)?;
        let addr = SocketAddr::new(self.setup.address, self.port);
        let mut seat = contender.asker.sit(addr, load)?;
        let within = u64::try_from((self.setup.slice + AROUND).as_millis())?;
        self.agent.begin(&Order::Answer(within))?;
        let asked = ask(&mut *seat, to, load, self.setup.slice);
        // Its answer has to be taken whatever has happened here.
        let answered = self.agent.end();
        let asked = asked.with_context(|| match &answered {
            Err(error) => format!("and {error:#}"),
            Ok(_) => "the asker".to_owned(),
        })?;
        match answered? {
            Outcome::Answered(answered) => Ok(Sample { asked, answered }),
            other => bail!("requests were answered, and the agent says {other:?}"),
        }
    }

    /// Sees to it that the next one finds an empty place.
    fn leave(&mut self) -> Result<()> {
        self.agent.call(&Order::Leave)
    }
}
