//! Many operations at a time: beside datagrams, and while hosts and connections fail under them.

use super::case::Pair;
use super::faults::{self, FLOW};
use super::loan::Loan;
use super::rdma::{FAILURE, goes_on};
use super::remote::{RemoteSocket, SHORT, millis, order};
use super::traffic::{both, join, mixed_messages};
use crate::load::{Heard, Stream, Streamed};
use crate::stack::{End, Term};
use crate::step::{Reply, Step};
use anyhow::{Context, Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// Operations at the same time, and parts of the memory they are on.
const DEPTH: u64 = 8;
const PARTS: u64 = 16;

/// Streams each way beside each other; operations of each, and datagrams each way beside them.
const STREAMS: usize = 3;
const OPERATIONS: u64 = 80;
const DATAGRAMS: u64 = 500;

/// Bytes of an operation, alone and beside others.
const ALONE: usize = 32 << 10;
const BESIDE: usize = 9000;

/// More operations than there is time for.
const ENDLESS: u64 = 1 << 30;

/// More than are done before an outage.
const OVER_OUTAGE: u64 = 600;

/// How long nothing leaves a machine.
const OUTAGE: Duration = Duration::from_secs(3);

/// How often a connection is cut while datagrams flow.
const CUTS: u32 = 3;

/// How often it is cut until operations fail, at most.
const MOST_CUTS: u32 = 10;

/// Datagrams each way meanwhile, and afterwards.
const OVER_CUTS: u64 = 1200;
const AFTER_CUTS: u64 = 200;

/// Operations on a loan.
struct Flow<'a, 'p> {
    pair: &'a Pair<'p>,
    loan: Loan<'a, 'p>,
    stream: Stream,
}

impl<'a, 'p> Flow<'a, 'p> {
    fn new(pair: &'a Pair<'p>, part: usize, ragged: bool, count: u64) -> Result<Self> {
        let mut stream = Stream {
            cookie: 0,
            parts: PARTS,
            part,
            ragged,
            count,
            depth: DEPTH,
            first: 0,
        };
        let loan = Loan::new(pair, stream.len(), Term::Recall)?;
        stream.cookie = loan.cookie;
        // Of any two flows the content is another's.
        stream.first = u64::from(loan.user.addr.port()) << 32;
        Ok(Self { pair, loan, stream })
    }

    /// Has the user do the operations. They end in this time, in one way or another.
    fn run(&self, within: Duration) -> Result<Streamed> {
        let within = within.min(self.pair.check()?);
        let step = Step::Stream {
            socket: self.loan.user.name,
            to: self.loan.owner.addr,
            stream: self.stream,
            within: millis(within),
        };
        match self.loan.user.peer.call(&step, within)? {
            Reply::Streamed(streamed) => Ok(streamed),
            other => bail!("operations were done, and the answer is {other:?}"),
        }
    }

    /// Has a socket of the owner's side take the messages.
    fn follow(&self, socket: &RemoteSocket<'_>) -> Result<Heard> {
        let within = self.pair.check()?;
        let step = Step::Follow {
            socket: socket.name,
            stream: self.stream,
            within: millis(within),
        };
        match socket.peer.call(&step, within)? {
            Reply::Heard(heard) => Ok(heard),
            other => bail!("messages were taken, and the answer is {other:?}"),
        }
    }

    /// All operations, and their messages, while `meanwhile` happens, which can ask whether the operations are
    /// over.
    fn both_sides(
        &self,
        meanwhile: impl FnOnce(&dyn Fn() -> bool) -> Result<()>,
    ) -> Result<(Streamed, Heard)> {
        thread::scope(|scope| {
            let following = scope.spawn(|| self.follow(&self.loan.owner));
            let running = scope.spawn(|| {
                let streamed = self.run(self.pair.left());
                if streamed.is_err() {
                    // Nobody needs to wait for the rest.
                    self.loan.owner.close();
                }
                streamed
            });
            let happened = meanwhile(&|| running.is_finished());
            let streamed = join(running)?;
            let heard = join(following)?;
            happened?;
            let streamed = streamed?;
            Ok((streamed, heard?))
        })
    }

    /// All operations succeed, and all messages come.
    fn succeed(&mut self) -> Result<Streamed> {
        let (streamed, heard) = self.both_sides(|_| Ok(()))?;
        let all = self.stream.count;
        if streamed.succeeded != all || heard.prefix != all || !heard.end {
            bail!("of {all} operations: {streamed:?}, {heard:?}");
        }
        self.stream.apply(all, &mut self.loan.content);
        Ok(streamed)
    }

    /// Takes the memory back from operations whose connection has ended, if the kernel needs that to make
    /// another.
    fn let_go(&self) -> Result<()> {
        if self.pair.kernel_lends() && !self.loan.recall()? {
            bail!("a loan for many was over");
        }
        Ok(())
    }

    /// Nothing of what was begun takes place any more, and new operations do.
    fn expect_settled(self) -> Result<()> {
        if !self.pair.kernel_lends() {
            return self.overwrite();
        }
        let left = self.loan.look()?;
        goes_on(self.pair, true)?;
        if self.loan.look()? != left {
            bail!("memory has changed that was taken back");
        }
        Ok(())
    }

    /// Another socket of the user's host writes all that was written before: what is there afterwards was
    /// written by nobody else, or an operation took place after its end was told.
    fn overwrite(mut self) -> Result<()> {
        // Datagrams both ways need the next connection; operations would end with one that is about to.
        both(self.pair, &mixed_messages(26, AFTER_CUTS))?;
        let end = self.stream.token(self.stream.count);
        self.loan.user = RemoteSocket::bind(self.pair, self.pair.from)?;
        self.stream = Stream {
            count: PARTS,
            first: end.wrapping_add(1),
            ..self.stream
        };
        self.succeed().context("afterwards")?;
        self.loan.finish().context("afterwards")
    }
}

/// Streams of operations of several sockets, and datagrams, all in both directions.
pub(super) fn mixed(pair: &Pair<'_>) -> Result<String> {
    let back = pair.back();
    let mut flows = Vec::new();
    for pair in [pair, &back].repeat(STREAMS) {
        flows.push(Flow::new(pair, BESIDE, true, OPERATIONS)?);
    }
    thread::scope(|scope| {
        let operating: Vec<_> = flows
            .iter_mut()
            .map(|flow| scope.spawn(|| flow.succeed()))
            .collect();
        let datagrams = both(pair, &mixed_messages(22, DATAGRAMS));
        for operating in operating {
            join(operating)??;
        }
        datagrams.map(drop)
    })?;
    for flow in flows {
        flow.loan.finish()?;
    }
    let operations = STREAMS as u64 * OPERATIONS;
    Ok(format!(
        "{operations} operations, {DATAGRAMS} datagrams each way"
    ))
}

/// The user's host begins anew under operations. None of them takes place afterwards.
pub(super) fn user_restarts(pair: &Pair<'_>) -> Result<String> {
    let flow = Flow::new(pair, ALONE, false, ENDLESS)?;
    let (streamed, heard) = thread::scope(|scope| {
        let running = scope.spawn(|| flow.run(pair.left()));
        let following = scope.spawn(|| flow.follow(&flow.loan.owner));
        thread::sleep(FLOW);
        let restarted = faults::restart(pair.from.peer);
        let streamed = join(running)?;
        restarted?;
        flow.let_go()?;
        // The messages end with that of the new host.
        let last = RemoteSocket::bind(pair, pair.from)?;
        let end = Stream {
            count: 0,
            first: flow.stream.token(ENDLESS),
            ..flow.stream
        };
        let step = Step::Stream {
            socket: last.name,
            to: flow.loan.owner.addr,
            stream: end,
            within: millis(pair.check()?),
        };
        pair.from.peer.call(&step, pair.check()?)?;
        Ok::<_, anyhow::Error>((streamed?, join(following)??))
    })?;
    if streamed.succeeded == 0 || streamed.refused + streamed.dropped > 0 {
        bail!("before the restart: {streamed:?}");
    }
    let gaps = heard.prefix != heard.messages;
    if !heard.end || gaps || heard.messages < streamed.succeeded {
        bail!("before the restart {streamed:?}, and there came {heard:?}");
    }
    flow.expect_settled()?;
    Ok(format!(
        "{} of {} before, all else afterwards",
        heard.messages, streamed.begun
    ))
}

/// The owner's host begins anew under operations: they end, none succeeds with the new host, and no message
/// of them comes to it.
pub(super) fn owner_restarts(pair: &Pair<'_>) -> Result<String> {
    let flow = Flow::new(pair, ALONE, false, ENDLESS)?;
    let (streamed, heard, took) = thread::scope(|scope| {
        let running = scope.spawn(|| flow.run(pair.left()));
        let following = scope.spawn(|| flow.follow(&flow.loan.owner));
        thread::sleep(FLOW);
        faults::restart(pair.to.peer)?;
        let start = Instant::now();
        let before = join(following)??;
        let new = RemoteSocket::bind_with(pair.to, flow.loan.owner.addr, None)?;
        let streamed = join(running)??;
        let took = start.elapsed();
        let after = flow.follow(&new)?;
        if after.messages > 0 || !after.end {
            bail!("{streamed:?}, and to the new host there came {after:?}");
        }
        Ok((streamed, before, took))
    })?;
    let failed = streamed.refused + streamed.dropped;
    if streamed.succeeded == 0 || failed == 0 || !streamed.is_over() {
        bail!("{streamed:?}");
    }
    if heard.prefix != heard.messages {
        bail!("{streamed:?}, and there came {heard:?}");
    }
    if took > FAILURE {
        bail!("operations ended {} s after the restart", took.as_secs());
    }
    goes_on(pair, true)?;
    Ok(format!("{}, {:.1} s", ends(&streamed), took.as_secs_f64()))
}

/// The connection ends under operations, since somebody else's is refused.
pub(super) fn cut(pair: &Pair<'_>) -> Result<String> {
    let mut dead = DeadKey::new(pair)?;
    interrupted(pair, ENDLESS, |is_over| {
        for _ in 0..MOST_CUTS {
            dead.cut()?;
            if pair.kernel_lends() {
                // It is connected again when it has its memory back.
                break;
            }
            // Where all that had been begun was done at that moment, nothing has failed.
            thread::sleep(FLOW);
            if is_over() {
                break;
            }
        }
        Ok(())
    })
}

/// Nothing leaves the user's machine for a while. The connection may outlive it. Not for the kernel as the user:
/// see docs/rds-lite.md.
pub(super) fn outage(pair: &Pair<'_>) -> Result<String> {
    interrupted(pair, OVER_OUTAGE, |_| suffer_outage(pair))
}

/// Something happens to the connection under operations: they end with it, those that have succeeded have said
/// so to the owner, and nothing takes place afterwards.
fn interrupted(
    pair: &Pair<'_>,
    count: u64,
    what: impl FnOnce(&dyn Fn() -> bool) -> Result<()>,
) -> Result<String> {
    let flow = Flow::new(pair, ALONE, false, count)?;
    let start = Instant::now();
    let (streamed, heard) = flow.both_sides(|is_over| {
        thread::sleep(FLOW);
        what(is_over)?;
        flow.let_go()
    })?;
    let took = start.elapsed();
    // The key is alive, if it was not taken back.
    let refused = streamed.refused > 0 && !pair.kernel_lends();
    let went_on = streamed.dropped + streamed.refused == 0 && count == ENDLESS;
    if streamed.succeeded == 0 || went_on || refused {
        bail!("{streamed:?}");
    }
    if took < OUTAGE && count != ENDLESS {
        bail!("all was over before the outage");
    }
    let possible = streamed.succeeded..=streamed.begun;
    if !streamed.is_over() || !heard.end || !possible.contains(&heard.messages) {
        bail!("{streamed:?}, and there came {heard:?}");
    }
    if took > FAILURE {
        bail!("operations ended after {} s", took.as_secs());
    }
    flow.expect_settled()?;
    Ok(ends(&streamed))
}

fn ends(streamed: &Streamed) -> String {
    format!(
        "{} done, {} dropped, {} refused",
        streamed.succeeded, streamed.dropped, streamed.refused
    )
}

/// The connection ends several times while datagrams flow: everything arrives, once and in order. So does what is
/// sent after the last end, which may have come when all had arrived.
pub(super) fn datagrams_cut(pair: &Pair<'_>) -> Result<String> {
    let mut dead = DeadKey::new(pair)?;
    let mut cuts = 0;
    thread::scope(|scope| {
        let flowing = scope.spawn(|| both(pair, &mixed_messages(23, OVER_CUTS)));
        while cuts < CUTS && !flowing.is_finished() {
            thread::sleep(FLOW);
            dead.cut()?;
            cuts += 1;
        }
        join(flowing)?
    })?;
    both(pair, &mixed_messages(25, AFTER_CUTS))?;
    Ok(format!("{OVER_CUTS} messages each way over {cuts} cuts"))
}

/// Nothing leaves the sender's machine for a while, as datagrams flow: everything arrives, once and in order.
pub(super) fn datagrams_outage(pair: &Pair<'_>) -> Result<String> {
    thread::scope(|scope| {
        let flowing = scope.spawn(|| both(pair, &mixed_messages(24, OVER_CUTS)));
        thread::sleep(FLOW);
        let over_before = flowing.is_finished();
        suffer_outage(pair)?;
        join(flowing)??;
        if over_before {
            bail!("all was over before the outage");
        }
        Ok(format!("{OVER_CUTS} messages each way"))
    })
}

fn suffer_outage(pair: &Pair<'_>) -> Result<()> {
    let step = Step::Outage {
        millis: millis(OUTAGE),
    };
    order(pair.from.peer, &step)
}

/// A key that was recalled. Its use ends the connection, for all sockets.
struct DeadKey<'a, 'p>(Loan<'a, 'p>);

impl<'a, 'p> DeadKey<'a, 'p> {
    fn new(pair: &'a Pair<'p>) -> Result<Self> {
        let loan = Loan::new(pair, 64, Term::Recall)?;
        loan.finish()?;
        Ok(Self(loan))
    }

    fn cut(&mut self) -> Result<()> {
        let (end, _) = self.0.operate(0, 64, 1, true, SHORT)?;
        match end {
            // Under load another end of the connection may have been first.
            End::RemoteError | End::Dropped => Ok(()),
            end => bail!("a use of a dead key ended with {end:?}"),
        }
    }
}
