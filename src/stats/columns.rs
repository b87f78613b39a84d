//! Mean and variance per column, in one pass.

use super::coreset::cut;
use crate::data::{DataSource, Source, no_weight};
use crate::error::{Error, Result};
use crate::float::{Float, either};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::rows::Rows;

/// Number, weight, mean and variance of rows, per column, in `f64`. Partial results merge without losing precision
/// far from the origin.
///
/// ```
/// use shoal::{MatRef, stats::ColumnMoments};
/// let (mut some, mut others) = (ColumnMoments::new(2), ColumnMoments::new(2));
/// some.absorb(MatRef::new(&[1.0f32, 7.0, 3.0, 7.0], 2), None);
/// others.absorb(MatRef::new(&[5.0f32, 7.0], 2), Some(&[2.0]));
/// some.merge(&others);
/// assert_eq!((some.rows(), some.weight(), some.mean()), (3, 4.0, &[3.5, 7.0][..]));
/// assert_eq!(some.variance(), [2.75, 0.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnMoments {
    rows: u64,
    weight: f64,
    mean: Vec<f64>,
    /// Weighted sums of squared differences from the mean.
    spread: Vec<f64>,
}

impl ColumnMoments {
    /// Moments of no rows, with `dim` columns.
    pub fn new(dim: usize) -> Self {
        Self { rows: 0, weight: 0.0, mean: vec![0.0; dim], spread: vec![0.0; dim] }
    }

