//! One transfer through a key, packet by packet.
//!
//! # What is counted and what is executed
//!
//! An HCA looks the key up once per packet in the MPT cache, and the page in the MTT cache. The
//! packets of a *run*, the part of a transfer that lies in one MTT line, find the same two
//! entries, so the mock looks those up once per run and counts a look-up for each packet: the
//! first may miss, the others hit what it fetched. The order in which entries were used, and with
//! it every later eviction, is the same as if each packet had been executed. A packet that
//! crosses from one line into the next looks up both.

use crate::dma::Span;
use crate::engine::{Engine, Line, mtt_tag};
use crate::tpt::{Mapping, State};
use crate::{Operation, RefusalReason, StaleSource, Transfer};
use mr_core::{Access, RemoteKey};

/// What a peer asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) key: RemoteKey,
    /// Where to begin; the mapping's `base` is its first byte.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) domain: u32,
    pub(crate) connection: u32,
    /// A fetch-add or compare-swap: it reads and writes.
    pub(crate) atomic: bool,
}

/// A run that passed: where its bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) span: Span,
    /// From the start of `span`.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Look-ups of a run, to be counted whether it passes or not.
#[derive(Default)]
struct Lookups {
    mpt: u64,
    mtt: u64,
    mpt_misses: u64,
    mtt_misses: u64,
}

impl Engine {
    /// Lets the next run of the transfer pass or refuses it, counts it, and adds what it cost to
    /// `transfer`. The run starts `transfer.bytes` into the transfer.
    pub(crate) fn next_run(
        &mut self,
        request: &Request,
        transfer: &mut Transfer,
    ) -> Result<Run, RefusalReason> {
        if self.removed {
            return Err(RefusalReason::DeviceRemoved);
        }
        let mut lookups = Lookups::default();
        let passed = self.look_up(request, transfer.bytes, &mut lookups);
        let packets = match &passed {
            Ok((_, _, packets)) => *packets,
            Err(_) => {
                // The first packet was looked at and refused; the others never came.
                lookups.mpt = 1;
                lookups.mtt = lookups.mtt.min(1);
                1
            }
        };
        self.counters.mpt_lookups += lookups.mpt;
        self.counters.mtt_lookups += lookups.mtt;
        self.counters.mpt_misses += lookups.mpt_misses;
        self.counters.mtt_misses += lookups.mtt_misses;
        let mut costs = self
            .model
            .packets(packets, lookups.mpt_misses, lookups.mtt_misses);
        let result = match passed {
            Err(reason) => {
                self.counters.packets_refused += 1;
                Err(reason)
            }
            Ok((run, stale, packets)) => {
                costs.link_ns = self.link_time(transfer.bytes, run.len);
                self.count_passed(request.operation, stale, packets, run.len);
                transfer.bytes += run.len;
                transfer.packets += packets;
                transfer.stale = transfer.stale.max(stale);
                Ok(run)
            }
        };
        transfer.costs += costs;
        self.costs += costs;
        result
    }

    fn look_up(
        &mut self,
        request: &Request,
        done: u64,
        lookups: &mut Lookups,
    ) -> Result<(Run, Option<StaleSource>, u64), RefusalReason> {
        let mapping = self.mapping_of(request.key, lookups)?;
        let start = check(&mapping, request)?;
        let page = self.knobs.page_bytes;
        let place = mapping.span.page_offset(page) + start + done;
        let line = place >> self.knobs.line_shift;
        let to_end_of_line = ((line + 1) << self.knobs.line_shift) - place;
        let len = (request.len - done).min(to_end_of_line);
        let packets = self.packets_before(done + len) - self.packets_before(done);
        let touched = self.packets_before(done + len) - (done >> self.knobs.mtu_shift);
        lookups.mpt = packets.max(lookups.mpt_misses);
        lookups.mtt = touched;
        let pages = self.line_of(&mapping, line as u32, lookups)?;
        // For a mapping that was overwritten these may be another mapping's pages.
        let offset = place
            .checked_sub(pages.span.page_offset(page))
            .filter(|offset| offset + len <= pages.span.len())
            .ok_or(RefusalReason::NoTranslation)?;
        let run = Run {
            span: pages.span,
            offset,
            len,
        };
        Ok((run, self.judge(&mapping, &pages), packets))
    }

