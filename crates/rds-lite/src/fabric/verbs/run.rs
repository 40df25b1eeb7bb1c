//! One connection: the receiving half, which is its thread.

use super::Shared;
use super::link::{VerbsLink, done, is_ack};
use crate::fabric::{Arrival, ArrivedPayload};
use crate::proto::{DoneStatus, RdmaDone};
use crate::wire::HEADER_LEN;
use bytes::Bytes;
use mr_core::{Clock, SystemClock};
use mr_verbs::cm::{Event, Over, Poller};
use std::sync::Arc;
use std::time::Duration;

/// Things that are looked at together.
const BATCH: usize = 64;

/// The longest sleep; whatever happens wakes.
const LONGEST: Duration = Duration::from_secs(60);

/// What one look at the connection has found.
#[derive(Default)]
struct Round {
    established: bool,
    /// Payloads, one behind the other.
    bytes: Vec<u8>,
    frames: Vec<([u8; HEADER_LEN], std::ops::Range<usize>)>,
    /// A frame without a header.
    breach: bool,
    ended: Vec<RdmaDone>,
    any_ended: bool,
    /// The acknowledgement that was under way has ended.
    ack_ended: bool,
    over: Option<Over>,
}

impl Round {
    fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Established => self.established = true,
            Event::Frame(frame) => {
                let Ok(header) = frame.header().try_into() else {
                    self.breach = true;
                    return;
                };
                let start = self.bytes.len();
                self.bytes.extend_from_slice(frame.payload());
                self.frames.push((header, start..self.bytes.len()));
            }
            Event::Ended(ended) => {
                self.any_ended = true;
                self.ack_ended |= is_ack(&ended);
                self.ended.extend(done(ended));
            }
            Event::Over(over) => self.over = Some(over),
            _ => {}
        }
    }

    /// The frames, whose payloads share one allocation.
    fn arrivals(&mut self, to: &mut Vec<Arrival>) {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        to.extend(self.frames.drain(..).map(|(header, place)| Arrival {
            header,
            payload: ArrivedPayload::Bytes(bytes.slice(place)),
        }));
    }
}

impl VerbsLink {
    /// Receives until the connection has ended, in this thread. `opened`: the host knows that it is
    /// there.
    pub(super) fn run(self: &Arc<Self>, shared: &Shared, mut poller: Poller, mut opened: bool) {
        let clock = SystemClock::new();
        let patience = shared.config.connect_timeout;
        let start = clock.now();
        let mut arrivals = Vec::new();
        while !poller.is_drained() {
            let mut round = Round::default();
            let told = poller.poll(BATCH, |event| round.note(event));
            let frames = round.frames.len() as u32;
            if frames > 0 {
                // Before the host can tell the peer that there is room.
                self.connection.repost(frames);
            }
            if round.established && !opened {
                let link = Arc::clone(self) as _;
                let host = self.host().filter(|_| !self.is_closed());
                opened = host.is_some_and(|host| host.opened(self.id, &[], link));
                if !opened {
                    self.end();
                }
            }
            if round.breach {
                tracing::warn!(connection = ?self.connection, "a frame without a header");
                self.connection.disconnect();
            }
            round.arrivals(&mut arrivals);
            self.hand_over(&mut round, &mut arrivals, opened);
            if told > 0 {
                continue;
            }
            let left = if opened || self.connection.is_over() {
                LONGEST
            } else {
                patience.saturating_sub(clock.now().since(start))
            };
            if left.is_zero() {
                tracing::debug!(connection = ?self.connection, "the peer does not get ready");
                self.connection.disconnect();
            } else {
                poller.wait(left);
            }
        }
        self.finish(poller);
    }

    fn hand_over(&self, round: &mut Round, arrivals: &mut Vec<Arrival>, opened: bool) {
        let Some(host) = self.host() else {
            arrivals.clear();
            return self.end();
        };
        if opened && !arrivals.is_empty() && !self.is_closed() {
            host.frames(self.id, arrivals);
        }
        arrivals.clear();
        if round.any_ended && self.go_on() {
            host.writable(self.id);
        }
        if round.ack_ended {
            host.ack_ended(self.id);
        }
        if let Some(over) = round.over {
            tracing::debug!(connection = ?self.connection, %over, "a connection is over");
            self.give_up(&mut round.ended);
            if !self.is_closed() {
                host.lost(self.id);
            }
        } else {
            self.take_ended(&mut round.ended);
        }
        for done in round.ended.drain(..) {
            host.rdma_done(done);
        }
    }

    /// What is left, which is nothing unless the HCA has failed.
    fn finish(&self, poller: Poller) {
        let left = match poller.close() {
            Ok(left) => left,
            Err(error) => return tracing::error!(%error, "a connection is leaked"),
        };
        if let Some(host) = self.host() {
            for mut done in left.into_iter().filter_map(done) {
                if done.status == DoneStatus::Success {
                    done.status = DoneStatus::Flushed;
                }
                host.rdma_done(done);
            }
        }
    }
}
