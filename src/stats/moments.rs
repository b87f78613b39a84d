//! Mean of rows and their spread about it, in one pass. Partial results merge without losing precision far
//! from the origin.

use crate::float::Float;
use crate::kernel::{self, Compute, PackedCenters, accumulate};
use crate::matrix::MatRef;
use crate::rows::Rows;

/// Number, weight and mean of rows, and their weighted sum of squared distances to the mean, in `f64`.
///
/// ```
/// use shoal::{MatRef, stats::Moments};
/// let (mut some, mut others) = (Moments::new(1), Moments::new(1));
/// some.absorb(MatRef::new(&[1.0f32, 3.0], 1), None);
/// others.absorb(MatRef::new(&[5.0f32], 1), Some(&[2.0]));
/// some.merge(&others);
/// assert_eq!((some.rows(), some.weight(), some.mean(), some.spread()), (3, 4.0, &[3.5][..], 11.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    rows: u64,
    weight: f64,
    mean: Vec<f64>,
    spread: f64,
}

impl Moments {
    /// Moments of no rows, with `dim` columns.
    pub fn new(dim: usize) -> Self {
        Self { rows: 0, weight: 0.0, mean: vec![0.0; dim], spread: 0.0 }
    }

    /// Moments with known values.
    pub(crate) fn of_parts(rows: u64, weight: f64, mean: Vec<f64>, spread: f64) -> Self {
        Self { rows, weight, mean, spread }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Total weight of the rows.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Weighted mean of the rows; zeros if all weights are 0.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Weighted sum of squared distances to the mean.
    pub fn spread(&self) -> f64 {
        self.spread
    }

    /// Weighted sum of squared distances to another point.
    pub fn spread_about<T: Float>(&self, point: &[T]) -> f64 {
        let apart = self.mean.iter().zip(point).map(|(m, p)| (m - p.to_f64()).powi(2)).sum::<f64>();
        self.spread + self.weight * apart
    }

    /// Adds rows. Without `weights`, each row has weight 1. Costs a few operations per value and per column.
    ///
    /// Dense rows are summed relative to one of them, sparse rows relative to the origin.
    ///
    /// # Panics
    /// If lengths do not match.
    pub fn absorb<'a, T: Compute>(&mut self, rows: impl Into<Rows<'a, T>>, weights: Option<&[f64]>) {
        let (rows, dim) = (rows.into(), self.mean.len());
        let (mut part, mut energy) = (Self { rows: rows.rows() as u64, ..Self::new(dim) }, 0.0);
        match rows {
            Rows::Dense(dense) => {
                // The distance of the heaviest row from the mean is bounded by the spread of the others.
                let heavier = |best: usize, i: usize| weights.is_some_and(|w| w[i] > w[best]);
                let about = (0..dense.rows()).reduce(|best, i| if heavier(best, i) { i } else { best });
                let Some(about) = about else { return };
                let about = dense.row(about);
                let packed = PackedCenters::new(MatRef::new(about, dim));
                let (mut total, mut energies, labels) = ([0.0], [0.0], vec![0; dense.rows()]);
                accumulate(dense, &labels, weights, &packed, &mut part.mean, &mut total, &mut energies);
                (part.weight, energy) = (total[0], energies[0]);
                part.divide();
                energy -= part.spread_about(about);
            }
            Rows::Sparse(sparse) => {
                for (i, (columns, values)) in sparse.iter().enumerate() {
                    let weight = weights.map_or(1.0, |w| w[i]);
                    part.weight += weight;
                    for (&column, x) in columns.iter().zip(values) {
                        part.mean[column as usize] += weight * x.to_f64();
                        energy += weight * x.to_f64() * x.to_f64();
                    }
                }
                part.divide();
                energy -= part.weight * part.mean.iter().map(|m| m * m).sum::<f64>();
            }
        }
        // Keeps NaN visible.
        part.spread = if energy < 0.0 { 0.0 } else { energy };
        self.merge(&part);
    }

    /// Adds rows of bytes, bit-identical to [`Moments::absorb`] of the converted rows: all sums are integers, and
    /// exact there too.
    ///
    /// # Panics
    /// If the rows have another number of columns.
    pub(crate) fn absorb_bytes(&mut self, rows: MatRef<'_, u8>) {
        let (n, dim) = (rows.rows(), self.mean.len());
        if n == 0 {
            return;
        }
        let (mut sums, about) = (vec![0; dim], rows.row(0));
        let mut energy = i128::from(kernel::add_bytes(rows, &mut sums));
        for (&sum, &a) in sums.iter().zip(about) {
            let (sum, a) = (i128::from(sum), i128::from(a));
            energy += a * (n as i128 * a - 2 * sum);
        }
        let mean = sums.into_iter().map(|sum| sum as f64).collect();
        let mut part = Self { rows: n as u64, weight: n as f64, mean, spread: 0.0 };
        part.divide();
        let about: Vec<f32> = about.iter().map(|&a| f32::from(a)).collect();
        part.spread = (energy as f64 - part.spread_about(&about)).max(0.0);
        self.merge(&part);
    }

