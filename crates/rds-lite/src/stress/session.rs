//! A load from its begin to its end.

use super::control::{Control, ControlError, Word};
use super::load::Load;
use super::report::Reporter;
use super::side::Side;
use mr_core::{Clock, SystemClock};
use std::io::{self, Write};
use std::time::Duration;

/// Why a load was not brought to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The other side.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The report could not be written.
    #[error(transparent)]
    Report(#[from] io::Error),
}

/// Runs a load whose sides are all in this process. What was wrong, [`Side::failure`] says.
///
/// # Errors
///
/// The report could not be written.
pub fn alone(
    load: &Load,
    sides: &[Side],
    reporter: &mut Reporter,
    out: &mut impl Write,
) -> io::Result<()> {
    sides.iter().for_each(Side::begin);
    measure(load, sides, reporter, out, |_| true)?;
    sides.iter().for_each(Side::ask_no_more);
    sides.iter().for_each(Side::drain);
    sides.iter().for_each(Side::end);
    Ok(())
}

/// Runs a load as the side that begins, and has [offered](Control::offer) it. What was wrong here,
/// [`Side::failure`] says.
///
/// # Errors
///
/// [`SessionError`].
pub fn lead(
    control: &mut Control,
    load: &Load,
    side: &Side,
    reporter: &mut Reporter,
    out: &mut impl Write,
) -> Result<(), SessionError> {
    if !carry(control, load, side, reporter, out)? {
        return Ok(());
    }
    side.ask_no_more();
    control.send(&Word::NoMore)?;
    control.expect(&Word::NoMore)?;
    side.drain();
    control.send(&Word::End)?;
    control.expect(&Word::End)?;
    side.end();
    Ok(())
}

/// Runs a load as the side that has [taken](Control::accept) it. As [`lead`].
///
/// # Errors
///
/// [`SessionError`].
pub fn follow(
    control: &mut Control,
    load: &Load,
    side: &Side,
    reporter: &mut Reporter,
    out: &mut impl Write,
) -> Result<(), SessionError> {
    // When it is over the other side says.
    let endless = Load {
        time: None,
        ..load.clone()
    };
    if !carry(control, &endless, side, reporter, out)? {
        return Ok(());
    }
    control.expect(&Word::NoMore)?;
    side.ask_no_more();
    control.send(&Word::NoMore)?;
    side.drain();
    control.expect(&Word::End)?;
    control.send(&Word::End)?;
    side.end();
    Ok(())
}

/// Begins with the other side, and goes on until the load's time is over or the other side has a word: before the
/// end that it has failed. `false` if this side has, and has told.
fn carry(
    control: &mut Control,
    load: &Load,
    side: &Side,
    reporter: &mut Reporter,
    out: &mut impl Write,
) -> Result<bool, SessionError> {
    control.send(&Word::Ready)?;
    control.expect(&Word::Ready)?;
    side.begin();
    let sides = std::slice::from_ref(side);
    measure(load, sides, reporter, out, |wait| !control.has_word(wait))?;
    let failure = side.counts().failure();
    if let Some(failure) = &failure {
        control.refuse(failure);
        side.end();
    }
    Ok(failure.is_none())
}

/// How long the first message may take before the time runs without it: a connection has to be made.
const WARM_UP: Duration = Duration::from_secs(10);

/// How often it is looked whether it has come.
const GLANCE: Duration = Duration::from_millis(5);

/// Prints a line a second for as long as the load shall run, from the first message on, and `go_on`, which may wait,
/// says so.
fn measure(
    load: &Load,
    sides: &[Side],
    reporter: &mut Reporter,
    out: &mut impl Write,
    mut go_on: impl FnMut(Duration) -> bool,
) -> io::Result<()> {
    let clock = SystemClock::new();
    let mut wait_and_go_on = |wait: Duration| {
        let before = clock.now();
        let more = go_on(wait);
        if more {
            std::thread::sleep(wait.saturating_sub(clock.now().since(before)));
        }
        more
    };
    let counts = || sides.iter().map(Side::counts);
    let begun = clock.now();
    while !counts().any(|counts| counts.has_begun() || counts.failure().is_some())
        && clock.now().since(begun) < WARM_UP
        && wait_and_go_on(GLANCE)
    {}
    let start = clock.now();
    reporter.begin(start, counts(), out)?;
    let second = Duration::from_secs(1);
    loop {
        let passed = clock.now().since(start);
        let left = load.time.map_or(second, |time| time.saturating_sub(passed));
        let more = wait_and_go_on(left.min(second));
        let now = clock.now();
        let over = !more || load.time.is_some_and(|time| now.since(start) >= time);
        reporter.line(now, counts(), over, out)?;
        let failed = counts().any(|counts| counts.failure().is_some());
        if over || failed {
            return Ok(());
        }
    }
}
