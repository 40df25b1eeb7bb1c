//! Cases with memory: `to` lends it, `from` reads and writes.

use super::case::Pair;
use super::faults;
use super::remote::{RemoteSocket, SHORT, millis};
use super::traffic::{mixed_messages, transfer};
use crate::load::{content, fingerprint};
use crate::stack::End;
use crate::step::{NetworkFault, Reply, Step, Transfer};
use anyhow::{Result, bail};
use std::time::Duration;

/// Around a page, and the most that one operation moves.
const LENGTHS: &[usize] = &[1, 7, 4095, 4096, 4097, 65_536, 1 << 20];

/// Where in a page the kernel's memory begins.
const SKEW: usize = 123;

/// Operations on one loan.
const USES: u64 = 24;

/// Datagrams each way after a connection has been lost.
const AFTERWARDS: u64 = 200;

/// How often an operation may be tried whose connection ends under it.
const ATTEMPTS: u32 = 10;

/// How long an operation may take that fails.
const FAILURE: Duration = Duration::from_secs(60);

/// Two sockets, and what the memory of one contains.
struct Loan<'a, 'p> {
    pair: &'a Pair<'p>,
    user: RemoteSocket<'p>,
    owner: RemoteSocket<'p>,
    cookie: u64,
    content: Vec<u8>,
    /// The next operation's name.
    token: u64,
}

impl<'a, 'p> Loan<'a, 'p> {
    fn new(pair: &'a Pair<'p>, len: usize, use_once: bool) -> Result<Self> {
        let user = RemoteSocket::bind(pair, pair.from)?;
        let owner = RemoteSocket::bind(pair, pair.to)?;
        let mut loan = Self {
            pair,
            user,
            owner,
            cookie: 0,
            content: Vec::new(),
            token: 1000,
        };
        // The kernel registers memory through a connection: there must be one.
        let first = mixed_messages(19, 1);
        transfer(&pair.back(), &loan.owner, &loan.user, &first)?;
        loan.lend(len, use_once)?;
        Ok(loan)
    }

    /// Lends other memory.
    fn lend(&mut self, len: usize, use_once: bool) -> Result<()> {
        // Of any two sockets the content is another's.
        let seed = (u64::from(self.owner.addr.port()) << 32) + len as u64;
        let lend = Step::Lend {
            socket: self.owner.name,
            to: self.user.addr,
            seed,
            len,
            skew: SKEW,
            use_once,
        };
        let Reply::Lent(cookie) = self.owner.peer.call(&lend, SHORT)? else {
            bail!("memory was lent, and the answer is another");
        };
        let within = self.pair.check()?;
        let borrow = Step::Borrow {
            socket: self.user.name,
            seed,
            within: millis(within),
        };
        match self.user.peer.call(&borrow, within)? {
            Reply::Lent(got) if got == cookie => {}
            other => bail!("cookie {cookie:#x} was sent, and there came {other:?}"),
        }
        self.cookie = cookie;
        self.content = content(seed, len);
        Ok(())
    }

    /// Has the user do an operation; says how it ended, and what it has read or written.
    fn operate(
        &mut self,
        offset: usize,
        len: usize,
        pieces: usize,
        write: bool,
        within: Duration,
    ) -> Result<(End, u64)> {
        self.token += 1;
        let step = Step::Transfer {
            socket: self.user.name,
            to: self.owner.addr,
            transfer: Transfer {
                cookie: self.cookie,
                offset: offset as u64,
                len,
                pieces,
                write: write.then_some(self.token),
                token: self.token,
            },
            within: millis(within),
        };
        match self.user.peer.call(&step, within)? {
            Reply::Ended(end, local) => Ok((end, local)),
            other => bail!("an operation was done, and the answer is {other:?}"),
        }
    }

    /// An operation that must succeed, and whose message must come.
    fn succeed(&mut self, offset: usize, len: usize, pieces: usize, write: bool) -> Result<()> {
        match self.attempt(offset, len, pieces, write)? {
            End::Success => Ok(()),
            end => bail!(
                "a {} of {len} bytes at {offset} ended with {end:?}",
                kind(write)
            ),
        }
    }

    /// An operation. If it succeeds, its message must come.
    fn attempt(&mut self, offset: usize, len: usize, pieces: usize, write: bool) -> Result<End> {
        let left = self.pair.check()?;
        let (end, local) = self.operate(offset, len, pieces, write, left)?;
        if end != End::Success {
            return Ok(end);
        }
        let part = &mut self.content[offset..offset + len];
        if write {
            part.copy_from_slice(&content(self.token, len));
        }
        if local != fingerprint(part) {
            bail!("a {} of {len} bytes at {offset} moved others", kind(write));
        }
        let within = self.pair.check()?;
        let hear = Step::Hear {
            socket: self.owner.name,
            token: self.token,
            within: millis(within),
        };
        self.owner.peer.call(&hear, within)?;
        Ok(End::Success)
    }

    /// Ends the loan, and says whether it was for the owner to do so.
    fn recall(&self) -> Result<bool> {
        let step = Step::Recall {
            socket: self.owner.name,
            cookie: self.cookie,
        };
        match self.owner.peer.call(&step, SHORT)? {
            Reply::Recalled(was_lent) => Ok(was_lent),
            other => bail!("a loan was ended, and the answer is {other:?}"),
        }
    }

