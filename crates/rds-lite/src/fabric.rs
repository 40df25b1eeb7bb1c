//! What carries frames between hosts, and what moves their memory.
//!
//! A [`Fabric`] makes [`Link`]s and tells a [`Sink`] (the host) what happens on them. The same
//! protocol runs over each: [`mock`] is in process, over mock HCAs, with faults; [`tcp`] is RDS/TCP,
//! without RDMA; and `verbs`, with the feature of this name, is RDS over InfiniBand.

mod bell;
pub mod mock;
pub mod tcp;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use bell::Bell;

use crate::proto::{Buf, LinkId, LinkKind, Path, RdmaDone, Transmission};
use bytes::Bytes;
use mr_core::{Clock, SystemClock, Time};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

#[cfg(doc)]
use crate::proto::{Greeting, RdmaWork};

/// Carries frames between hosts.
///
/// The host calls from its applications' threads: no method may call the sink before it returns, and none
/// may block for longer than a system call takes. Except for two: [`pump`](Self::pump) is there to call sinks,
/// and [`shut_down`](Self::shut_down) waits as long as it is told.
pub trait Fabric: Send + Sync + 'static {
    /// What it is called in messages and options.
    fn name(&self) -> &'static str;

    /// What its links are like.
    fn kind(&self) -> LinkKind;

    /// From now on whoever dials `ip` reaches `sink`. Called again for an address that is listened
    /// at already; that does nothing.
    ///
    /// # Errors
    ///
    /// Says why the address is none of this host.
    fn listen(&self, ip: IpAddr, sink: Weak<dyn Sink>) -> Result<(), String>;

    /// Makes a link, saying `introduction` to the peer where links are made so
    /// ([`Greeting::Connect`]). The answer, within a time that the fabric bounds, is
    /// [`Sink::opened`], [`Sink::rejected`] or [`Sink::lost`]; or the peer dials and this side hears
    /// [`Sink::asked`].
    fn dial(&self, id: LinkId, path: Path, introduction: Vec<u8>, sink: Weak<dyn Sink>);

    /// Carries on what is under way in this process, and says when to come again. Called without any
    /// lock.
    fn pump(&self) -> Option<Time> {
        None
    }

    /// Ends everything of this host: no call of the sink begins afterwards. Waits at most `patience`, and
    /// says how many threads have not ended by then.
    fn shut_down(&self, patience: Duration) -> usize;
}

/// Pause between two looks whether a thread has ended: there is no waiting for one with a limit.
const JOIN_PAUSE: Duration = Duration::from_millis(1);

/// Joins those threads that end within `patience`, but not the caller's. Says how many have not.
fn join_within(threads: Vec<JoinHandle<()>>, patience: Duration) -> usize {
    let clock = SystemClock::new();
    let until = clock.now() + patience;
    let own = std::thread::current().id();
    let mut left = 0;
    for thread in threads {
        if thread.thread().id() == own {
            continue;
        }
        while !thread.is_finished() && !until.since(clock.now()).is_zero() {
            std::thread::sleep(JOIN_PAUSE);
        }
        if !thread.is_finished() {
            left += 1;
        } else if thread.join().is_err() {
            tracing::error!("a thread of the fabric has panicked");
        }
    }
    left
}

/// One link. Dropping it without [`close`](Self::close) leaves it open.
pub trait Link: Send + Sync {
    /// Takes everything out of `what`, to be carried in this order. Says whether it can take more;
    /// if not, [`Sink::writable`] says when. One thread at a time.
    ///
    /// A link that is gone takes everything, too, and ends every RDMA operation as flushed.
    fn transmit(&self, what: &mut Vec<Transmission>) -> bool;

    /// Ends the link. The sink is told nothing more of it, except for the ends of RDMA operations.
    fn close(&self);

    /// The peer has no such link any more: hands the sink what has arrived on it, and ends it. Waits for
    /// that as long as the fabric bounds. Nothing of the sink is locked.
    fn finish(&self) {}

    /// Bytes of all frames that the peer's side of the fabric has, also when the link has ended; rather
    /// too few than too many. `None` if the fabric cannot tell: where every peer acknowledges nobody asks.
    fn arrived(&self) -> Option<u64> {
        None
    }

