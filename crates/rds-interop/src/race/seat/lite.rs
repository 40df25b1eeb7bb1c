//! A seat of rds-lite.

use super::{Came, Method, Seat, Sent, Tally, Way};
use crate::race::Load;
use crate::race::load::{stamp, stamps};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use mr_core::Access;
use mr_policies::Policy;
use rds_lite::proto::{Notification, SendError, Status};
use rds_lite::rdma::{FreeOutcome, MrError, MrFlags};
use rds_lite::{Cookie, Host, Incoming, RdmaFlags, RdmaOp, RecvError, Socket};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a request may wait for a region that others have.
const SENT_WITHIN: Duration = Duration::from_secs(2);

/// A socket of a host of its own, and buffers.
pub struct LiteSeat {
    host: Host,
    socket: Socket,
    way: Way,
    load: Load,
    spare: Vec<Vec<u8>>,
    /// Of each place, what is lent at the moment: the cookie, and how often it was used.
    lent: Vec<Option<(Cookie, u32)>>,
    /// The stamp that a buffer must have when it comes back.
    stamps: HashMap<Cookie, u64>,
}

impl LiteSeat {
    /// A seat on this host, whose pool has so many regions. For a load with RDMA nobody else may use it.
    ///
    /// # Errors
    ///
    /// The address is taken, or not of this machine.
    pub fn new(host: Host, addr: SocketAddr, way: Way, regions: u32, load: Load) -> Result<Self> {
        let socket = host.bind(addr)?;
        // Nothing here waits but what says so. What a round asks and answers leaves together.
        socket.set_nonblocking(true);
        socket.set_corked(true);
        let stale = match way {
            Way::Once => regions as usize,
            _ => 0,
        };
        let made = if load.rdma == 0 {
            0
        } else {
            load.depth + stale
        };
        let mut seat = Self {
            host,
            socket,
            way,
            load,
            spare: Vec::with_capacity(made),
            lent: vec![None; load.depth],
            stamps: HashMap::new(),
        };
        // Touched here, so that it does not cost the load.
        seat.spare.extend((0..made).map(|_| vec![1; load.rdma]));
        Ok(seat)
    }

    /// Takes back buffers whose keys are dead.
    fn reclaim(&mut self) -> Result<()> {
        while let Some((cookie, buffer)) = self.socket.reclaim() {
            self.take_back(cookie, buffer)?;
        }
        Ok(())
    }

    fn take_back(&mut self, cookie: Cookie, buffer: Vec<u8>) -> Result<()> {
        // The last of several uses that was not settled has no stamp.
        if let Some(number) = self.stamps.remove(&cookie)
            && let found = stamps(&buffer)
            && found != Some([number; 2])
        {
            bail!("write {number} has come, and its memory has the stamps {found:?}");
        }
        self.spare.push(buffer);
        Ok(())
    }

