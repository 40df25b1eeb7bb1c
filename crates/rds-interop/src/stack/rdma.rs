//! RDMA by cookie, with one face.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// Memory to be lent.
#[derive(Debug)]
pub struct Loan {
    /// What is in it.
    pub content: Vec<u8>,
    /// Where in a page it begins, if the stack leaves that to its user.
    pub skew: usize,
    /// What ends it.
    pub term: Term,
}

/// What ends a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// Its owner.
    Recall,
    /// Its first use. The key may live on for a while.
    Use,
    /// Its first use, which has the key killed.
    UseKills,
}

/// An operation on memory of the peer, with a message behind it and a report of its end.
#[derive(Debug)]
pub struct Operation {
    /// What the peer has lent.
    pub cookie: u64,
    /// Where in it.
    pub offset: u64,
    /// Write to the peer; otherwise read.
    pub write: bool,
    /// The local memory, in order.
    pub pieces: Vec<Vec<u8>>,
    /// What its end is called.
    pub token: u64,
}

/// How an operation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It was done.
    Success,
    /// The peer's HCA has refused it.
    RemoteError,
    /// The connection was lost.
    Dropped,
    /// Something else.
    Other,
    /// It has not, in the time that there was.
    NotYet,
}

/// What a socket got.
#[derive(Debug)]
pub enum Arrived {
    /// A message.
    Message {
        /// Who sent it.
        from: SocketAddr,
        /// Its content.
        payload: Vec<u8>,
        /// Memory of the sender.
        cookie: Option<u64>,
    },
    /// The end of an operation.
    Ended {
        /// Its name.
        token: u64,
        /// How it ended.
        end: End,
        /// The local memory, all pieces together.
        local: Vec<u8>,
    },
}

/// Memory of and for peers. What was lent is kept until the socket is closed.
pub trait Rdma {
    /// Lends memory, and sends the cookie with a message.
    ///
    /// # Errors
    ///
    /// What the implementation says.
    fn lend(&self, loan: Loan, message: &[u8], to: SocketAddr) -> Result<u64>;

    /// Ends a loan at once. Says whether there was one: a use may have ended it.
    ///
    /// # Errors
    ///
    /// The key could not be killed.
    fn recall(&self, cookie: u64) -> Result<bool>;

    /// What is in memory that was lent and recalled.
    ///
    /// # Errors
    ///
    /// There is no such memory.
    fn content(&self, cookie: u64) -> Result<Vec<u8>>;

    /// Begins an operation; a message follows it.
    ///
    /// # Errors
    ///
    /// What the implementation says.
    fn operate(&self, operation: Operation, message: &[u8], to: SocketAddr) -> Result<()>;

    /// What has come, if something does in this time.
    ///
    /// # Errors
    ///
    /// What the implementation says.
    fn next(&self, at_most: Duration) -> Result<Option<Arrived>>;
}
