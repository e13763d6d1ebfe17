//! Medians and spreads.

/// The measurements of one quantity, in the order of the rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    /// Returns the range of the middle half.
    pub(crate) fn spread(&self) -> (f64, f64) {
        (self.quantile(0.25), self.quantile(0.75))
    }

    /// Returns the median of the ratios to `other` in each round, so that the slowdown of a whole round cancels out.
    pub(crate) fn ratio_to(&self, other: &Series) -> f64 {
        let ratios = self.0.iter().zip(&other.0).map(|(own, other)| own / other).collect();
        Series(ratios).median()
    }

    /// Returns a quantile, interpolated linearly; NaN if there are no measurements.
    fn quantile(&self, quantile: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let position = quantile * last as f64;
        let (below, above) = (position.floor() as usize, position.ceil() as usize);
        sorted[below] + (sorted[above] - sorted[below]) * position.fract()
    }
}
