//! What happened, counted.

/// Events of a device since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Regions made.
    pub allocs: u64,
    /// Regions freed.
    pub deallocs: u64,
    /// Mappings made.
    pub maps: u64,
    /// Of those, mappings of a region that had not been invalidated since its last one.
    pub remaps: u64,
    /// Soft invalidations.
    pub soft_invalidations: u64,
    /// Invalidation calls, each with one fence.
    pub fences: u64,
    /// Regions that those took.
    pub invalidated: u64,
    /// Keys that peers killed.
    pub invalidated_by_peers: u64,
    /// Look-ups of a key, one per packet.
    pub mpt_lookups: u64,
    /// Of those, answered by reading the table.
    pub mpt_misses: u64,
    /// Look-ups of pages, one per packet and cache line that the packet touches.
    pub mtt_lookups: u64,
    /// Of those, answered by reading the table.
    pub mtt_misses: u64,
    /// Packets through a key that its owner still uses.
    pub packets_ok: u64,
    /// Packets through a released key that the table still honours.
    pub packets_stale_table: u64,
    /// Packets through a key, or to pages, that only a cache still knows.
    pub packets_stale_cache: u64,
    /// Packets refused; each puts a connection into error.
    pub packets_refused: u64,
    /// Payload bytes that peers wrote.
    pub bytes_written: u64,
    /// Payload bytes that peers read.
    pub bytes_read: u64,
}