    /// Lends a buffer; none if there is none right now.
    fn lend(&mut self) -> Result<Option<Cookie>> {
        self.reclaim()?;
        let Some(buffer) = self.spare.pop() else {
            return Ok(None);
        };
        let flags = match self.way {
            Way::Once => MrFlags::USE_ONCE,
            Way::KilledAtUse => MrFlags::USE_ONCE | MrFlags::INVALIDATE,
            Way::Killed | Way::Times(_) => MrFlags::empty(),
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        // A pool without a clean region flushes for whoever can wait.
        self.socket.set_nonblocking(false);
        let got = self.socket.get_mr(buffer, access, flags);
        self.socket.set_nonblocking(true);
        match got {
            Ok(cookie) => Ok(Some(cookie)),
            Err(MrError::Refused {
                temporary: true,
                buffer,
                ..
            }) => {
                self.spare.extend(buffer);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn note(&mut self, note: Notification) -> Result<()> {
        match note {
            Notification::Rdma {
                status: Status::Success,
                buffers,
                ..
            } => {
                self.spare.push(buffers.into_first());
                Ok(())
            }
            Notification::Rdma { status, .. } => bail!("an operation ended with {status:?}"),
            Notification::SendFailed { reason, .. } => bail!("a message was lost: {reason:?}"),
            _ => Ok(()),
        }
    }

    fn free(&mut self, cookie: Cookie) -> Result<()> {
        if let FreeOutcome::Dead(buffer) = self.socket.free_mr(cookie, true)? {
            self.take_back(cookie, buffer)?;
        }
        Ok(())
    }
}

/// Whether a message was sent.
fn sent(result: Result<u64, SendError>) -> Result<Sent> {
    match result {
        Ok(_) => Ok(Sent::Yes),
        Err(SendError::WouldBlock | SendError::Congested(_)) => Ok(Sent::NotNow),
        Err(error) => Err(error.into()),
    }
}

impl Seat for LiteSeat {
    fn addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn ask(&mut self, to: SocketAddr, request: &[u8], lend: Option<(usize, u64)>) -> Result<Sent> {
        let message = Bytes::copy_from_slice(request);
        let Some((place, number)) = lend else {
            return sent(self.socket.send_bytes(message, to));
        };
        let (cookie, used) = match self.lent.get(place).copied().flatten() {
            Some(lent) => lent,
            None => match self.lend()? {
                Some(cookie) => (cookie, 0),
                None => return Ok(Sent::NotNow),
            },
        };
        let sent = sent(self.socket.send_with_cookie(message, cookie, to))?;
        let used = used + u32::from(sent == Sent::Yes);
        if sent == Sent::Yes && matches!(self.way, Way::Once | Way::KilledAtUse) {
            // It can come back before its answer is read.
            self.stamps.insert(cookie, number);
        }
        if let Some(lent) = self.lent.get_mut(place) {
            *lent = Some((cookie, used));
        }
        Ok(sent)
    }

    fn answer(&mut self, to: SocketAddr, answer: &[u8], write: Option<(u64, u64)>) -> Result<Sent> {
        let message = Bytes::copy_from_slice(answer);
        let Some((cookie, number)) = write else {
            return sent(self.socket.send_bytes(message, to));
        };
        let Some(mut buffer) = self.spare.pop() else {
            return Ok(Sent::NotNow);
        };
        stamp(&mut buffer, number);
        let op = RdmaOp::new(Cookie::from_bits(cookie))
            .flags(RdmaFlags::NOTIFY)
            .message(message);
        match self.socket.rdma_write(to, op, buffer) {
            Ok(_) => Ok(Sent::Yes),
            Err(refused) => {
                self.spare.push(refused.buffers.into_first());
                sent(Err(refused.reason))
            }
        }
    }

    fn receive(&mut self, into: &mut Vec<u8>, at_most: Duration) -> Result<Option<Came>> {
        let mut waited = at_most.is_zero();
        loop {
            match self.socket.try_recv() {
                Ok(Incoming::Message(message)) => {
                    into.clear();
                    into.extend_from_slice(&message.payload);
                    return Ok(Some(Came {
                        from: message.from,
                        cookie: message.cookie.map(Cookie::bits),
                    }));
                }
                Ok(Incoming::Notification(note)) => self.note(note)?,
                Ok(_) => {}
                Err(RecvError::WouldBlock | RecvError::TimedOut) => {
                    if waited {
                        return Ok(None);
                    }
                    // Also sends what was held back.
                    self.socket.wait_readable(at_most);
                    waited = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn settle(&mut self, place: usize, number: u64) -> Result<()> {
        let slot = self.lent.get_mut(place).context("no such place")?;
        let (cookie, used) = slot.context("nothing was lent")?;
        let over = match self.way {
            Way::Times(times) => used >= times,
            _ => true,
        };
        if !over {
            return Ok(());
        }
        *slot = None;
        match self.way {
            // The use has released it.
            Way::Once | Way::KilledAtUse => Ok(()),
            Way::Killed | Way::Times(_) => {
                self.stamps.insert(cookie, number);
                self.free(cookie)
            }
        }
    }

    fn push(&mut self) {
        self.socket.set_corked(false);
        self.socket.wait_sent(SENT_WITHIN);
        self.socket.set_corked(true);
    }

    fn flush(&mut self) -> Result<()> {
        let lent: Vec<_> = self.lent.iter_mut().filter_map(Option::take).collect();
        for (cookie, _) in lent {
            self.free(cookie)?;
        }
        if self.load.rdma > 0 {
            ensure!(self.socket.flush_mrs()?, "not all keys are dead");
            self.reclaim()?;
            ensure!(
                self.stamps.is_empty(),
                "{} buffers have not come back",
                self.stamps.len()
            );
        }
        Ok(())
    }

    fn tally(&self) -> Result<Tally> {
        let Some(stats) = self.host.pool_stats() else {
            return Ok(Tally::default());
        };
        Ok(Tally {
            maps: stats.leases,
            flushes: stats.flushes,
            key_seconds: Some(stats.exposure.key_seconds),
            longest: Some(stats.exposure.longest.as_secs_f64()),
        })
    }
}

impl Drop for LiteSeat {
    fn drop(&mut self) {
        // The next one wants the port.
        self.host.shut_down();
    }
}

#[cfg(feature = "verbs")]
pub(super) fn over_verbs(
    addr: SocketAddr,
    policy: Policy,
    method: &Method,
    load: Load,
) -> Result<LiteSeat> {
    use mr_core::Pool;
    use mr_verbs::{Device, Domain, RegistrationBackend};
    use rds_lite::fabric::verbs::{VerbsConfig, VerbsFabric};
    use rds_lite::rdma::PoolRegions;
    use std::net::IpAddr;
    use std::sync::Arc;

    let IpAddr::V4(own) = addr.ip() else {
        bail!("RDS over verbs has IPv4 addresses, and {addr} is none");
    };
    let domain = Domain::new(&Device::of_address(own).context("no RDMA device")?)?;
    let pool = Pool::builder(RegistrationBackend::zero_based(&domain), policy)
        .capacity(method.regions.max(1))
        .configure(|config| config.max_unclaimed = Some(u32::MAX))
        .build::<Vec<u8>>()
        .context("cannot build the pool")?;
    let host = Host::builder(VerbsFabric::new(&domain, VerbsConfig::default()))
        .regions(PoolRegions::new(Arc::new(pool)))
        .build()
        .context("cannot start a host")?;
    LiteSeat::new(host, addr, method.way, method.regions, load)
}

#[cfg(not(feature = "verbs"))]
pub(super) fn over_verbs(
    _addr: SocketAddr,
    _policy: Policy,
    _method: &Method,
    _load: Load,
) -> Result<LiteSeat> {
    bail!("this program was built without verbs: cargo build -p rds-interop --features verbs")
}
