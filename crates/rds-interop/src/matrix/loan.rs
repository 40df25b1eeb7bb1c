//! Memory that one side has lent to the other.

use super::case::Pair;
use super::remote::{RemoteSocket, SHORT, millis};
use super::traffic::{mixed_messages, transfer};
use crate::load::{content, fingerprint};
use crate::stack::{End, Term};
use crate::step::{Reply, Step, Transfer};
use anyhow::{Result, bail};
use std::time::Duration;

/// Where in a page the kernel's memory begins.
const SKEW: usize = 123;

/// Two sockets, and what the memory of one contains.
pub(super) struct Loan<'a, 'p> {
    pair: &'a Pair<'p>,
    pub(super) user: RemoteSocket<'p>,
    pub(super) owner: RemoteSocket<'p>,
    pub(super) cookie: u64,
    pub(super) content: Vec<u8>,
    /// The next operation's name.
    token: u64,
    /// The longest wait for a cookie or an end.
    patience: Duration,
}

impl<'a, 'p> Loan<'a, 'p> {
    pub(super) fn new(pair: &'a Pair<'p>, len: usize, term: Term) -> Result<Self> {
        let mut loan = Self::to_come(pair, Duration::MAX)?;
        loan.lend(len, term)?;
        Ok(loan)
    }

    /// Sockets and a connection; nothing is lent.
    pub(super) fn to_come(pair: &'a Pair<'p>, patience: Duration) -> Result<Self> {
        let user = RemoteSocket::bind(pair, pair.from)?;
        let owner = RemoteSocket::bind(pair, pair.to)?;
        let loan = Self {
            pair,
            user,
            owner,
            cookie: 0,
            content: Vec::new(),
            token: 1000,
            patience,
        };
        // The kernel registers memory through a connection: there must be one.
        let first = mixed_messages(19, 1);
        transfer(&pair.back(), &loan.owner, &loan.user, &first)?;
        Ok(loan)
    }

    /// Lends other memory.
    pub(super) fn lend(&mut self, len: usize, term: Term) -> Result<()> {
        if !self.try_to_lend(len, term)? {
            bail!("a cookie has not come");
        }
        Ok(())
    }

    /// Lends other memory. Says whether the cookie has come.
    pub(super) fn try_to_lend(&mut self, len: usize, term: Term) -> Result<bool> {
        // Of any two sockets the content is another's.
        let seed = (u64::from(self.owner.addr.port()) << 32) + len as u64;
        let lend = Step::Lend {
            socket: self.owner.name,
            to: self.user.addr,
            seed,
            len,
            skew: SKEW,
            term,
        };
        let Reply::Lent(cookie) = self.owner.peer.call(&lend, SHORT)? else {
            bail!("memory was lent, and the answer is another");
        };
        let within = self.patience.min(self.pair.check()?);
        let borrow = Step::Borrow {
            socket: self.user.name,
            seed,
            within: millis(within),
        };
        match self.user.peer.call(&borrow, within)? {
            Reply::Lent(got) if got == cookie => {}
            Reply::Nothing => return Ok(false),
            other => bail!("cookie {cookie:#x} was sent, and there came {other:?}"),
        }
        self.cookie = cookie;
        self.content = content(seed, len);
        Ok(true)
    }

    /// Has the user do an operation; says how it ended, and what it has read or written.
    pub(super) fn operate(
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
    pub(super) fn succeed(
        &mut self,
        offset: usize,
        len: usize,
        pieces: usize,
        write: bool,
    ) -> Result<()> {
        match self.attempt(offset, len, pieces, write)? {
            End::Success => Ok(()),
            end => bail!(
                "a {} of {len} bytes at {offset} ended with {end:?}",
                kind(write)
            ),
        }
    }

    /// An operation. If it succeeds, its message must come.
    pub(super) fn attempt(
        &mut self,
        offset: usize,
        len: usize,
        pieces: usize,
        write: bool,
    ) -> Result<End> {
        let within = self.patience.min(self.pair.check()?);
        let (end, local) = self.operate(offset, len, pieces, write, within)?;
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
        match self.owner.peer.call(&hear, within)? {
            Reply::Done => Ok(End::Success),
            other => bail!("a message was to come, and the answer is {other:?}"),
        }
    }

    /// Ends the loan, and says whether it was for the owner to do so.
    pub(super) fn recall(&self) -> Result<bool> {
        let step = Step::Recall {
            socket: self.owner.name,
            cookie: self.cookie,
        };
        match self.owner.peer.call(&step, SHORT)? {
            Reply::Recalled(was_lent) => Ok(was_lent),
            other => bail!("a loan was ended, and the answer is {other:?}"),
        }
    }

    /// The fingerprint of what is in memory that was recalled.
    pub(super) fn look(&self) -> Result<u64> {
        let step = Step::Look {
            socket: self.owner.name,
            cookie: self.cookie,
        };
        match self.owner.peer.call(&step, SHORT)? {
            Reply::Content(is) => Ok(is),
            other => bail!("memory was looked at, and the answer is {other:?}"),
        }
    }

    /// What the owner has must be what was made of it.
    pub(super) fn verify(&self) -> Result<()> {
        if self.look()? != fingerprint(&self.content) {
            bail!(
                "memory of {} bytes is not as it was left",
                self.content.len()
            );
        }
        Ok(())
    }

    /// Ends the loan, which was not ended by its uses.
    pub(super) fn finish(&self) -> Result<()> {
        if !self.recall()? {
            bail!("a use has ended a loan for many");
        }
        self.verify()
    }
}

pub(super) const fn kind(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}