    /// Uses the caller's thread, which would only wait, to receive what arrives on this link, for as
    /// long as `patience` says: a time after which it is to be asked again, or `None`. It is asked after
    /// everything that the sink was told, and when `bell` has rung. Nothing of the sink is locked.
    ///
    /// `false`, at once, if the link has no use for a thread: then the caller waits by other means.
    fn serve(&self, bell: &Arc<Bell>, patience: &dyn Fn() -> Option<Duration>) -> bool {
        let _ = (bell, patience);
        false
    }

    /// Nobody may come to [`serve`](Self::serve) for a while, so the link receives by itself as soon as
    /// nobody serves it. Without this call it does so after a time that the fabric bounds.
    fn recall(&self) {}
}

/// A frame that has arrived.
#[derive(Debug)]
pub struct Arrival {
    /// Its header, not looked at.
    pub header: [u8; crate::wire::HEADER_LEN],
    /// Its payload.
    pub payload: ArrivedPayload,
}

/// The payload of a frame that has arrived.
#[derive(Debug)]
pub enum ArrivedPayload {
    /// Of one fragment.
    Bytes(Bytes),
    /// Of the whole message, in a buffer from [`Sink::buffer`].
    Whole(Buf),
    /// The sink had no buffer, so it was thrown away.
    Shed,
}

/// Who is told what happens on links: a host.
///
/// Calls take the host's lock, run what follows from them, and may call the fabric.
pub trait Sink: Send + Sync {
    /// A peer dials, and says `introduction` if links are made so, perhaps with zeros behind it. With
    /// `Ok` it gets a link of this name and these bytes as the answer, and within a bounded time
    /// [`opened`](Self::opened) or [`lost`](Self::lost) follows.
    ///
    /// # Errors
    ///
    /// It gets none, and these bytes as the reason.
    fn asked(&self, path: Path, introduction: &[u8]) -> Result<(LinkId, Vec<u8>), Vec<u8>>;

    /// Whether a link of this name is still the one that its connection has or awaits. A dial that is not, since the
    /// peer's took its place, is better not made.
    fn wants(&self, id: LinkId) -> bool;

    /// There is a link that either side has dialled, and for a dial of this side the peer's answer.
    /// Says whether the link is still wanted; if not, close it.
    fn opened(&self, id: LinkId, introduction: &[u8], link: Arc<dyn Link>) -> bool;

    /// The peer does not want a link that this side has dialled, and says why, as far as the fabric
    /// carries that.
    fn rejected(&self, id: LinkId, reason: &[u8]);

    /// A peer asks to be dialled.
    fn dial_wanted(&self, path: Path);

    /// Frames have arrived, in order. They are taken out of `frames`.
    fn frames(&self, id: LinkId, frames: &mut Vec<Arrival>);

    /// A buffer for the message behind `header` of a link, if the budget has room for it and its socket;
    /// congestion maps always find some, and so do pings.
    fn buffer(&self, id: LinkId, header: &[u8; crate::wire::HEADER_LEN]) -> Option<Buf>;

    /// The same for a message that the peer takes for delivered, and that cannot be held back any longer
    /// since its connection has ended: beyond the budget, as much again at most.
    fn buffer_beyond(&self, header: &[u8; crate::wire::HEADER_LEN]) -> Option<Buf>;

    /// Nothing more is read from a link for want of a buffer.
    fn stalled(&self, id: LinkId);

    /// An acknowledgement has left, on a link that has a [work request](LinkKind::own_ack) for these.
    fn ack_ended(&self, id: LinkId);

    /// A link that could take no more can again.
    fn writable(&self, id: LinkId);

    /// An RDMA operation has ended.
    fn rdma_done(&self, done: RdmaDone);

    /// A link has ended, or could not be made.
    fn lost(&self, id: LinkId);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn threads_that_do_not_end_are_counted_and_left() {
        let (end, wait) = channel::<()>();
        let stays = std::thread::spawn(move || assert!(wait.recv().is_err()));
        let ends = std::thread::spawn(|| {});
        assert_eq!(join_within(vec![stays, ends], Duration::from_millis(20)), 1);
        drop(end);
    }
}
