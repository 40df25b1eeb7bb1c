//! Cases with memory: `to` lends it, `from` reads and writes.

use super::case::Pair;
use super::faults;
use super::loan::{Loan, kind};
use super::remote::RemoteSocket;
use super::traffic::{mixed_messages, transfer};
use crate::stack::{End, Term};
use crate::step::NetworkFault;
use anyhow::{Result, bail};
use std::time::Duration;

/// Around a page, and the most that one operation moves.
const LENGTHS: &[usize] = &[1, 7, 4095, 4096, 4097, 65_536, 1 << 20];

/// A short one, some pages, and the longest, where each takes its time.
const OVER_FAULTS: &[usize] = &[7, 4097, 65_536, 1 << 20];

/// Operations on one loan.
const USES: u64 = 24;

/// Datagrams each way after a connection has been lost.
const AFTERWARDS: u64 = 200;

/// How often an operation may be tried whose connection ends under it.
const ATTEMPTS: u32 = 10;

/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_secs(15);

/// How long an operation may take that fails.
pub(super) const FAILURE: Duration = Duration::from_secs(60);

pub(super) fn writes(pair: &Pair<'_>) -> Result<String> {
    lengths(pair, true)
}

pub(super) fn reads(pair: &Pair<'_>) -> Result<String> {
    lengths(pair, false)
}

/// One operation for each length, on memory of just that length.
fn lengths(pair: &Pair<'_>, write: bool) -> Result<String> {
    let mut loan = Loan::new(pair, LENGTHS[0], Term::Recall)?;
    for (nth, &len) in LENGTHS.iter().enumerate() {
        if nth > 0 {
            loan.lend(len, Term::Recall)?;
        }
        loan.succeed(0, len, 1, write)?;
        loan.finish()?;
    }
    Ok(format!("{} lengths", LENGTHS.len()))
}

/// Many uses of one loan, at odd places, with several buffers on the user's side.
pub(super) fn any_offset(pair: &Pair<'_>) -> Result<String> {
    let len = 5 * 4096 + 77;
    let mut loan = Loan::new(pair, len, Term::Recall)?;
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
        let mut loan = Loan::new(pair, len, Term::Use)?;
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
        let mut loan = Loan::new(pair, 8192, Term::Recall)?;
        loan.succeed(1, 100, 1, true)?;
        loan.finish()?;
        let (end, _) = loan.operate(0, 8192, 1, write, FAILURE.min(pair.check()?))?;
        if end != End::RemoteError {
            bail!("a use of a dead key ended with {end:?}");
        }
        seen.push(if write { "write" } else { "read" });
        loan.verify()?;
        goes_on(pair, write)?;
    }
    Ok(format!(
        "{} refused, datagrams and loans go on",
        seen.join(" and ")
    ))
}

/// Datagrams and loans do what they should.
pub(super) fn goes_on(pair: &Pair<'_>, write: bool) -> Result<()> {
    let from = RemoteSocket::bind(pair, pair.from)?;
    let to = RemoteSocket::bind(pair, pair.to)?;
    transfer(pair, &from, &to, &mixed_messages(20, AFTERWARDS))?;
    transfer(&pair.back(), &to, &from, &mixed_messages(21, AFTERWARDS))?;
    let mut next = Loan::new(pair, 5000, Term::Recall)?;
    next.succeed(10, 4900, 1, write)?;
    next.finish()
}

/// A loan for one use whose key dies with it. Messages of rds-lite say that a use is over when the key is dead;
/// the kernel kills it a moment later. From then on any use is refused, and changes nothing; datagrams
/// and loans go on.
pub(super) fn use_kills(pair: &Pair<'_>) -> Result<String> {
    // What the kernel kills while packets of it arrive is done in part. One packet is let in, or it is not.
    let len = if pair.kernel_lends() { 1000 } else { 4097 };
    let mut most = 0;
    for (first, second) in [(true, false), (false, true)] {
        let mut loan = Loan::new(pair, 65_536, Term::UseKills)?;
        loan.succeed(0, 65_536, 2, first)?;
        let mut more = 0;
        loop {
            match loan.attempt(100, len, 1, second)? {
                End::RemoteError => break,
                End::Success => more += 1,
                end => bail!("a second {} ended with {end:?}", kind(second)),
            }
        }
        if more > 0 && !pair.kernel_lends() {
            bail!("{more} more uses of a key that was dead");
        }
        most = most.max(more);
        if loan.recall()? {
            bail!("a use has not ended a loan for one");
        }
        loan.verify()?;
        goes_on(pair, first)?;
    }
    Ok(format!("refused after at most {most} more"))
}

/// The owner begins anew: what it lent is gone, and an operation on it does not succeed.
pub(super) fn owner_restarts(pair: &Pair<'_>) -> Result<String> {
    let mut loan = Loan::new(pair, 8192, Term::Recall)?;
    loan.succeed(0, 8192, 1, true)?;
    faults::restart(pair.to.peer)?;
    let _answers = RemoteSocket::bind_with(pair.to, loan.owner.addr, None)?;
    let (end, _) = loan.operate(0, 8192, 1, true, FAILURE.min(pair.check()?))?;
    if end == End::Success {
        bail!("memory of a host that has ended was written");
    }
    let mut next = Loan::new(pair, 5000, Term::Recall)?;
    next.succeed(10, 4900, 1, false)?;
    next.finish()?;
    Ok(format!("ended with {end:?}"))
}

/// Operations of some lengths over a network that misbehaves. One whose connection ends under it is never done
/// again by RDS, and one that waits for the kernel's next connection waits as long as its loan lasts; who has
/// asked for it does it again, on new sockets, since its message may have come all the same.
pub(super) fn over_faults(pair: &Pair<'_>, fault: NetworkFault) -> Result<String> {
    let mut again = 0;
    faults::suffer(pair, fault, || {
        for write in [true, false] {
            for &len in OVER_FAULTS {
                again += until_done(pair, len, write)?;
            }
        }
        Ok(format!("{} lengths", OVER_FAULTS.len()))
    })
    .map(|lengths| format!("{lengths}, {again} operations done again"))
}

/// Says how many attempts were in vain.
fn until_done(pair: &Pair<'_>, len: usize, write: bool) -> Result<u32> {
    for vain in 0..ATTEMPTS {
        let mut loan = Loan::to_come(pair, ATTEMPT)?;
        if !loan.try_to_lend(len, Term::Recall)? {
            continue;
        }
        match loan.attempt(0, len, 1, write)? {
            End::Success => {
                loan.finish()?;
                return Ok(vain);
            }
            End::Dropped | End::NotYet => {}
            end => bail!("a {} of {len} bytes ended with {end:?}", kind(write)),
        }
    }
    bail!(
        "a {} of {len} bytes was not done in {ATTEMPTS} attempts",
        kind(write)
    )
}
