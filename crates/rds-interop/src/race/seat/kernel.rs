//! A seat of the kernel's RDS.

use super::{Came, Seat, Sent, Tally, Way};
use crate::kernel::{
    self, Attachment, Datagram, KernelSocket, MapFlags, Memory, Notice, OpFlags, Operation, Status,
    Transport,
};
use crate::race::Load;
use crate::race::load::STAMP;
use anyhow::{Context, Result, bail, ensure};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

/// The cookie that stands for all keys whose loans have ended.
const ALL: u64 = 0;

/// Names in which the kernel counts, of both sizes of its regions.
const MAPS: [&str; 2] = ["ib_rdma_mr_8k_used", "ib_rdma_mr_1m_used"];
const FLUSHES: [&str; 2] = ["ib_rdma_mr_8k_pool_flush", "ib_rdma_mr_1m_pool_flush"];

/// A socket, and memory in as many places as there are requests at the same time.
pub(crate) struct KernelSeat {
    socket: KernelSocket,
    way: Way,
    load: Load,
    memory: Memory,
    /// Of each place, what is lent at the moment: the cookie, and how often it was used.
    lent: Vec<Option<(u64, u32)>>,
    /// Places that no operation writes from.
    spare: Vec<usize>,
    /// Memory was lent, so there is a connection; nobody cuts it.
    connected: bool,
}

impl KernelSeat {
    /// Binds a socket.
    pub(crate) fn sit(addr: SocketAddr, way: Way, load: Load) -> Result<Self> {
        let bytes = Some(2 * load.depth * load.message.max(4096));
        let socket = KernelSocket::bind(addr, Transport::Verbs, bytes, bytes);
        let len = (load.depth * room(load)).max(1);
        Ok(Self {
            socket: socket.with_context(|| format!("cannot bind to {addr}"))?,
            way,
            load,
            memory: Memory::new(len).context("no memory")?,
            lent: vec![None; load.depth],
            spare: (0..load.depth).collect(),
            connected: false,
        })
    }

    fn place(&self, place: usize) -> Range<usize> {
        let start = place * room(self.load);
        start..start + self.load.rdma
    }

    /// Sends something; says whether, and the cookie of what was lent with it.
    fn send(
        &self,
        to: SocketAddr,
        message: &[u8],
        attachment: &Attachment<'_>,
    ) -> Result<Option<Option<u64>>> {
        match self.socket.send(message, to, attachment) {
            Ok(cookie) => Ok(Some(cookie)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn note(&mut self, notices: &[Notice]) -> Result<()> {
        for notice in notices {
            ensure!(
                notice.status == Status::Success,
                "an operation ended with {:?}",
                notice.status
            );
            self.spare.push(notice.token as usize);
        }
        Ok(())
    }
}

/// Bytes from one place to the next: whole pages, since a key reaches whole pages.
const fn room(load: Load) -> usize {
    load.rdma.next_multiple_of(4096)
}

impl Seat for KernelSeat {
    fn addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn ask(&mut self, to: SocketAddr, request: &[u8], lend: Option<(usize, u64)>) -> Result<Sent> {
        let Some((place, _)) = lend else {
            let sent = self.send(to, request, &Attachment::None)?;
            return Ok(sent.map_or(Sent::NotNow, |_| Sent::Yes));
        };
        if !self.connected && !self.socket.may_lend(to.ip())? {
            return Ok(Sent::NotNow);
        }
        let (attachment, used) = match self.lent.get(place).copied().flatten() {
            Some((cookie, used)) => (Attachment::Cookie(cookie), used),
            None => {
                let flags = match self.way {
                    Way::Once => MapFlags::USE_ONCE,
                    Way::KilledAtUse => MapFlags::USE_ONCE | MapFlags::INVALIDATE,
                    Way::Killed | Way::Times(_) => MapFlags::empty(),
                };
                let range = self.place(place);
                let lending = Attachment::Lend(&self.memory, range, flags | MapFlags::WRITE);
                (lending, 0)
            }
        };
        let Some(new) = self.send(to, request, &attachment)? else {
            return Ok(Sent::NotNow);
        };
        let cookie = match attachment {
            Attachment::Cookie(cookie) => Some(cookie),
            _ => new,
        };
        let cookie = cookie.context("memory was lent, and there is no cookie")?;
        self.connected = true;
        if let Some(lent) = self.lent.get_mut(place) {
            *lent = Some((cookie, used + 1));
        }
        Ok(Sent::Yes)
    }

    fn answer(&mut self, to: SocketAddr, answer: &[u8], write: Option<(u64, u64)>) -> Result<Sent> {
        let Some((cookie, number)) = write else {
            let sent = self.send(to, answer, &Attachment::None)?;
            return Ok(sent.map_or(Sent::NotNow, |_| Sent::Yes));
        };
        let Some(place) = self.spare.pop() else {
            return Ok(Sent::NotNow);
        };
        let range = self.place(place);
        for at in [range.start, range.end - STAMP] {
            self.memory.write(at, &number.to_ne_bytes())?;
        }
        let operation = Operation {
            cookie,
            offset: 0,
            local: (&self.memory, &[range]),
            flags: OpFlags::WRITE | OpFlags::NOTIFY,
            token: place as u64,
        };
        let sent = self.send(to, answer, &Attachment::Operate(operation))?;
        if sent.is_none() {
            self.spare.push(place);
            return Ok(Sent::NotNow);
        }
        Ok(Sent::Yes)
    }

    fn receive(&mut self, into: &mut Vec<u8>, at_most: Duration) -> Result<Option<Came>> {
        into.resize(self.load.message, 0);
        let mut waited = at_most.is_zero();
        loop {
            match self.socket.receive(into) {
                Ok(Datagram::Message { from, len, cookie }) => {
                    ensure!(len <= into.len(), "a message of {len} bytes");
                    into.truncate(len);
                    return Ok(Some(Came { from, cookie }));
                }
                Ok(Datagram::Notices(notices)) => self.note(&notices)?,
                Ok(Datagram::Uncongested(_)) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if waited {
                        return Ok(None);
                    }
                    self.socket.wait(false, at_most)?;
                    waited = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn settle(&mut self, place: usize, number: u64) -> Result<()> {
        let range = self.place(place);
        for at in [range.start, range.end - STAMP] {
            let mut stamp = [0; STAMP];
            self.memory.read(at, &mut stamp)?;
            let found = u64::from_ne_bytes(stamp);
            if found != number {
                bail!("write {number} has come, and its memory has the stamp {found}");
            }
        }
        let slot = self.lent.get_mut(place).context("no such place")?;
        let (cookie, used) = slot.context("nothing was lent")?;
        let over = match self.way {
            Way::Once | Way::KilledAtUse => {
                *slot = None;
                return Ok(());
            }
            Way::Killed => true,
            Way::Times(times) => used >= times,
        };
        if over {
            *slot = None;
            self.socket.free(cookie, true).context("cannot free")?;
        }
        Ok(())
    }

    fn push(&mut self) {}

    fn flush(&mut self) -> Result<()> {
        for (cookie, _) in self.lent.iter_mut().filter_map(Option::take) {
            self.socket.free(cookie, false).context("cannot free")?;
        }
        Ok(self.socket.free(ALL, true)?)
    }

    fn tally(&self) -> Result<Tally> {
        let counters = kernel::counters()?;
        let sum = |names: [&str; 2]| names.iter().filter_map(|name| counters.get(*name)).sum();
        Ok(Tally {
            maps: sum(MAPS),
            flushes: sum(FLUSHES),
            key_seconds: None,
            longest: None,
        })
    }
}