    /// What the owner has must be what was made of it.
    fn verify(&self) -> Result<()> {
        let step = Step::Look {
            socket: self.owner.name,
            cookie: self.cookie,
        };
        match self.owner.peer.call(&step, SHORT)? {
            Reply::Content(is) if is == fingerprint(&self.content) => Ok(()),
            Reply::Content(_) => bail!(
                "memory of {} bytes is not as it was left",
                self.content.len()
            ),
            other => bail!("memory was looked at, and the answer is {other:?}"),
        }
    }

    /// Ends the loan, which was not ended by its uses.
    fn finish(&self) -> Result<()> {
        if !self.recall()? {
            bail!("a use has ended a loan for many");
        }
        self.verify()
    }
}

pub(super) fn writes(pair: &Pair<'_>) -> Result<String> {
    lengths(pair, true)
}

pub(super) fn reads(pair: &Pair<'_>) -> Result<String> {
    lengths(pair, false)
}

/// One operation for each length, on memory of just that length.
fn lengths(pair: &Pair<'_>, write: bool) -> Result<String> {
    let mut loan = Loan::new(pair, LENGTHS[0], false)?;
    for (nth, &len) in LENGTHS.iter().enumerate() {
        if nth > 0 {
            loan.lend(len, false)?;
        }
        loan.succeed(0, len, 1, write)?;
        loan.finish()?;
    }
    Ok(format!("{} lengths", LENGTHS.len()))
}

/// Many uses of one loan, at odd places, with several buffers on the user's side.
pub(super) fn any_offset(pair: &Pair<'_>) -> Result<String> {
    let len = 5 * 4096 + 77;
    let mut loan = Loan::new(pair, len, false)?;
    for nth in 0..USES {
        let offset = (nth as usize * 2039) % (len - 1);
        let part = (nth as usize * 1543 % 9000 + 1).min(len - offset);
        loan.succeed(offset, part, nth as usize % 3 + 1, nth % 2 == 0)?;
    }
    loan.finish()?;
    Ok(format!("{USES} uses of one cookie"))
}

/// A loan for one use is over when its user has said so.
pub(super) fn use_once(pair: &Pair<'_>) -> Result<String> {
    for (len, write) in [(4097, true), (65_536, false)] {
        let mut loan = Loan::new(pair, len, true)?;
        loan.succeed(0, len, 2, write)?;
        if loan.recall()? {
            bail!("a use has not ended a loan for one");
        }
        loan.verify()?;
    }
    Ok(String::new())
}

/// A cookie that was recalled is refused by the owner's HCA, and changes nothing; then datagrams and loans
/// go on.
pub(super) fn dead_key(pair: &Pair<'_>) -> Result<String> {
    let mut seen = Vec::new();
    for write in [true, false] {
        let mut loan = Loan::new(pair, 8192, false)?;
        loan.succeed(1, 100, 1, true)?;
        loan.finish()?;
        let (end, _) = loan.operate(0, 8192, 1, write, FAILURE.min(pair.check()?))?;
        if end != End::RemoteError {
            bail!("a use of a dead key ended with {end:?}");
        }
        seen.push(if write { "write" } else { "read" });
        loan.verify()?;
        let from = RemoteSocket::bind(pair, pair.from)?;
        let to = RemoteSocket::bind(pair, pair.to)?;
        transfer(pair, &from, &to, &mixed_messages(20, AFTERWARDS))?;
        transfer(&pair.back(), &to, &from, &mixed_messages(21, AFTERWARDS))?;
        let mut next = Loan::new(pair, 5000, false)?;
        next.succeed(10, 4900, 1, write)?;
        next.finish()?;
    }
    Ok(format!(
        "{} refused, datagrams and loans go on",
        seen.join(" and ")
    ))
}

/// The owner begins anew: what it lent is gone, and an operation on it does not succeed.
pub(super) fn owner_restarts(pair: &Pair<'_>) -> Result<String> {
    let mut loan = Loan::new(pair, 8192, false)?;
    loan.succeed(0, 8192, 1, true)?;
    faults::restart(pair.to.peer)?;
    let _answers = RemoteSocket::bind_with(pair.to, loan.owner.addr, None)?;
    let (end, _) = loan.operate(0, 8192, 1, true, FAILURE.min(pair.check()?))?;
    if end == End::Success {
        bail!("memory of a host that has ended was written");
    }
    let mut next = Loan::new(pair, 5000, false)?;
    next.succeed(10, 4900, 1, false)?;
    next.finish()?;
    Ok(format!("ended with {end:?}"))
}

/// Operations of all lengths over a network that loses packets. One whose connection ends under it is
/// never done again by RDS; who has asked for it does it again, on new sockets, since its message may
/// have come all the same.
pub(super) fn over_losses(pair: &Pair<'_>) -> Result<String> {
    let mut dropped = 0;
    faults::suffer(pair, NetworkFault::Loss(10), || {
        for write in [true, false] {
            for &len in LENGTHS {
                dropped += until_done(pair, len, write)?;
            }
        }
        Ok(format!("{} lengths, ", LENGTHS.len()))
    })
    .map(|lengths| format!("{lengths}{dropped} operations dropped"))
}

/// Says how many attempts were dropped.
fn until_done(pair: &Pair<'_>, len: usize, write: bool) -> Result<u32> {
    for dropped in 0..ATTEMPTS {
        let mut loan = Loan::new(pair, len, false)?;
        match loan.attempt(0, len, 1, write)? {
            End::Success => {
                loan.finish()?;
                return Ok(dropped);
            }
            End::Dropped => {}
            end => bail!("a {} of {len} bytes ended with {end:?}", kind(write)),
        }
    }
    bail!(
        "a {} of {len} bytes was dropped {ATTEMPTS} times",
        kind(write)
    )
}

const fn kind(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}
