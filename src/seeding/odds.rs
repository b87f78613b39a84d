//! Repeated draws of rows by weight.

use crate::rng::Rng;

/// Number of rows per stored sum. A draw finds the sum by bisection and adds up at most this many weights.
const GROUP: usize = 64;

/// Sampling odds proportional to weights: an eighth of a byte per row, built in one pass over the weights.
///
/// An alias table would take 12 bytes per row and two cache misses per draw.
#[derive(Clone, Debug)]
pub(crate) struct Odds {
    /// Total weight up to the end of each group.
    ends: Vec<f64>,
}

impl Odds {
    /// Odds for rows with these weights. At least one weight is above 0.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let mut total = 0.0;
        let sum = |group: &[f64]| {
            total = group.iter().fold(total, |total, weight| total + weight);
            total
        };
        Self { ends: weights.chunks(GROUP).map(sum).collect() }
    }

    /// Draws a row; `weights` must be the weights passed to [`Odds::new`].
    pub(crate) fn draw(&self, weights: &[f64], rng: &mut Rng) -> u64 {
        let at = rng.unit() * self.ends.last().expect("there are rows");
        let group = self.ends.partition_point(|&end| end <= at).min(self.ends.len() - 1);
        let first = group * GROUP;
        let rows = &weights[first..weights.len().min(first + GROUP)];
        let mut passed = if group == 0 { 0.0 } else { self.ends[group - 1] };
        // Same order of summation as in `new`, so the last row with weight ends where its group ends.
        let mut drawn = 0;
        for (i, &weight) in rows.iter().enumerate() {
            if weight > 0.0 {
                drawn = i;
                passed += weight;
                if passed > at {
                    break;
                }
            }
        }
        (first + drawn) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn weights_are_odds_and_rows_without_weight_are_never_drawn() {
        let mut weights = vec![0.0; 1000];
        for (row, weight) in [(0, 1.0), (63, 3.0), (64, 2.0), (640, 4.0)] {
            weights[row] = weight;
        }
        let odds = Odds::new(&weights);
        let mut rng = Rng::keyed(1, Purpose::Batch, 0);
        let mut seen = vec![0u32; 1000];
        (0..100_000).for_each(|_| seen[odds.draw(&weights, &mut rng) as usize] += 1);
        for (row, &weight) in weights.iter().enumerate() {
            let expected = weight * 10_000.0;
            assert!((f64::from(seen[row]) - expected).abs() <= 0.05 * expected, "{row}: {}", seen[row]);
        }
    }

    #[test]
    fn rounding_never_reaches_a_row_without_weight() {
        // Weights of very different magnitude, so that the sum loses most of them.
        let weights: Vec<f64> =
            (0..300).map(|i| if i % 3 == 0 { 0.0 } else { 10f64.powi(i % 40 - 20) }).collect();
        let odds = Odds::new(&weights);
        let mut rng = Rng::keyed(2, Purpose::Batch, 0);
        assert!((0..10_000).all(|_| weights[odds.draw(&weights, &mut rng) as usize] > 0.0));
    }
}