    /// The moments of all rows of `data`, with its weights. Bit-identical for any number of threads.
    ///
    /// # Errors
    /// [`Error::Empty`] without rows, [`Error::NotFinite`] for a value that is NaN or infinite,
    /// [`Error::Source`] if squares overflow, [`Error::InvalidParam`] if all weights are 0; those of reading;
    /// [`Error::Interrupted`].
    ///
    /// ```
    /// use shoal::{Executor, stats::ColumnMoments};
    /// let found = ColumnMoments::of(&[[1.0f32, 7.0], [3.0, 7.0]], &Executor::new(Some(1))?)?;
    /// assert_eq!((found.mean(), found.variance()), (&[2.0, 7.0][..], vec![1.0, 0.0]));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn of<S: Source + ?Sized>(data: &S, cx: &Executor) -> Result<Self> {
        either!(data.any(), data => Self::of_typed(data, cx))
    }

    fn of_typed<T: Compute>(data: &dyn DataSource<T>, cx: &Executor) -> Result<Self> {
        let dim = data.dim();
        let mut total = Self::new(dim);
        let absorb = |chunk: Chunk<'_, T>, (): (), part: &mut Self, (): &mut ()| {
            part.absorb(chunk.rows, chunk.weights);
            match part.overflown() {
                None => Ok(()),
                Some(column) => chunk.check_finite().and(Err(too_large(column))),
            }
        };
        let merge = |total: &mut Self, part: &mut Self| {
            total.merge(part);
            part.clear();
        };
        sweep(data, cx, cut(data), (), &mut total, (|| Self::new(dim), || ()), absorb, merge)?;
        if total.rows == 0 {
            return Err(Error::Empty("`rows` must have at least 1 row, got 0".into()));
        }
        if total.weight <= 0.0 {
            return Err(no_weight());
        }
        total.overflown().map_or(Ok(total), |column| Err(too_large(column)))
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Total weight of the rows.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Weighted mean per column; zeros if all weights are 0.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Weighted variance per column: the mean of the squared differences from the mean. Zeros if all weights are 0.
    pub fn variance(&self) -> Vec<f64> {
        let weight = if self.weight > 0.0 { self.weight } else { 1.0 };
        self.spread.iter().map(|spread| spread / weight).collect()
    }

    /// Adds rows. Without `weights`, each row has weight 1. Costs a few operations per value and per column.
    ///
    /// # Panics
    /// If lengths do not match.
    pub fn absorb<'a, T: Float>(&mut self, rows: impl Into<Rows<'a, T>>, weights: Option<&[f64]>) {
        let (rows, dim) = (rows.into(), self.mean.len());
        assert_eq!(rows.cols(), dim, "rows of the same length");
        assert!(weights.is_none_or(|weights| weights.len() == rows.rows()), "one weight per row");
        let weight = |i: usize| weights.map_or(1.0, |weights| weights[i]);
        let mut part = Self { rows: rows.rows() as u64, ..Self::new(dim) };
        part.weight = (0..rows.rows()).map(weight).sum();
        let share = if part.weight > 0.0 { part.weight.recip() } else { 0.0 };
        // The mean of the computed differences is the rounding error of the mean.
        let mut error = vec![0.0; dim];
        match rows {
            Rows::Dense(dense) => {
                for (i, row) in dense.iter().enumerate() {
                    let weight = weight(i);
                    part.mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x.to_f64());
                }
                part.mean.iter_mut().for_each(|sum| *sum *= share);
                for (i, row) in dense.iter().enumerate() {
                    let weight = weight(i);
                    for (((mean, x), error), spread) in
                        part.mean.iter().zip(row).zip(&mut error).zip(&mut part.spread)
                    {
                        let off = x.to_f64() - mean;
                        *error += weight * off;
                        *spread += weight * off * off;
                    }
                }
            }
            Rows::Sparse(sparse) => {
                // The weight of the rows that store no value of a column.
                let mut zeros = vec![part.weight; dim];
                for (i, (columns, values)) in sparse.iter().enumerate() {
                    for (&column, x) in columns.iter().zip(values) {
                        part.mean[column as usize] += weight(i) * x.to_f64();
                        zeros[column as usize] -= weight(i);
                    }
                }
                part.mean.iter_mut().for_each(|sum| *sum *= share);
                for (i, (columns, values)) in sparse.iter().enumerate() {
                    for (&column, x) in columns.iter().zip(values) {
                        let off = x.to_f64() - part.mean[column as usize];
                        error[column as usize] += weight(i) * off;
                        part.spread[column as usize] += weight(i) * off * off;
                    }
                }
                for (((mean, zeros), error), spread) in
                    part.mean.iter().zip(zeros).zip(&mut error).zip(&mut part.spread)
                {
                    // Rounding of weights must not leave a negative rest.
                    let zeros = zeros.max(0.0);
                    *error -= zeros * mean;
                    *spread += zeros * mean * mean;
                }
            }
        }
        for ((mean, error), spread) in part.mean.iter_mut().zip(error).zip(&mut part.spread) {
            let off = error * share;
            *mean += off;
            let left = *spread - error * off;
            // Keeps NaN visible.
            *spread = if left < 0.0 { 0.0 } else { left };
        }
        self.merge(&part);
    }

    /// Adds the rows of another (Chan and others, 1979).
    ///
    /// # Panics
    /// If the numbers of columns differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.mean.len(), other.mean.len(), "rows of the same length");
        self.rows += other.rows;
        if other.weight == 0.0 && other.overflown().is_none() {
            return;
        }
        let weight = self.weight + other.weight;
        let share = if weight > 0.0 { other.weight / weight } else { 0.0 };
        let theirs = other.mean.iter().zip(&other.spread);
        for ((mean, spread), (more, apart)) in self.mean.iter_mut().zip(&mut self.spread).zip(theirs) {
            let off = more - *mean;
            *spread += apart + off * off * self.weight * share;
            *mean += off * share;
        }
        self.weight = weight;
    }

    /// The first column whose sums are not finite.
    fn overflown(&self) -> Option<usize> {
        let sums = self.mean.iter().zip(&self.spread);
        sums.into_iter().position(|(mean, spread)| !(mean.is_finite() && spread.is_finite()))
    }

    /// Removes all rows.
    fn clear(&mut self) {
        (self.rows, self.weight) = (0, 0.0);
        self.mean.fill(0.0);
        self.spread.fill(0.0);
    }
}

