//! What a peer may do through a key.

bitflags::bitflags! {
    /// What a mapping allows. The local HCA may always read the memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// The local HCA may write (a receive, or the target of an RDMA read).
        const LOCAL_WRITE = 1;
        /// A peer may read.
        const REMOTE_READ = 1 << 1;
        /// A peer may write.
        const REMOTE_WRITE = 1 << 2;
        /// A peer may fetch-add and compare-swap.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

impl Access {
    /// Whether a peer can change the memory through this access.
    ///
    /// A key without it can leak what the memory holds, and cannot corrupt it.
    pub const fn lets_peer_write(self) -> bool {
        self.intersects(Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC))
    }

    /// Whether anyone but the CPU can change the memory through this access.
    pub const fn lets_anyone_write(self) -> bool {
        self.lets_peer_write() || self.contains(Self::LOCAL_WRITE)
    }
}
