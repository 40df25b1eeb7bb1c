//! RDMA of rds-lite's sockets.

use super::lite::LiteEndpoint;
use super::rdma::{Arrived, End, Loan, Operation, Rdma, Term};
use anyhow::{Context, Result, bail};
use mr_core::Access;
use rds_lite::proto::{Notification, Status};
use rds_lite::rdma::{Cookie, FreeOutcome, MrError, MrFlags};
use rds_lite::{Incoming, RdmaFlags, RdmaOp, RecvError};
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How long a released buffer may take to come back: longer than the policy of the pool lets it.
const RETURN: Duration = Duration::from_secs(5);

impl Rdma for LiteEndpoint {
    fn lend(&self, loan: Loan, message: &[u8], to: SocketAddr) -> Result<u64> {
        let mut flags = MrFlags::empty();
        flags.set(MrFlags::USE_ONCE, loan.term != Term::Recall);
        flags.set(MrFlags::INVALIDATE, loan.term == Term::UseKills);
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let cookie = self.socket.get_mr(loan.content, access, flags)?;
        self.socket
            .send_with_cookie(message.to_vec().into(), cookie, to)?;
        Ok(cookie.bits())
    }

    fn recall(&self, cookie: u64) -> Result<bool> {
        let (was_lent, buffer) = match self.socket.free_mr(Cookie::from_bits(cookie), true) {
            Ok(FreeOutcome::Dead(buffer)) => (true, buffer),
            Err(MrError::UnknownCookie) => (false, self.returned(cookie)?),
            Ok(_) => bail!("a key was not dead after it was invalidated"),
            Err(error) => return Err(error.into()),
        };
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        content.insert(cookie, buffer);
        Ok(was_lent)
    }

    fn content(&self, cookie: u64) -> Result<Vec<u8>> {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = content.get(&cookie).context("nothing was recalled so")?;
        Ok(buffer.clone())
    }

    fn operate(&self, operation: Operation, message: &[u8], to: SocketAddr) -> Result<()> {
        let flags = if operation.write {
            RdmaFlags::NOTIFY
        } else {
            RdmaFlags::NOTIFY | RdmaFlags::FENCE
        };
        let op = RdmaOp::new(Cookie::from_bits(operation.cookie))
            .at(operation.offset)
            .flags(flags)
            .token(operation.token)
            .message(message.to_vec());
        if operation.write {
            self.socket.rdma_write(to, op, operation.pieces)?;
        } else {
            self.socket.rdma_read(to, op, operation.pieces)?;
        }
        Ok(())
    }

    fn next(&self, at_most: Duration) -> Result<Option<Arrived>> {
        self.socket.set_receive_timeout(Some(at_most));
        match self.socket.recv() {
            Ok(Incoming::Message(message)) => Ok(Some(Arrived::Message {
                from: message.from,
                payload: message.payload.to_vec(),
                cookie: message.cookie.map(Cookie::bits),
            })),
            Ok(Incoming::Notification(Notification::Rdma {
                token,
                status,
                buffers,
            })) => {
                let end = match status {
                    Status::Success => End::Success,
                    Status::RemoteError => End::RemoteError,
                    Status::Dropped => End::Dropped,
                    _ => End::Other,
                };
                Ok(Some(Arrived::Ended {
                    token,
                    end,
                    local: buffers.concat(),
                }))
            }
            Ok(_) | Err(RecvError::TimedOut | RecvError::WouldBlock) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl LiteEndpoint {
    /// The buffer of a loan that a use has ended.
    fn returned(&self, cookie: u64) -> Result<Vec<u8>> {
        let deadline = Instant::now() + RETURN;
        while Instant::now() < deadline {
            match self.socket.reclaim() {
                Some((whose, buffer)) if whose.bits() == cookie => return Ok(buffer),
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        bail!("a buffer has not come back");
    }
}
