//! From a trace's own clock to time since its first I/O.

use std::time::Duration;

use super::{Position, TraceError};

/// Makes stamps relative and monotonic, and refuses the unbelievable ones.
#[derive(Debug)]
pub(super) struct Timeline {
    /// First and latest stamp so far, on the trace's clock.
    seen: Option<(Duration, Duration)>,
    clamped: u64,
    max_step_back: Duration,
    max_gap: Duration,
}

impl Timeline {
    pub(super) fn new(max_step_back: Duration, max_gap: Duration) -> Self {
        Self {
            seen: None,
            clamped: 0,
            max_step_back,
            max_gap,
        }
    }

    /// Stamps moved forward to a previous one so far.
    pub(super) fn clamped(&self) -> u64 {
        self.clamped
    }

    /// Time since the first stamp; a small step back yields the latest time again.
    pub(super) fn place(&mut self, time: Duration) -> Result<Duration, BadStep> {
        let (first, latest) = *self.seen.get_or_insert((time, time));
        // Measured from the latest stamp, not from the previous one, so that small steps back cannot add up.
        if let Some(by) = latest.checked_sub(time).filter(|by| !by.is_zero()) {
            if by > self.max_step_back {
                let limit = self.max_step_back;
                return Err(BadStep::Back { by, limit });
            }
            self.clamped += 1;
            return Ok(latest - first);
        }
        let by = time - latest;
        if by > self.max_gap {
            let limit = self.max_gap;
            return Err(BadStep::Gap { by, limit });
        }
        self.seen = Some((first, time));
        Ok(time - first)
    }
}

/// A stamp that is too far from the latest one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadStep {
    Back { by: Duration, limit: Duration },
    Gap { by: Duration, limit: Duration },
}

impl BadStep {
    pub(super) fn at(self, at: Position) -> TraceError {
        match self {
            Self::Back { by, limit } => TraceError::StepsBack { at, by, limit },
            Self::Gap { by, limit } => TraceError::Gap { at, by, limit },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn small_steps_back_are_clamped_and_counted_and_cannot_add_up() {
        let mut timeline = Timeline::new(2 * S, 100 * S);
        assert_eq!(timeline.place(50 * S), Ok(Duration::ZERO));
        assert_eq!(timeline.place(60 * S), Ok(10 * S));
        assert_eq!(timeline.place(59 * S), Ok(10 * S));
        assert_eq!(timeline.place(58 * S), Ok(10 * S));
        let (by, limit) = (3 * S, 2 * S);
        assert_eq!(timeline.place(57 * S), Err(BadStep::Back { by, limit }));
        assert_eq!(
            timeline.place(60 * S),
            Ok(10 * S),
            "an equal stamp is in order"
        );
        assert_eq!(timeline.clamped(), 2);
    }

    #[test]
    fn an_io_before_the_first_one_is_at_zero() {
        let mut timeline = Timeline::new(2 * S, 100 * S);
        assert_eq!(timeline.place(50 * S), Ok(Duration::ZERO));
        assert_eq!(timeline.place(49 * S), Ok(Duration::ZERO));
    }

    #[test]
    fn a_gap_is_believed_up_to_the_limit() {
        let mut timeline = Timeline::new(2 * S, 100 * S);
        assert_eq!(timeline.place(S), Ok(Duration::ZERO));
        assert_eq!(timeline.place(101 * S), Ok(100 * S));
        let (by, limit) = (Duration::MAX - 101 * S, 100 * S);
        assert_eq!(
            timeline.place(Duration::MAX),
            Err(BadStep::Gap { by, limit })
        );
    }
}