fn too_large(column: usize) -> Error {
    Error::Source(format!(
        "`rows` or their weights hold values so large that the variance of column {column} overflows: give the mean and the \
         scale of the columns"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dense, Weighted};
    use crate::matrix::MatRef;
    use crate::rng::{Purpose, Rng};
    use crate::rows::RowBuf;

    /// Mean and variance of a column by definition.
    fn by_definition(x: &[f64], weights: &[f64]) -> (f64, f64) {
        let all: f64 = weights.iter().sum();
        let mean = x.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>() / all;
        (mean, x.iter().zip(weights).map(|(x, w)| w * (x - mean).powi(2)).sum::<f64>() / all)
    }

    #[test]
    fn parts_of_any_length_merge_far_from_the_origin_too() {
        let mut rng = Rng::keyed(3, Purpose::Coreset, 0);
        for (dim, offset) in [(1, 0.0), (5, 1e7), (33, -1e3)] {
            let x: Vec<f64> = (0..300 * dim)
                .map(|i| if (i % dim + i / dim) % 3 == 0 { 0.0 } else { offset + rng.unit() })
                .collect();
            let weights: Vec<f64> =
                (0..300).map(|i| if i % 4 == 0 { 1e-30 } else { rng.unit() * 3.0 }).collect();
            for part in [1, 7, 300] {
                let (mut dense, mut sparse) = (ColumnMoments::new(dim), ColumnMoments::new(dim));
                for (rows, weights) in x.chunks(part * dim).zip(weights.chunks(part)) {
                    let mut stored = RowBuf::sparse(dim);
                    for row in rows.chunks(dim) {
                        for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                            stored.values.push(x);
                            stored.columns.push(column as i32);
                        }
                        stored.end_row();
                    }
                    dense.absorb(MatRef::new(rows, dim), Some(weights));
                    sparse.absorb(stored.rows(), Some(weights));
                }
                for found in [dense, sparse] {
                    assert_eq!(found.rows(), 300);
                    for j in 0..dim {
                        let column: Vec<f64> = x.iter().skip(j).step_by(dim).copied().collect();
                        let (mean, variance) = by_definition(&column, &weights);
                        let (found_mean, found_variance) = (found.mean()[j], found.variance()[j]);
                        assert!((found_mean - mean).abs() <= 1e-13 * mean.abs(), "{found_mean} {mean}");
                        assert!(
                            (found_variance / variance - 1.0).abs() < 1e-9,
                            "{dim} {part} {found_variance} {variance}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let mut rng = Rng::keyed(5, Purpose::Coreset, 0);
        let x: Vec<f32> = (0..3 * 40_000).map(|_| rng.unit() as f32).collect();
        let weights: Vec<f64> = (0..40_000).map(|_| rng.unit()).collect();
        let rows = Weighted::new(Dense::new(&x, 3).unwrap(), weights).unwrap();
        let of = |threads| ColumnMoments::of(&rows, &Executor::new(Some(threads)).unwrap()).unwrap();
        assert_eq!(of(1), of(4));
    }

    #[test]
    fn refusals_name_the_row_or_the_column() {
        let cx = Executor::new(Some(1)).unwrap();
        let refused = |rows: &[[f64; 2]]| ColumnMoments::of(&rows, &cx).unwrap_err().to_string();
        assert_eq!(
            refused(&[[0.0, 1.0], [f64::NAN, 2.0]]),
            "rows must be finite, got NaN at row 1, column 0"
        );
        assert!(refused(&[[0.0, 1e300], [1.0, -1e300]]).contains("variance of column 1 overflows"));
        assert_eq!(refused(&[]), "`rows` must have at least 1 row, got 0");
        let constant = ColumnMoments::of(&vec![[0.1f64]; 1000], &cx).unwrap();
        assert!((constant.mean()[0] - 0.1).abs() < 1e-16 && constant.variance()[0] < 1e-32);
    }
}
