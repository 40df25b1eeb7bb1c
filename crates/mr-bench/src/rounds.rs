//! Interleaved rounds, and what is told of them.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

/// One round of a contender: does its work once, and says what it came to (lower or higher is better,
/// as the line has it).
pub(crate) type Round<'a> = &'a mut dyn FnMut() -> Result<f64>;

/// What all rounds of one contender came to, in their order.
pub(crate) type Figures = Vec<f64>;

/// Runs `rounds` rounds of each contender, A B C A B C …, after one that is not counted.
///
/// So whatever else the machine does at the time hits all of them, and the figures with one index
/// are neighbours in time: ratios are taken between those.
pub(crate) fn interleave<const N: usize>(
    rounds: usize,
    mut contenders: [Round<'_>; N],
) -> Result<[Figures; N]> {
    let mut figures = [const { Vec::new() }; N];
    for contender in &mut contenders {
        contender()?;
    }
    for _ in 0..rounds {
        for (contender, figures) in contenders.iter_mut().zip(&mut figures) {
            figures.push(contender()?);
        }
    }
    Ok(figures)
}

/// Nanoseconds per operation of `work`, which does `operations` of them.
pub(crate) fn nanos_each(operations: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64 / operations as f64)
}

/// The middle of some figures, and the range of their middle 80 %.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) p10: f64,
    pub(crate) p90: f64,
    pub(crate) min: f64,
}

impl Spread {
    /// Over at least one figure.
    pub(crate) fn of(figures: &[f64]) -> Self {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = |part: f64| sorted[(last as f64 * part).round() as usize];
        Self {
            median: at(0.5),
            p10: at(0.1),
            p90: at(0.9),
            min: at(0.0),
        }
    }

    /// Over the ratios of the figures of one round each.
    pub(crate) fn of_ratios(measured: &[f64], against: &[f64]) -> Self {
        let ratios: Vec<_> = measured.iter().zip(against).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_take_turns_and_the_first_does_not_count() {
        let order = std::cell::RefCell::new(String::new());
        let (mut a, mut b) = (0.0, 10.0);
        let [first, second] = interleave(
            2,
            [
                &mut || {
                    order.borrow_mut().push('a');
                    a += 1.0;
                    Ok(a)
                },
                &mut || {
                    order.borrow_mut().push('b');
                    b += 1.0;
                    Ok(b)
                },
            ],
        )
        .unwrap();
        assert_eq!(order.into_inner(), "ababab");
        assert_eq!((first, second), (vec![2.0, 3.0], vec![12.0, 13.0]));
    }

    #[test]
    fn a_spread_is_of_ratios_of_one_round_each() {
        let spread = Spread::of_ratios(&[2.0, 40.0, 600.0], &[1.0, 10.0, 100.0]);
        assert_eq!((spread.median, spread.min), (4.0, 2.0));
        let figures: Vec<_> = (0..=100).rev().map(f64::from).collect();
        let spread = Spread::of(&figures);
        assert_eq!((spread.p10, spread.median, spread.p90), (10.0, 50.0, 90.0));
    }
}
