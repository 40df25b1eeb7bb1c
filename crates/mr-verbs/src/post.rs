//! Work requests: what a send queue can be asked to do.

use crate::sys::{Mw, Target};

/// One work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// Binds a type 2 window, which then honours `key`.
    Bind {
        window: Mw,
        key: u32,
        target: Target,
    },
    /// Kills a key of a type 2 window.
    Invalidate { key: u32 },
    /// Sends a message, which is copied when it is posted.
    Send { message: &'a [u8] },
    /// The same, and the peer's HCA kills `key` before the peer gets to see the message.
    SendInvalidating { message: &'a [u8], key: u32 },
    /// Copies local memory to the peer's.
    Write { local: Local, remote: Remote },
    /// Copies the peer's memory to local memory.
    Read { local: Local, remote: Remote },
}

/// Memory of this host, as a work request names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) key: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) key: u32,
}