    /// What the HCA believes the key to stand for: from the cache, else from the table.
    fn mapping_of(
        &mut self,
        key: RemoteKey,
        lookups: &mut Lookups,
    ) -> Result<Mapping, RefusalReason> {
        let tag = self.mpt_tag(key);
        if let Some(mapping) = self.mpt_cache.get(tag)
            && mapping.key == key
        {
            return Ok(mapping);
        }
        lookups.mpt_misses += u64::from(self.mpt_cache.exists());
        let entry = self
            .tpt
            .entry(key.index())
            .ok_or(RefusalReason::UnknownKey)?;
        let mapping = entry.honours(key).ok_or(RefusalReason::Invalidated)?;
        self.mpt_cache.insert(tag, mapping);
        Ok(mapping)
    }

    /// The pages of one line: from the cache, else from the table, where a remap has overwritten
    /// them in place.
    fn line_of(
        &mut self,
        mapping: &Mapping,
        line: u32,
        lookups: &mut Lookups,
    ) -> Result<Line, RefusalReason> {
        let tag = mtt_tag(self.mpt_tag(mapping.key), line);
        if let Some(pages) = self.mtt_cache.get(tag)
            && pages.key == mapping.key
        {
            return Ok(pages);
        }
        lookups.mtt_misses += u64::from(self.mtt_cache.exists());
        let present = self
            .tpt
            .entry(mapping.key.index())
            .and_then(|entry| entry.mapping)
            .ok_or(RefusalReason::NoTranslation)?;
        let pages = Line {
            key: mapping.key,
            serial: present.serial,
            span: present.span,
        };
        self.mtt_cache.insert(tag, pages);
        Ok(pages)
    }

    /// Whether a packet that passed should have: the mock knows what the HCA does not.
    fn judge(&self, mapping: &Mapping, pages: &Line) -> Option<StaleSource> {
        let entry = self.tpt.entry(mapping.key.index())?;
        let present = entry.state == State::Live
            && entry
                .mapping
                .is_some_and(|now| now.serial == mapping.serial && now.serial == pages.serial);
        match (present, entry.released) {
            (false, _) => Some(StaleSource::Cache),
            (true, true) => Some(StaleSource::Table),
            (true, false) => None,
        }
    }

    fn count_passed(
        &mut self,
        operation: Operation,
        stale: Option<StaleSource>,
        packets: u64,
        bytes: u64,
    ) {
        *match stale {
            None => &mut self.counters.packets_ok,
            Some(StaleSource::Table) => &mut self.counters.packets_stale_table,
            Some(StaleSource::Cache) => &mut self.counters.packets_stale_cache,
        } += packets;
        *match operation {
            Operation::Write => &mut self.counters.bytes_written,
            Operation::Read => &mut self.counters.bytes_read,
        } += bytes;
    }

    /// Link time of a run, so that the runs of a transfer add up to the time of the whole.
    fn link_time(&self, done: u64, len: u64) -> u64 {
        self.model.link(done + len) - self.model.link(done)
    }

    /// How many packets of a transfer start before its byte `at`.
    const fn packets_before(&self, at: u64) -> u64 {
        at.div_ceil(1 << self.knobs.mtu_shift)
    }
}

/// Protection, in the order in which the InfiniBand specification checks it. Returns where in the
/// memory the transfer begins.
fn check(mapping: &Mapping, request: &Request) -> Result<u64, RefusalReason> {
    if mapping.domain != request.domain {
        return Err(RefusalReason::WrongDomain);
    }
    if mapping
        .connection
        .is_some_and(|connection| connection != request.connection)
    {
        return Err(RefusalReason::WrongConnection);
    }
    let needed = match request.operation {
        _ if request.atomic => Access::REMOTE_ATOMIC,
        Operation::Write => Access::REMOTE_WRITE,
        Operation::Read => Access::REMOTE_READ,
    };
    if !mapping.access.contains(needed) {
        return Err(RefusalReason::AccessDenied);
    }
    let start = request.offset.checked_sub(mapping.base);
    start
        .filter(|start| {
            let end = start.checked_add(request.len);
            end.is_some_and(|end| end <= mapping.span.len())
        })
        .ok_or(RefusalReason::OutOfRange)
}