    /// Converts a sum to a mean.
    fn divide(&mut self) {
        if self.weight > 0.0 {
            let weight = self.weight;
            self.mean.iter_mut().for_each(|sum| *sum /= weight);
        }
    }

    /// Adds the rows of another (Chan and others, 1979).
    ///
    /// # Panics
    /// If the numbers of columns differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.mean.len(), other.mean.len(), "rows of the same length");
        self.rows += other.rows;
        if other.weight <= 0.0 {
            return;
        }
        let weight = self.weight + other.weight;
        let share = other.weight / weight;
        let mut apart = 0.0;
        for (mean, more) in self.mean.iter_mut().zip(&other.mean) {
            let off = more - *mean;
            apart += off * off;
            *mean += off * share;
        }
        self.spread += other.spread + apart * self.weight * share;
        self.weight = weight;
    }

    /// Removes all rows.
    pub(crate) fn clear(&mut self) {
        (self.rows, self.weight, self.spread) = (0, 0.0, 0.0);
        self.mean.fill(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Rng};

    /// Weight, mean and spread by definition.
    fn by_definition(x: &[f64], dim: usize, weights: &[f64]) -> (f64, Vec<f64>, f64) {
        let all: f64 = weights.iter().sum();
        let mean: Vec<f64> = (0..dim)
            .map(|t| x.iter().skip(t).step_by(dim).zip(weights).map(|(x, w)| x * w).sum::<f64>() / all)
            .collect();
        let sq = |row: &[f64]| row.iter().zip(&mean).map(|(x, m)| (x - m).powi(2)).sum::<f64>();
        let spread = x.chunks(dim).zip(weights).map(|(row, w)| w * sq(row)).sum();
        (all, mean, spread)
    }

    #[test]
    fn parts_of_any_length_merge_far_from_the_origin_too() {
        let mut rng = Rng::keyed(3, Purpose::Coreset, 0);
        for (dim, offset) in [(1, 0.0), (5, 1e7), (33, -1e3)] {
            let x: Vec<f64> = (0..300 * dim).map(|_| offset + rng.unit()).collect();
            // Rows with tiny weights come first.
            let weights: Vec<f64> =
                (0..300).map(|i| if i % 4 == 0 { 1e-30 } else { rng.unit() * 3.0 }).collect();
            let (weight, mean, spread) = by_definition(&x, dim, &weights);
            for part in [1, 7, 300] {
                let mut found = Moments::new(dim);
                for (rows, weights) in x.chunks(part * dim).zip(weights.chunks(part)) {
                    let mut some = Moments::new(dim);
                    some.absorb(MatRef::new(rows, dim), Some(weights));
                    found.merge(&some);
                }
                assert_eq!(found.rows(), 300);
                assert!((found.weight() / weight - 1.0).abs() < 1e-12);
                // A mean far from the origin has a rounding error of its own.
                let lost = 1e-9 + 1e-14 * f64::abs(offset);
                assert!((found.spread() / spread - 1.0).abs() < lost, "{dim} {part} {}", found.spread());
                for (found, mean) in found.mean().iter().zip(&mean) {
                    assert!((found - mean).abs() < 1e-12 * (1.0 + mean.abs()));
                }
            }
        }
    }

    #[test]
    fn bytes_have_the_moments_of_converted_rows() {
        let mut rng = Rng::keyed(4, Purpose::Coreset, 0);
        for (n, dim) in [(1, 5), (300, 1), (700, 70), (1000, 130)] {
            let x: Vec<u8> = (0..n * dim).map(|_| rng.below(256) as u8).collect();
            let converted: Vec<f32> = x.iter().map(|&x| f32::from(x)).collect();
            let (mut bytes, mut floats) = (Moments::new(dim), Moments::new(dim));
            for (x, converted) in x.chunks(400 * dim).zip(converted.chunks(400 * dim)) {
                bytes.absorb_bytes(MatRef::new(x, dim));
                floats.absorb(MatRef::new(converted, dim), None);
            }
            assert_eq!(bytes, floats, "{n} x {dim}");
        }
        let mut none = Moments::new(3);
        none.absorb_bytes(MatRef::new(&[], 3));
        assert_eq!(none, Moments::new(3));
    }

    #[test]
    fn rows_without_weight_only_count() {
        let mut moments = Moments::new(1);
        moments.absorb(MatRef::new(&[5.0f64, 6.0], 1), Some(&[0.0, 0.0]));
        assert_eq!((moments.rows(), moments.weight(), moments.spread()), (2, 0.0, 0.0));
        moments.absorb(MatRef::new(&[7.0f64], 1), None);
        assert_eq!((moments.mean(), moments.spread()), (&[7.0][..], 0.0));
    }
}
