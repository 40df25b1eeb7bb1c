//! Medians, and how far figures lie apart.

use serde::Serialize;

/// Figures of several rounds: the median, and what a tenth of them is below and above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// A tenth is below.
    pub p10: f64,
    /// Half of them are below.
    pub p50: f64,
    /// A tenth is above.
    pub p90: f64,
}

impl Spread {
    /// The spread of these figures; none of none.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let at = |part: f64| quantile(&figures, part);
        Some(Self {
            p10: at(0.1)?,
            p50: at(0.5)?,
            p90: at(0.9)?,
        })
    }
}

/// The figure of which this part of all is below, between two if need be; of sorted figures.
pub(super) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = part * (sorted.len().checked_sub(1)?) as f64;
    let (low, high) = (place.floor(), place.ceil());
    let (below, above) = (sorted.get(low as usize)?, sorted.get(high as usize)?);
    Some(below + (above - below) * (place - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_lies_between_its_figures() {
        let spread = Spread::of([5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((spread.p10, spread.p50, spread.p90), (1.4, 3.0, 4.6));
        let same = Spread::of([7.0]).unwrap();
        assert_eq!((same.p10, same.p50, same.p90), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of([]), None);
    }
}
