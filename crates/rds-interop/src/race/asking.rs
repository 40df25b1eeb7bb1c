//! The side that asks.

use super::Load;
use super::cpu;
use super::figures::quantile;
use super::load::{Note, Wish};
use super::seat::{Came, Seat, Sent, Tally};
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long nothing may come while an answer is missing.
const PATIENCE: Duration = Duration::from_secs(15);

/// The longest wait between two looks at the clock.
const GLANCE: Duration = Duration::from_millis(20);

/// Requests without RDMA, and then with it, before anything counts: the first ones make the connection, the
/// others fill pools and tables.
const WARM_UP: usize = 2;

/// What asking brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Requests that were answered.
    pub operations: u64,
    /// From the first request to the last answer.
    pub took: Duration,
    /// The median time from a request to its answer, in seconds.
    pub round_trip: f64,
    /// Time that the processors of this machine were busy meanwhile, and until all keys were dead.
    pub busy: Duration,
    /// What became of the memory.
    pub tally: Tally,
}

/// A request without an answer.
#[derive(Clone, Copy)]
struct Waiting {
    number: u64,
    since: Instant,
    lent: bool,
}

struct Asker<'a> {
    seat: &'a mut dyn Seat,
    to: SocketAddr,
    load: Load,
    next: u64,
    places: Vec<Option<Waiting>>,
    message: Vec<u8>,
    came: Vec<u8>,
    /// Seconds, of each answer that counts.
    round_trips: Vec<f64>,
    /// When something came.
    heard: Instant,
}

/// Asks for so long, with as many requests under way as the load says; before that a few to get warm, and
/// behind it one that tells the other side that it was the last.
///
/// # Errors
///
/// An answer was wrong or did not come, or the seat failed.
pub fn ask(seat: &mut dyn Seat, to: SocketAddr, load: Load, time: Duration) -> Result<Asked> {
    let now = Instant::now();
    let mut asker = Asker {
        seat,
        to,
        load,
        next: 1,
        places: vec![None; load.depth],
        message: vec![0x5a; load.message],
        came: Vec::new(),
        round_trips: Vec::new(),
        heard: now,
    };
    asker.warm_up()?;

    let (before, busy) = (asker.seat.tally()?, cpu::busy()?);
    let start = Instant::now();
    asker.heard = start;
    asker.run(Wish::Answer, load.rdma > 0, |_, now| {
        now.duration_since(start) >= time
    })?;
    let took = start.elapsed();
    // What was put off is paid for, too.
    asker.seat.flush()?;
    let busy = cpu::busy()?.saturating_sub(busy);
    let tally = asker.seat.tally()?.since(before);

    let mut round_trips = std::mem::take(&mut asker.round_trips);
    round_trips.sort_by(f64::total_cmp);
    let last = asker.next;
    asker.run(Wish::Last, false, |number, _| number > last)?;
    Ok(Asked {
        operations: round_trips.len() as u64,
        took,
        round_trip: quantile(&round_trips, 0.5).context("nothing was answered")?,
        busy,
        tally,
    })
}

impl Asker<'_> {
    fn warm_up(&mut self) -> Result<()> {
        let first = self.next;
        self.run(Wish::WarmUp, false, |number, _| number > first)?;
        let end = self.next + (WARM_UP * self.load.depth) as u64;
        self.run(Wish::WarmUp, self.load.rdma > 0, |number, _| number >= end)?;
        self.seat.flush()
    }

    /// Asks until this is so for the next number and the time, and takes all answers.
    fn run(&mut self, wish: Wish, lend: bool, over: impl Fn(u64, Instant) -> bool) -> Result<()> {
        loop {
            let now = Instant::now();
            let is_over = over(self.next, now);
            if is_over && self.places.iter().all(Option::is_none) {
                return Ok(());
            }
            if !is_over {
                self.fill(wish, lend, &over)?;
            }
            let Some(came) = self.seat.receive(&mut self.came, GLANCE)? else {
                if self.heard.elapsed() > PATIENCE {
                    bail!("no answer for {PATIENCE:?}, after {}", self.next - 1);
                }
                continue;
            };
            self.take(came, wish)?;
            // What else is there makes room for more requests at once.
            while let Some(came) = self.seat.receive(&mut self.came, Duration::ZERO)? {
                self.take(came, wish)?;
            }
        }
    }

    /// Sends a request from each free place.
    fn fill(&mut self, wish: Wish, lend: bool, over: &impl Fn(u64, Instant) -> bool) -> Result<()> {
        for place in 0..self.places.len() {
            let now = Instant::now();
            if self.places[place].is_some() {
                continue;
            }
            if over(self.next, now) {
                break;
            }
            let number = self.next;
            let note = Note {
                number,
                slot: place as u32,
                wish,
            };
            note.write(&mut self.message);
            let lent = lend.then_some((place, number));
            if self.seat.ask(self.to, &self.message, lent)? == Sent::NotNow {
                break;
            }
            self.next += 1;
            self.places[place] = Some(Waiting {
                number,
                since: now,
                lent: lend,
            });
        }
        Ok(())
    }

    fn take(&mut self, came: Came, wish: Wish) -> Result<()> {
        self.heard = Instant::now();
        let (from, len) = (came.from, self.came.len());
        let note = Note::read(&self.came)
            .filter(|note| from == self.to && len == self.load.message && note.wish == wish);
        let note = note.with_context(|| format!("{len} bytes from {from} that are no answer"))?;
        let place = note.slot as usize;
        let waiting = self.places.get_mut(place).and_then(Option::take);
        let waiting = waiting.filter(|waiting| waiting.number == note.number);
        let waiting = waiting.with_context(|| format!("an answer to nothing: {note:?}"))?;
        if wish == Wish::Answer {
            let took = self.heard.duration_since(waiting.since);
            self.round_trips.push(took.as_secs_f64());
        }
        if waiting.lent {
            self.seat.settle(place, note.number)?;
        }
        Ok(())
    }
}
