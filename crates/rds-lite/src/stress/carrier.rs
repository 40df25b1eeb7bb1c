//! What a task wants of its socket.

use super::error::Fault;
use super::header::Rdma;
use bytes::Bytes;
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

/// How long a task sleeps at most.
pub const NAP: Duration = Duration::from_millis(10);

/// Why something was not sent.
#[derive(Debug)]
pub enum Refusal {
    /// It can be sent later.
    NotNow,
    /// It can be sent when [`Arrived::Uncongested`] says so.
    Congested,
    /// It will never be.
    Failed(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// Memory that goes with a request.
#[derive(Clone, Copy, Debug)]
pub enum Want {
    /// Of the length that was agreed.
    New {
        /// What is done to it: for a read it is filled with the pattern.
        rdma: Rdma,
        /// What it holds when it comes back, if that is known.
        pattern: u64,
    },
    /// What was lent before, by its cookie.
    Again(u64),
}

/// An operation on memory of the asker, of the length that was agreed.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The memory.
    pub cookie: u64,
    /// Writes the pattern; otherwise it is what a read must bring.
    pub write: bool,
    /// The pattern.
    pub pattern: u64,
}

/// What has come.
#[derive(Debug)]
pub enum Arrived<P> {
    /// A message.
    Message {
        /// Who sent it.
        from: SocketAddr,
        /// Its bytes.
        payload: P,
        /// Memory of the sender, if its cookie came beside the message.
        cookie: Option<u64>,
    },
    /// This destination takes messages again.
    Uncongested(SocketAddr),
}

/// A socket that carries the load, with the memory that goes with it.
///
/// It knows the [`Load`](super::Load), lends memory and does operations as the load says, and verifies
/// what comes of them. No call waits but [`next`](Self::next).
pub trait Carrier: Send + 'static {
    /// What a message is received in.
    type Payload: Deref<Target = [u8]>;

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    fn send(&mut self, message: Bytes, to: SocketAddr) -> Result<(), Refusal>;

    /// Sends a request with memory, which `compose` makes when it knows the cookie, or with 0 if that
    /// goes beside the message. Returns the cookie.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: new memory is not lent then.
    fn ask(
        &mut self,
        to: SocketAddr,
        want: Want,
        compose: impl FnOnce(u64) -> Bytes,
    ) -> Result<u64, Refusal>;

    /// Ends the loan behind a request that was answered, unless its use has ended it. What comes back,
    /// now or later, is verified.
    ///
    /// # Errors
    ///
    /// What came back is wrong, or cannot come back.
    fn settle(&mut self, cookie: u64) -> Result<(), Fault>;

    /// Does an operation, with the answer behind it. Its end is verified when it has come.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    fn operate(
        &mut self,
        to: SocketAddr,
        operation: Operation,
        answer: Bytes,
    ) -> Result<(), Refusal>;

    /// What has come. With `wait` it waits for something, at most a [`NAP`].
    ///
    /// # Errors
    ///
    /// Something was lost, or an operation went wrong.
    fn next(&mut self, wait: bool) -> Result<Option<Arrived<Self::Payload>>, Fault>;

    /// Has everything that was lent back, and verifies it.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    fn finish(&mut self) -> Result<(), Fault>;
}
