//! The same calls for tasks: futures of no particular runtime.
//!
//! They only use [`std::task::Waker`]s. A future that is dropped leaves nothing behind; a time limit is
//! the runtime's to set.

use crate::host::Place;
use crate::proto::{Received, SendError, Sending};
use crate::socket::receiving::next;
use crate::socket::{Incoming, Readiness, RecvError, Socket};
use bytes::Bytes;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::task::{Context, Poll};

impl Socket {
    /// As [`recv`](Self::recv).
    pub fn recv_async(&self) -> impl Future<Output = Result<Incoming, RecvError>> + Send + '_ {
        let mut place = self.signals.readable.place();
        poll_fn(move |task| {
            self.poll_when(task, &mut place, || {
                not_now(self.look_for(next), |error| *error == RecvError::WouldBlock)
            })
        })
    }

    /// As [`recv_message`](Self::recv_message).
    pub fn recv_message_async(
        &self,
    ) -> impl Future<Output = Result<Received, RecvError>> + Send + '_ {
        let mut place = self.signals.readable.place();
        poll_fn(move |task| {
            self.poll_when(task, &mut place, || {
                not_now(self.try_recv_message(), |error| {
                    *error == RecvError::WouldBlock
                })
            })
        })
    }

    /// As [`send_bytes`](Self::send_bytes).
    pub fn send_async(
        &self,
        message: Bytes,
        to: SocketAddr,
    ) -> impl Future<Output = Result<u64, SendError>> + Send + '_ {
        let mut sending = Sending {
            payload: message,
            ..Sending::default()
        };
        let mut place = self.signals.writable.place();
        poll_fn(move |task| {
            let mut send = || {
                not_now(self.try_send_message(&mut sending, to), |error| {
                    matches!(error, SendError::WouldBlock | SendError::Congested(_))
                })
            };
            self.poll_when(task, &mut place, &mut send)
        })
    }

    /// Ready when a message to `to` would be taken: also when `to` was congested and no longer is.
    pub fn writable_async(
        &self,
        to: SocketAddr,
    ) -> impl Future<Output = Result<(), SendError>> + Send + '_ {
        let mut place = self.signals.writable.place();
        poll_fn(move |task| {
            self.poll_when(task, &mut place, || match self.readiness(to) {
                Ok(Readiness::Writable) => Poll::Ready(Ok(())),
                Ok(_) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            })
        })
    }

    /// Tries, and if it is too early arranges for the task to be woken.
    fn poll_when<T>(
        &self,
        task: &Context<'_>,
        place: &mut Place<'_>,
        mut attempt: impl FnMut() -> Poll<T>,
    ) -> Poll<T> {
        loop {
            let epoch = place.signal().epoch();
            if let ready @ Poll::Ready(_) = attempt() {
                return ready;
            }
            self.send_held();
            let waits = || self.host.shared.task_waits();
            if !place.register(epoch, task.waker(), waits) {
                return Poll::Pending;
            }
        }
    }
}

fn not_now<T, E>(result: Result<T, E>, early: impl Fn(&E) -> bool) -> Poll<Result<T, E>> {
    match result {
        Err(error) if early(&error) => Poll::Pending,
        result => Poll::Ready(result),
    }
}
